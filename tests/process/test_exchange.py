"""`keplab export`, `import`, `record`, `replay` and `snapshot` against a mesh of processes."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest

from lab.exchange.format import Reading, open_stream
from lab.exchange.reading import Source
from lab.exchange.rest.client import RestClient
from lab.exchange.rest.endpoint import Endpoint
from lab.exchange.rest.kubeconfig import read_access
from lab.recordings.reader import Recording

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\ndata: {a: '%s'}\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: app}]}
"""


def keplab(*arguments, code=0, stdin=None):
    command = [sys.executable, "-m", "lab.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=120, input=stdin)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A mesh of two nodes; it is taken down at the end."""
    folder = tmp_path_factory.mktemp("mesh") / "m"
    keplab("up", "--data", folder, "--nodes", "2", "--set", "store.raw=true", "--detach")
    yield folder
    keplab("down", "--data", folder)


def read(path):
    stream = open_stream(Source(path), Reading())[1]
    return [each.document for each in stream.objects], list(stream.changes)


def recording(path, *words):
    """Begin to record; return the process once it follows what happens."""
    command = [sys.executable, "-m", "lab.cli", "record", "-o", str(path), *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON)
    for line in process.stderr:
        if "recording until Ctrl-C" in line:
            return process
    raise AssertionError(process.communicate())


def ended(process):
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return printed


def shape_of(changes):
    """What was done, without versions and times that an API server gives."""
    return [(each.method, each.resource, each.name, (each.document or {}).get("data")) for each in changes]


def test_17_what_is_recorded_and_replayed_is_recorded_again(data, tmp_path):
    at, kinds = ("--data", data), ("--kinds", "configmaps", "--format", "kwok")
    first, second, source = tmp_path / "first.yaml", tmp_path / "second.yaml.gz", tmp_path / "in.yaml"
    process = recording(first, *at, *kinds)
    for name, value in (("m", "1"), ("m", "2"), ("n", "1")):
        source.write_text(MAP % (name, value))
        keplab("import", source, *at)
    printed = ended(process)
    assert printed.endswith(f"changes are in {first}\n")
    _, changes = read(first)
    made = [
        ("create", "configmaps", "m", {"a": "1"}),
        ("patch", "configmaps", "m", {"a": "2"}),
        ("create", "configmaps", "n", {"a": "1"}),
    ]
    assert shape_of(changes) == made
    assert [each.at_s for each in changes] == sorted(each.at_s for each in changes)

    for name in ("m", "n"):
        delete(data, f"/api/v1/namespaces/default/configmaps/{name}")
    process = recording(second, *at, *kinds)
    replayed = json.loads(keplab("replay", first, *at, "--speed", "max", "-o", "json").stdout)
    ended(process)
    assert replayed["played"]["applied"] == 3
    _, again = read(second)
    assert [each for each in shape_of(again) if each[2] in ("m", "n")] == made


def test_a_mesh_is_recorded_in_keplabs_own_form(data, tmp_path):
    path = tmp_path / "own.keprec"
    process = recording(path, "--data", data)
    keplab("import", "-", "--data", data, stdin=MAP % ("recorded", "1"))
    assert "event lines are in" in ended(process)

    with Recording.open(path) as found:
        assert "recorded" in [each.name for each in found.versions() if each.resource == "configmaps"]
    refused = keplab("record", "-o", path, "--kubeconfig", data / "kubeconfig", code=2).stderr
    assert "for a cluster want --format kwok" in refused


def delete(data, path):
    async def change():
        rest = RestClient(Endpoint(read_access(data / "kubeconfig")))
        try:
            await rest.change("DELETE", path, {}, b"")
        finally:
            await rest.close()

    asyncio.run(change())


def test_a_pod_is_bound_as_it_was_bound(data, tmp_path):
    file = tmp_path / "bound.yaml"
    parts = (
        (
            "create",
            "template: {apiVersion: v1, kind: Pod, metadata: {name: fixed, namespace: default}, spec: {schedulerName: none, containers: [{name: a, image: x}]}}",
        ),
        ("patch", "template: {spec: {nodeName: node-1}}"),
    )
    file.write_text(
        "---\n".join(
            "apiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nresource: {version: v1, resource: pods}\n"
            f"target: {{name: fixed, namespace: default}}\ndurationNanosecond: {n}\nmethod: {method}\n{template}\n"
            for n, (method, template) in enumerate(parts)
        )
    )

    keplab("replay", file, "--data", data, "--pods", "as-they-are")

    pod = json.loads(keplab("get", "pod/fixed", "--data", data, "-o", "json").stdout)
    assert pod["spec"]["nodeName"] == "node-1"
    keplab(
        "replay",
        "-",
        "--data",
        data,
        "--speed",
        "max",
        stdin=file.read_text().partition("---")[0].replace("create", "delete").partition("template")[0],
    )


def test_14_pods_that_ran_run_on_their_nodes_and_none_restarts(data, tmp_path):
    file = tmp_path / "running.yaml"
    file.write_text(
        "".join(
            f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: r-{n}, namespace: default, labels: {{app: r}}}}\n"
            f"spec: {{nodeName: node-{n % 2}, containers: [{{name: a, image: x, resources: {{requests: {{cpu: 50m}}}}}}]}}\n"
            "status: {phase: Running, startTime: '2026-01-02T03:04:04Z', containerStatuses: [{name: a, image: x, imageID: x, "
            "ready: true, restartCount: 3, state: {running: {startedAt: '2026-01-02T03:04:05Z'}}}]}\n"
            for n in range(50)
        )
    )
    keplab("import", file, "--data", data)

    def pods():
        return json.loads(keplab("get", "pods", "-l", "app=r", "--data", data, "-o", "json").stdout)["items"]

    deadline = time.monotonic() + 60
    while len(found := [each for each in pods() if each["status"]["phase"] == "Running"]) < 50:
        assert time.monotonic() < deadline, len(found)
    nodes = Counter(each["spec"]["nodeName"] for each in found)
    assert nodes == {"node-0": 25, "node-1": 25}
    states = [(each["status"]["startTime"], *each["status"]["containerStatuses"]) for each in found]
    assert {(at, one["restartCount"], one["state"]["running"]["startedAt"]) for at, one in states} == {
        ("2026-01-02T03:04:04Z", 3, "2026-01-02T03:04:05Z")
    }


