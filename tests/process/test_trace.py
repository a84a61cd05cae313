"""`keplab trace` reads the span files of a real mesh: one pod, one trace, from REST to Running."""

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

WAIT_MAX_S = 60.0
ROOT = Path(__file__).resolve().parents[2]
KEPLAB = [sys.executable, "-m", "lab.cli"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
POD_SPEC = {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "100m"}}}]}
LOG_RESOLUTION_MS = 50.0
"""A span begins before its request's body is read, and ends after its commit is logged."""


def keplab(*arguments):
    return subprocess.run([*KEPLAB, *arguments], capture_output=True, text=True, env=ENVIRON, timeout=120)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """A mesh of processes on free ports, taken down at the end."""
    data = tmp_path_factory.mktemp("mesh") / "m"
    began = keplab("up", "--data", str(data), "--engine", "memory", "--nodes", "2", "--detach", "-o", "json")
    assert 0 == began.returncode, began.stderr
    yield data
    keplab("down", "--data", str(data))


def call(data, method, path, document=None):
    config = yaml.safe_load((data / "kubeconfig").read_text())
    url = config["clusters"][0]["cluster"]["server"]
    trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    request = urllib.request.Request(
        url + path,
        method=method,
        data=json.dumps(document).encode() if document is not None else None,
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10, context=ssl.create_default_context(cadata=trusted)) as answer:
        return json.load(answer)


def wait_for(condition, what):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.1)
    return found


def traced(data, target, *arguments, begins="Create"):
    """Return the trace document once all processes wrote their spans, from a span so called to Running."""

    def look():
        shown = keplab("trace", target, "--data", str(data), "-o", "json", *arguments)
        found = json.loads(shown.stdout) if shown.returncode == 0 else {}
        is_whole = found.get("is_running") and found["is_connected"] and begins in found["critical_path"][0]["what"]
        return found if is_whole else None

    return wait_for(look, f"a trace of {target} to Running")


def lines_of_api_server(data):
    files = sorted((data / "events").glob("apiserver-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_pod_posted_over_rest_is_one_trace_whose_sum_the_api_server_confirms(mesh, tmp_path):
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hello"}, "spec": POD_SPEC}
    pod = call(mesh, "POST", "/api/v1/namespaces/default/pods", document)

    trace = traced(
        mesh, "pod/hello", "--svg", str(tmp_path / "hello.svg"), "--html", str(tmp_path / "hello.html"), begins="POST"
    )

    spans = {span["span_id"]: span for span in trace["spans"]}
    (last,) = [s for s in spans.values() if s["attributes"].get("k8s.pod.status.phase") == "Running"]
    chain = []
    while last is not None:
        chain.append((last["service"], last["name"]))
        last = spans.get(last["parent"])
    assert [
        ("apiserver", "POST /api/v1/namespaces/{namespace}/pods"),
        ("apiserver", "mesh.v1.ApiServer/Create"),
        ("scheduler", "schedule pod"),
        ("scheduler", "bind pod"),
        ("apiserver", "mesh.v1.ApiServer/Bind"),
        ("kubelet", "sync pod"),
        ("apiserver", "mesh.v1.ApiServer/Patch"),
    ] == chain[::-1]
    assert {trace["trace_id"]} == {span["trace_id"] for span in spans.values()}
    assert pod["metadata"]["uid"] == trace["pod"]["uid"]
    assert trace["total_ms"] == pytest.approx(sum(piece["ms"] for piece in trace["critical_path"]), abs=1e-6)
    assert all(piece["ms"] > 0 for piece in trace["critical_path"])
    lines = [line for line in lines_of_api_server(mesh) if line["trace_id"] == trace["trace_id"]]
    came = next(line["mono_ns"] for line in lines if line["ev"] == "api.request" and line["data"]["verb"] == "create")
    ran = next(
        line["mono_ns"] for line in lines if line["ev"] == "store.commit" and line["data"].get("phase") == "Running"
    )
    assert trace["total_ms"] == pytest.approx((ran - came) / 1e6, abs=LOG_RESOLUTION_MS)
    assert "svg" in ElementTree.parse(tmp_path / "hello.svg").getroot().tag
    assert "Running after" in (tmp_path / "hello.html").read_text()


def test_a_replicasets_pod_is_shown_below_the_reconcile_that_created_it(mesh):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    call(
        mesh, "POST", "/apis/apps/v1/namespaces/default/replicasets",
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec},
    )  # fmt: skip

    trace = traced(mesh, "pod/web-*")

    spans = {span["span_id"]: span for span in trace["spans"]}
    (create,) = [
        s for s in spans.values() if s["name"].endswith("/Create") and s["attributes"].get("keplab.resource") == "pods"
    ]
    assert "reconcile replicaset" == spans[create["parent"]]["name"]
    assert "apiserver: mesh.v1.ApiServer/Create" == trace["critical_path"][0]["what"]
    assert 1 == len({s["attributes"]["k8s.pod.uid"] for s in spans.values() if "k8s.pod.uid" in s["attributes"]})


def test_without_colour_or_pod_the_text_is_plain_and_the_refusal_one_line(mesh):
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": POD_SPEC}
    call(mesh, "POST", "/api/v1/namespaces/default/pods", document)
    traced(mesh, "pod/plain", begins="POST")

    shown = keplab("trace", "pod/plain", "--data", str(mesh))
    missing = keplab("trace", "pod/absent", "--data", str(mesh))
    wrong = keplab("trace", "node/n1", "--data", str(mesh))

    assert "\x1b" not in shown.stdout
    assert "to Running" in shown.stdout
    assert shown.stdout.splitlines()[-1].split()[0] == "total"
    assert (1, 1) == (missing.returncode, len(missing.stderr.splitlines()))
    assert (2, 1) == (wrong.returncode, len(wrong.stderr.splitlines()))
