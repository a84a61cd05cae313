"""`keplab get --at`, `history`, `diff` and `fork` against a mesh of processes, while it runs and when it is down."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from lab.cli.mesh_state import transport_of
from lab.recordings.format import Meta
from lab.recordings.live import record_mesh
from lab.recordings.reader import Recording
from lab.recordings.writer import Writer
from services.runtime.mesh_directory import read_state
from services.runtime.real import RealClock, seeded_random

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
POD = {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "100m"}}}]}


def keplab(*arguments, code=0):
    command = [sys.executable, "-m", "lab.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def document(*arguments):
    return json.loads(keplab(*arguments, "-o", "json").stdout)


@pytest.fixture(scope="module", params=["none", "strict"])
def mesh(request, tmp_path_factory):
    """A mesh with a pod that runs; it is taken down at the end."""
    data = tmp_path_factory.mktemp("mesh") / "m"
    security = () if request.param == "none" else ("--security", "strict")
    keplab("up", "--data", data, "--nodes", "2", "--set", "unbind.api=condition", *security, "--detach")
    scenario = data / "make.json"
    scenario.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD}))
    made = create(data, scenario.read_bytes())
    uid = made["metadata"]["uid"]
    while document("get", "pod/p", "--data", data)["status"].get("phase") != "Running":
        pass
    yield data, uid
    keplab("down", "--data", data)


def create(data, body, resource="pods"):
    """POST an object with the kubeconfig of the mesh."""
    config = yaml.safe_load((data / "kubeconfig").read_bytes())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    url = f"{cluster['server']}/api/v1/namespaces/default/{resource}"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), context=trust) as answer:
        return json.loads(answer.read())


def test_the_past_of_a_running_mesh_is_read_compared_and_forked_from(mesh, tmp_path):
    data, uid = mesh
    at = ("--data", data)
    changes = document("history", "pod/p", *at)["items"]
    bound = next(each for each in changes if each["subresource"] == "binding")
    first, last = changes[0]["resourceVersion"], changes[-1]["resourceVersion"]
    assert (changes[0]["user"], changes[0]["verb"]) == ("system:mesh-admin", "create")
    assert bound["user"] == "system:kube-scheduler"
    assert "spec.nodeName" in [field["path"] for field in bound["changed"]]

    then = document("get", "po", "p", "--at", first, *at)
    assert ("nodeName" in then["spec"], then["metadata"]["uid"]) == (False, uid)
    assert "p      0/1     Pending" in keplab("get", "pods", "--at", first, *at).stdout

    found = document("diff", first, last, *at)["objects"]
    pod = next(each for each in found if each["resource"] == "pods")
    assert (pod["change"], pod["name"]) == ("MODIFIED", "p")
    assert {"path": "spec.nodeName", "to": bound["object"]["spec"]["nodeName"]} in pod["fields"]

    early = document("fork", "--from", data, "--at", first, "-e", "expect within 30s count pods phase=Running == 1")
    late = document("fork", "--from", data, "--for", "5s")
    assert early["passed"]
    assert [(each["name"], each["uid"], each["from"]) for each in early["pods"]] == [("p", uid, "Pending")]
    assert late["passed"]
    assert late["pods"] == []
    assert "unbind.api=condition" in late["switches"]

    saved = tmp_path / "s.json.gz"
    keplab("fork", "--from", data, "--at", first, "--save", saved)
    again = document("fork", "--from", saved, "-e", "expect within 30s count pods phase=Running == 1")
    assert again["digest"] == early["digest"]


def test_a_mesh_that_runs_is_recorded_from_its_window_of_changes_on(mesh, tmp_path):
    data, uid = mesh
    path = tmp_path / "m.keprec"
    planted = "planted-in-a-secret"
    create(data, json.dumps({"metadata": {"name": "before"}, "stringData": {"password": planted}}).encode(), "secrets")
    reached = asyncio.run(recorded(data, path))

    server, record = (
        {each["metadata"]["name"]: (each["metadata"]["resourceVersion"], each["spec"]["nodeName"]) for each in found}
        for source in (("--data", data), ("--recording", path))
        for found in (document("get", "pods", "-A", "--at", reached, *source)["items"],)
    )
    assert (server.keys(), record) == ({"p", "while"}, server)
    first = document("history", "pod/p", "--recording", path)["items"][0]
    assert (first["user"], first["verb"], first["object"]["metadata"]["uid"]) == ("system:mesh-admin", "create", uid)
    secret = document("get", "secret/before", "--recording", path)
    assert secret["data"] == {"password": f"••• {len(planted)} bytes"}
    assert "sched.attempt" in keplab("events", "--recording", path, "--for", "pod/while").stdout
    assert document("trace", "pod/while", "--recording", path)["spans"]
    explained = document("explain", "pod/while", "--recording", path)
    assert (explained["outcome"], "scores" in explained["left_out"][-1]) == ("scheduled", True)


async def recorded(data, path):
    """Record the mesh while a pod is made and runs; return the version that was reached then."""
    transport, flushed = transport_of(data, read_state(data)), asyncio.Event()
    writer = Writer(path, Meta(title="a mesh"))
    own = {"clock": RealClock(), "random": seeded_random(1), "on_flush": lambda _: flushed.set()}
    following = record_mesh(writer, transport.api(), events=data / "events", spans=data / "spans", **own)
    recording = asyncio.create_task(following)
    try:
        async with asyncio.timeout(60):
            await flushed.wait()
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "while"}, "spec": POD}
            await asyncio.to_thread(create, data, json.dumps(pod).encode())
            while not (reached := runs_at(path, "while")):
                flushed.clear()
                await flushed.wait()
            return reached
    finally:
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)
        writer.close(Meta(title="a mesh", ended="now"))
        await transport.close()


def runs_at(path, name):
    """Return the version at which the pod runs, 0 until that and its spans are recorded."""
    with Recording.open(path) as recording:
        if not any(name in str(span.attributes) for span in recording.spans()):
            return 0
        for version in recording.versions_of("pods", "default", name):
            body = recording.body(version.sha)
            if body is not None and json.loads(body)["status"].get("phase") == "Running":
                return version.rv
    return 0


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("get", "nosuch"), "does not have a resource type 'nosuch'", 2),
        (("get", "pods", "--at", "x"), "must be a decimal number", 1),
        (("get", "pods", "--at", "99999"), "Too large resource version: 99999", 1),
        (("get", "pod/a/b"), "want KIND, KIND NAME or KIND/NAME", 2),
        (("get", "pod/a", "-A"), "a name excludes --all-namespaces", 2),
        (("history", "pods"), "want KIND/NAME", 2),
        (("history", "pod/zzz"), 'pods "zzz" not found', 1),
        (("diff", "1", "zzz"), "is a resource version and 'zzz' is not", 2),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(mesh, arguments, said, code):
    refused = keplab(*arguments, "--data", mesh[0], code=code)

    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--at", "99999"), "Too large resource version"),
        (("-e", "bogus"), "no verb 'bogus'"),
        (("--for", "x"), "--for"),
        (("x.txt", "-e", "wait 1s"), "want one of them"),
        (("--set", "no.such=1"), "no.such"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_in_one_line(mesh, arguments, said):
    refused = keplab("fork", "--from", mesh[0], *arguments, code=2)

    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_mesh_that_is_down_is_forked_from_as_well(tmp_path):
    data = tmp_path / "m"
    keplab("up", "--data", data, "--nodes", "1", "--set", "unbind.api=condition", "--detach")
    keplab("down", "--data", data)

    found = document("fork", "--from", data, "--for", "5s")

    assert found["passed"]
    assert "unbind.api=condition" in found["switches"]
    refused = keplab("fork", "--from", data, "--at", "99999", code=2)
    assert "version 99999 was not reached" in refused.stderr
    assert "no mesh runs on" in keplab("fork", "--from", tmp_path / "none", code=1).stderr
