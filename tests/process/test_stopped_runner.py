"""The process that runs a scenario stands still for ten seconds; its figures are the store's all the same."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec

from services.telemetry.eventlog import Line

STOPPED_S = 10.0
UNDER_WAY = 20
BOUND_S = 120.0
SCENARIO = """# Pods that a node refuses and that are replaced, over and over
nodes n1 numa=2x8 memory=64Gi policy=single-numa-node
limit 120s
pod a cpu=4
pod b cpu=4
expect within 60s count pods phase=Running == 2
pod c cpu=4
expect within 60s count pods phase=Running == 3
delete pod/b grace=0
expect within 60s count pods phase=Running == 2
replicaset web replicas=1 cpu=6
wait 8s
"""
RUN = """
import json, sys
from pathlib import Path
from lab.scenarios.run import load_scenario, run_as_processes
folder = Path(sys.argv[1])
result = run_as_processes(load_scenario(folder / "churn.txt"), data_dir=folder / "mesh")
(folder / "result.json").write_text(json.dumps(
    {"error": result.error, "violations": [v.detail for v in result.violations], "measures": result.measures,
     "seen": result.seen.document(), "roles": [pod.role for pod in result.pods]}
))
"""


def pod_commits(folder):
    """Return (version, uid, type, phase) of each commit of a pod that a controller made, as far as it is written."""
    decoder, found, owned = msgspec.json.Decoder(Line), [], set()
    for path in sorted((folder / "mesh" / "events").glob("apiserver*")):
        for text in path.read_bytes().splitlines(keepends=True):
            if text.endswith(b"\n") and b'"store.commit"' in text and b'"kind":"Pod"' in text:
                line = decoder.decode(text)
                if line.data.get("owners"):
                    owned.add(line.obj["uid"])
                found.append((line.rv, line.obj["uid"], line.data["type"], line.data.get("phase", "")))
    return [each for each in found if each[1] in owned]


def test_a_run_whose_process_stood_still_counts_what_the_store_committed(tmp_path):
    (tmp_path / "churn.txt").write_text(SCENARIO)
    runner = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], env=os.environ)
    try:
        until_s = time.monotonic() + BOUND_S
        while len(pod_commits(tmp_path)) < UNDER_WAY:
            assert runner.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.1)

        runner.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        runner.send_signal(signal.SIGCONT)

        assert runner.wait(BOUND_S) == 0
    finally:
        runner.kill()
        runner.wait()
    result = json.loads((tmp_path / "result.json").read_text())
    seen = result["seen"]
    stored = [each for each in pod_commits(tmp_path) if each[0] <= seen["newest"]]
    assert ("", []) == (result["error"], result["violations"])
    assert seen["version"] == seen["newest"]
    assert (
        len({uid for _, uid, kind, _ in stored if kind == "ADDED"})
        == result["measures"]["pods_created"]
        > UNDER_WAY / 4
    )
    assert len({uid for _, uid, _, phase in stored if phase == "Failed"}) == result["measures"]["pods_failed"]
    assert seen["behind_s"] > STOPPED_S / 2
    assert any("behind the store" in note for note in seen["notes"])