OWNED = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, uid: d-1, annotations: {deployment.kubernetes.io/revision: "4"}}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: SPEC}}
status: {replicas: 2, readyReplicas: 2, updatedReplicas: 2, availableReplicas: 2, observedGeneration: 7}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  {name: web-h, namespace: default, uid: r-1, labels: {app: web, pod-template-hash: h},
  annotations: {deployment.kubernetes.io/revision: "4", deployment.kubernetes.io/desired-replicas: "2"},
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d-1, controller: true}]}
spec:
  replicas: 2
  selector: {matchLabels: {app: web, pod-template-hash: h}}
  template: {metadata: {labels: {app: web, pod-template-hash: h}}, spec: SPEC}
status: {replicas: 2, readyReplicas: 2}
---
apiVersion: batch/v1
kind: Job
metadata: {name: over, namespace: default, uid: j-1}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}
status:
  succeeded: 1
  startTime: "2026-01-02T03:04:04Z"
  completionTime: "2026-01-02T03:05:04Z"
  conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]
""".replace("SPEC", "{containers: [{name: a, image: x}]}")


def test_13_a_deployment_keeps_its_pods_and_a_job_that_is_over_is_not_run_again(data, tmp_path):
    file = tmp_path / "owned.yaml"
    pods = (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-h-{n}, namespace: default, labels: {{app: web, "
        "pod-template-hash: h}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-h, uid: r-1, controller: true}]}\n"
        f"spec: {{nodeName: node-{n}, containers: [{{name: a, image: x}}]}}\n"
        "status: {phase: Running, startTime: '2026-01-02T03:04:04Z', containerStatuses: [{name: a, image: x, imageID: x, "
        "ready: true, restartCount: 3, state: {running: {startedAt: '2026-01-02T03:04:05Z'}}}]}\n"
        for n in range(2)
    )
    file.write_text(OWNED + "".join(pods))

    def named(kind, prefix):
        found = json.loads(keplab("get", kind, "--data", data, "-o", "json").stdout)["items"]
        return sorted(each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith(prefix))

    assert json.loads(keplab("import", file, "--data", data, "-o", "json").stdout)["failures"] == []

    deadline = time.monotonic() + 60
    web = {}
    while web.get("observedGeneration") != 1 or web.get("readyReplicas") != 2:
        web = json.loads(keplab("get", "deployment/web", "--data", data, "-o", "json").stdout)["status"]
        assert time.monotonic() < deadline, web
    assert (named("pods", "web-"), named("rs", "web-")) == (["web-h-0", "web-h-1"], ["web-h"])
    assert named("pods", "over-") == []
    status = json.loads(keplab("status", "--data", data, "-o", "json").stdout)
    assert (status["faults"], status["conditions"]) == ([], []), "nothing is paused any more"
    for path in ("apis/apps/v1/namespaces/default/deployments/web", "apis/batch/v1/namespaces/default/jobs/over"):
        delete(data, f"/{path}")


def test_an_export_is_imported_and_counted(data, tmp_path):
    at, path = ("--data", data), tmp_path / "all.yaml"
    keplab("import", "-", *at, stdin=POD)
    keplab("export", "-o", path, *at)

    objects, changes = read(path)
    assert ({"Node", "Pod", "Namespace"} <= {each["kind"] for each in objects}, changes) == (True, [])
    assert not any("resourceVersion" in each["metadata"] for each in objects)
    counted = json.loads(keplab("import", path, "--dry-run", "--kinds", "pods,no", "-o", "json").stdout)
    assert (counted["objects"]["v1 Node"], counted["objects"]["v1 Pod"]) >= (2, 1)
    own = json.loads(
        keplab("import", "--kubeconfig", data / "kubeconfig", "--dry-run", "--kinds", "pods", "-o", "json").stdout
    )
    assert own["objects"] == {"v1 Pod": counted["objects"]["v1 Pod"]}
    loaded = json.loads(keplab("import", path, *at, "-o", "json").stdout)
    assert (loaded["created"], loaded["failures"], loaded["orphans"]) == (0, [], [])


def test_a_snapshot_is_saved_restored_and_simulated_from(data, tmp_path):
    at = ("--data", data)
    keplab("import", "-", *at, stdin=MAP % ("kept", "1"))
    saved = json.loads(keplab("snapshot", "save", "one", *at, "-o", "json").stdout)
    listed = json.loads(keplab("snapshot", "list", *at, "-o", "json").stdout)["snapshots"]
    assert [(each["name"], each["version"]) for each in listed] == [("one", saved["resourceVersion"])]
    assert "stop it with `keplab down` first" in keplab("snapshot", "restore", "one", *at, code=2).stderr

    file, other = saved["file"], tmp_path / "other"
    keplab("snapshot", "restore", file, "--data", other)
    forks = [json.loads(keplab("fork", "--from", each, "--for", "2s", "-o", "json").stdout) for each in (file, other)]
    assert forks[0]["digest"] == forks[1]["digest"]
    assert forks[0]["at"] == saved["resourceVersion"]
    keplab("up", "--data", other, "--nodes", "2", "--detach")
    try:
        found = json.loads(keplab("get", "configmap/kept", "--data", other, "-o", "json").stdout)
        before = json.loads(keplab("get", "configmap/kept", *at, "-o", "json").stdout)
        assert found == before
        again = json.loads(keplab("snapshot", "save", tmp_path / "b.keplab", "--data", other, "-o", "json").stdout)
        assert again["resourceVersion"] >= saved["resourceVersion"]
    finally:
        keplab("down", "--data", other)
    keplab("snapshot", "export", file, "-o", tmp_path / "x.yaml", *at)
    assert "kept" in [each["metadata"]["name"] for each in read(tmp_path / "x.yaml")[0]]


def ready(data):
    found = json.loads(keplab("get", "nodes", "--data", data, "-o", "json").stdout)["items"]
    return [
        each["metadata"]["name"]
        for each in found
        if {"type": "Ready", "status": "True"}.items()
        <= max(each["status"]["conditions"], key=lambda c: c["type"] == "Ready").items()
    ]


def test_18_nodes_are_scaled_up_down_and_up_again_and_each_has_a_kubelet(data):
    at = ("--data", data)
    keplab("scale", "node", "--replicas", "100", *at)
    scaled = [name for name in ready(data) if name.startswith("node-00")]
    assert scaled == [f"node-{number:06d}" for number in range(100)]
    keplab("scale", "node", "--replicas", "40", *at)
    keplab("scale", "node", "--replicas", "60", "--param", ".allocatable.cpu=64", *at)
    assert len([name for name in ready(data) if name.startswith("node-00")]) == 60
    one = json.loads(keplab("get", "node/node-000050", *at, "-o", "json").stdout)
    assert (one["status"]["allocatable"]["cpu"], one["metadata"]["labels"]["kwok.x-k8s.io/kwokctl-scale"]) == (
        "64",
        "node",
    )
    said = keplab("scale", "node", "--replicas", "2", "--serial-length", "0", *at, code=2).stderr
    assert said == "keplab: --serial-length 0 with --replicas 2: want a serial number for more than one object\n"
    lonely = keplab("scale", "node", "edge", "--replicas", "1", *at, code=1).stderr
    assert "NodeNotHosted: 1 have no kubelet, edge-000000 first" in lonely
    keplab("scale", "node", "edge", "--replicas", "0", *at)
    keplab("scale", "node", "--replicas", "0", *at)


def test_19_what_is_written_raw_stands_as_it_was_given_and_in_the_event_log(data, tmp_path):
    at, file = ("--data", data), tmp_path / "old.yaml"
    file.write_text(MAP % ("old", "1") + "")
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata: {name: old, namespace: default, creationTimestamp: '2001-02-03T04:05:06Z'}\ndata: {a: '1'}\n"
    )
    keplab("raw", "put", file, *at)
    found = json.loads(keplab("raw", "get", "cm", "old", *at).stdout)
    assert found["metadata"]["creationTimestamp"] == "2001-02-03T04:05:06Z"
    keplab("raw", "del", "cm", "old", *at)
    assert "not found" in keplab("raw", "get", "cm", "old", *at, code=1).stderr
    lines = [
        json.loads(line) for path in (data / "events").glob("apiserver-*") for line in path.read_text().splitlines()
    ]
    written = [line for line in lines if line["ev"] == "raw.write"]
    assert [(line["data"]["verb"], line["obj"]["name"]) for line in written] == [("put", "old"), ("del", "old")]


SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: default}\ndata: {password: aHVzaC1odXNo}\n"


@pytest.mark.parametrize(
    "words",
    [("export",), ("snapshot", "export", "kept"), ("record", "--format", "kwok", "--duration", "1s")],
    ids=lambda words: words[0],
)
def test_values_of_secrets_are_written_when_that_is_asked_for_into_a_file_of_its_owner(data, tmp_path, words):
    keplab("import", "-", "--data", data, stdin=SECRET)
    if words[0] == "snapshot":
        keplab("snapshot", "save", "kept", "--data", data)

    seen = {}
    for asked in ((), ("--secrets",)):
        path = tmp_path / f"{len(asked)}.yaml"
        keplab(*words, "-o", path, *asked, "--data", data)
        assert path.stat().st_mode & 0o777 == 0o600
        objects = read(path)[0]
        (seen[asked],) = [each for each in objects if each["metadata"]["name"] == "login" and each["kind"] == "Secret"]

    assert list(seen[()]["data"]) == ["password"]
    assert "aHVzaC1odXNo" not in str(seen[()])
    assert seen["--secrets",]["data"]["password"] == "aHVzaC1odXNo"


def test_an_export_goes_through_a_pipe_into_an_import(data):
    written = keplab("export", "-o", "-", "--kinds", "namespaces", "--data", data)

    assert "in /dev/stdout" in written.stderr
    assert "updated" in keplab("import", "-", "--data", data, stdin=written.stdout).stdout


def test_a_snapshot_of_another_store_format_is_refused_with_both_versions(data, tmp_path):
    keplab("snapshot", "save", tmp_path / "a.keplab", "--data", data)
    other = tmp_path / "b.keplab"
    with tarfile.open(tmp_path / "a.keplab") as archive, tarfile.open(other, "w:gz") as changed:
        for member in archive:
            content = archive.extractfile(member)
            text = content.read() if content is not None else b""
            text = text.replace(b'"storeFormat": 1', b'"storeFormat": 7')
            member.size = len(text)
            changed.addfile(member, io.BytesIO(text))

    said = keplab("snapshot", "restore", other, "--data", tmp_path / "m", code=2).stderr
    assert "its store has format 7, this keplab reads and writes format 1" in said
    assert not (tmp_path / "m").exists()
    torn = tmp_path / "torn.keplab"
    torn.write_bytes((tmp_path / "a.keplab").read_bytes()[:-2000])
    assert "torn" in keplab("snapshot", "restore", torn, "--data", tmp_path / "m", code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("record", "-o", "x", "--format", "etcd"), "--format etcd: want one of "),
        (
            ("record", "-o", "x", "--format", "kubectl"),
            "--format kubectl: it has no changes; `keplab export` writes it",
        ),
        (
            ("export", "-o", "-", "--anonymise", "SALT"),
            "--anonymise: the command reads the file that it wrote; want -o FILE",
        ),
        (("export", "-o", "x", "--secrets", "--kubeconfig", "k"), "--secrets: the values of a cluster's Secrets"),
        (("record", "-o", "x", "--secrets", "--kubeconfig", "k"), "--secrets: the values of a cluster's Secrets"),
        (("export", "-o", "/nowhere/x"), "cannot write /nowhere/x: No such file or directory"),
        (("import", "gone.yaml"), "gone.yaml: No such file or directory"),
        (("import",), "want files or --kubeconfig"),
        (("import", "gone.yaml", "-l", "a in ("), "--selector: unable to parse requirement: found ''"),
        (("sync", "--kubeconfig", "DATA/kubeconfig"), " itself: want another cluster"),
        (("export", "-o", "x", "--kinds", "gizmos"), "no kind 'gizmos'"),
        (("snapshot", "restore", "nothing"), "there is no such snapshot"),
        (("snapshot", "export", "nothing", "-o", "x.yaml"), "there is no such snapshot"),
        (("replay", "gone.yaml"), "gone.yaml: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(data, tmp_path, words, message):
    (tmp_path / "salt").write_bytes(b"s" * 16)
    words = tuple(each.replace("DATA", str(data)).replace("SALT", str(tmp_path / "salt")) for each in words)
    command = [sys.executable, "-m", "lab.cli", *words, *(() if words == ("import",) else ("--data", str(data)))]

    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, cwd=tmp_path, timeout=60, check=False)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
