"""A kubectl session against a whole mesh of processes, with the kubeconfig that `keplab up` wrote."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import parts
import pytest

ROOT = Path(__file__).parents[2]
COMMAND_MAX_S = 60.0


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """Return a function that runs kubectl against a mesh of two nodes, and ends the mesh afterwards."""
    try:
        binary = parts.kubectl("forky")
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("home")
    data = home / "mesh"
    keplab = [sys.executable, "-m", "lab.cli"]
    up = [*keplab, "up", "--nodes", "2", "--engine", "memory", "--data", str(data), "--detach", "-o", "json"]
    started = subprocess.run(up, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_MAX_S)
    try:
        assert started.returncode == 0, started.stderr[-1000:]
        kubeconfig = json.loads(started.stdout)["kubeconfig"]

        def run(*words, code=0):
            command = [str(binary), f"--kubeconfig={kubeconfig}", f"--cache-dir={home}/cache", *words]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_MAX_S, env={**os.environ, "HOME": str(home)}
            )
            text = done.stdout + done.stderr
            assert done.returncode == code, f"kubectl {' '.join(words)}: exit {done.returncode}\n{text}"
            return text

        yield run
    finally:
        down = [*keplab, "down", "--data", str(data)]
        subprocess.run(down, cwd=ROOT, capture_output=True, timeout=COMMAND_MAX_S)


def until(text_of, pattern, most_s=20.0):
    deadline = time.monotonic() + most_s
    while not re.search(pattern, text := text_of(), re.M):
        assert time.monotonic() < deadline, f"no {pattern!r} in\n{text}"
        time.sleep(0.2)


def test_a_deployment_runs_logs_rolls_drains_and_goes(kubectl):
    kubectl("create", "namespace", "journey")
    kubectl("create", "deployment", "web", "-n", "journey", "--image=nginx:1", "--replicas=2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "-n", "journey", "--timeout=30s")
    assert len(re.findall(r"1/1 +Running", kubectl("get", "pods", "-n", "journey"))) == 2
    assert "started" in kubectl("logs", "deployment/web", "-n", "journey")
    assert "Successfully assigned" in kubectl("events", "-n", "journey")

    kubectl("set", "image", "deployment/web", "-n", "journey", "nginx=nginx:2")
    kubectl("rollout", "status", "deployment/web", "-n", "journey", "--timeout=30s")
    assert re.search(r"^2 ", kubectl("rollout", "history", "deployment/web", "-n", "journey"), re.M)

    kubectl("drain", "node-0", "--timeout=40s")
    until(lambda: kubectl("get", "deployment", "web", "-n", "journey"), r"^web +2/2")
    assert "node-0" not in kubectl(
        "get", "pods", "-n", "journey", "-o", "wide", "--field-selector=status.phase=Running"
    )
    kubectl("uncordon", "node-0")

    kubectl("delete", "namespace", "journey", "--timeout=50s")
    assert "NotFound" in kubectl("get", "namespace", "journey", code=1)


A_STATEFUL_SET = {
    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
    "spec": {
        "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "db:1"}]}},
    },
}  # fmt: skip


def test_a_stateful_set_is_scaled_updated_undone_restarted_and_left_by_itself(kubectl, tmp_path):
    def rolled_out():
        return kubectl("rollout", "status", "statefulset/db", "-n", "names", "--timeout=30s")

    kubectl("create", "namespace", "names")
    (tmp_path / "db.json").write_text(json.dumps(A_STATEFUL_SET))
    kubectl("apply", "-n", "names", "-f", str(tmp_path / "db.json"))
    assert "roll out complete: 2 new pods have been updated" in rolled_out()
    kubectl("scale", "sts/db", "-n", "names", "--replicas=1")
    until(lambda: kubectl("get", "sts", "-n", "names", "-o", "wide"), r"^db +1/1 .* c +db:1$")

    kubectl("set", "image", "statefulset/db", "-n", "names", "c=db:2")
    rolled_out()
    history = kubectl("rollout", "history", "statefulset/db", "-n", "names")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    assert "db:1" in kubectl("rollout", "history", "statefulset/db", "-n", "names", "--revision=1")
    assert "rolled back" in kubectl("rollout", "undo", "statefulset/db", "-n", "names")
    rolled_out()
    assert "db:1" in kubectl("get", "pod", "db-0", "-n", "names", "-o", "jsonpath={.spec.containers[0].image}")
    kubectl("rollout", "restart", "statefulset/db", "-n", "names")
    rolled_out()
    assert "restartedAt" in kubectl("get", "pod", "db-0", "-n", "names", "-o", "yaml")
    revisions = kubectl("get", "controllerrevisions", "-n", "names")
    assert sorted(re.findall(r"^db-\w+ +statefulset.apps/db +(\d+) ", revisions, re.M)) == ["2", "3", "4"]

    kubectl("delete", "statefulset", "db", "-n", "names", "--cascade=orphan")
    assert "db-0" in kubectl("get", "pods", "-n", "names")
    kubectl("delete", "namespace", "names", "--timeout=30s")


def test_the_manifests_of_a_mesh_in_a_cluster_are_applied_to_a_mesh(kubectl, tmp_path):
    folder = tmp_path / "kubernetes"
    shutil.copytree(ROOT / "deploy" / "kubernetes", folder, ignore=shutil.ignore_patterns("credentials"))
    made = ["services.runtime.credentials", "--out", str(folder / "credentials"), "--host", "cluster"]
    made += ["--node-prefix", "kubelet-", "--server-name", "apiserver", "--rest-url", "https://127.0.0.1:7080"]
    subprocess.run([sys.executable, "-m", *made], cwd=ROOT, check=True, timeout=COMMAND_MAX_S)

    assert "Warning" not in kubectl("apply", "-k", str(folder))
    for name in ("statefulset/etcd", "deployment/apiserver", "statefulset/kubelet", "deployment/claim-controller"):
        kubectl("rollout", "status", name, "-n", "keplab", "--timeout=50s")
    pods = json.loads(kubectl("get", "pods", "-n", "keplab", "-o", "json"))["items"]
    assert len(pods) == 3 + 2 + 2 + 2 + 2 + 3
    assert all(each["ready"] for pod in pods for each in pod["status"]["containerStatuses"])
    assert "unchanged" in kubectl("apply", "-k", str(folder))
    assert "created" not in kubectl("apply", "-k", str(folder))
    kubectl("delete", "-k", str(folder), "--timeout=50s", "--wait=true")
