"""`keplab ui` at a mesh of processes: what it shows, what it refuses, what it changes and breaks (checks 1, 2, 3, 9, 14, 16, 18, 23)."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from lab.recordings import frames
from services.runtime.mesh.options import MeshOptions
from services.runtime.supervisor import Supervisor
from tests.process.page_server import ROOT, PageServer

PLANTED = "planted-secret-value-7141"
GONE = "1.5"
"""Seconds that the API server's window of changes is long here."""
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    data = tmp_path_factory.mktemp("mesh")
    options = MeshOptions(
        data_dir=data, nodes=2, hosts=2, serves_clients=True, has_faults=True, engine="memory",
        arguments={"apiserver": ["--cluster-objects", "--window-s", GONE, "--window-changes", "0"]},
    )  # fmt: skip
    supervisor, loop = Supervisor(options), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(supervisor.start(), loop).result(90)
    try:
        yield SimpleNamespace(data=data, supervisor=supervisor)
    finally:
        asyncio.run_coroutine_threadsafe(supervisor.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def page(mesh, tmp_path_factory):
    """A page that may do everything."""
    with PageServer("--data", mesh.data, "--allow-write", "--allow-break", cwd=tmp_path_factory.mktemp("cwd")) as found:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"stringData": {"password": PLANTED}})}}, "stringData": {"password": PLANTED}}  # fmt: skip
        applied = found.ask("POST", "apply", {"yaml": json.dumps(secret) + "\n---\n" + json.dumps(DEPLOYMENT)}).json
        assert 2 == applied["applied"], applied
        found.eventually(
            "objects/pods?ns=default", lambda rows: [row for row in rows["rows"] if "Running" in row["cells"]]
        )
        yield found


@pytest.fixture(scope="module")
def reader(mesh, tmp_path_factory):
    """A page as it is without flags."""
    with PageServer("--data", mesh.data, "--recording", "none", cwd=tmp_path_factory.mktemp("cwd")) as found:
        yield found


def status(mesh):
    words = [sys.executable, "-m", "lab.cli", "status", "--data", str(mesh.data), "-o", "json"]
    return json.loads(
        subprocess.run(words, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}).stdout
    )


def process(found, name):
    return next(each for each in found["processes"] if each["name"] == name)


def test_1_the_page_shows_every_process_of_keplab_status_ready(mesh, page):
    expected = status(mesh)["processes"]

    found = page.get("mesh")["processes"]
    assert [(each["name"], each["pid"], True) for each in expected] == [
        (each["name"], each["pid"], each["ready"]) for each in found
    ]
    links = page.eventually(
        "mesh", lambda mesh: all(link["p50_ms"] is not None for link in mesh["links"] if "kubelet" in link["from"])
    )["links"]
    assert {each["name"] for each in expected} - {"apiserver"} == {link["from"] for link in links}


def test_the_frames_of_the_socket_are_the_state(page):
    seen, mirror = page.watch(lambda frame, _: frame.kind == frames.RATES)

    assert [frames.DICT, frames.NODES, frames.PODS] == [frame.kind for frame in seen[:3]]
    names = [mirror.strings[number] for number in mirror.tables["nodes"]["name"]]
    assert ["node-0", "node-1"] == sorted(names)
    state, other = page.ask("GET", "state").body, frames.Mirror()
    while state:
        length = int.from_bytes(state[:4], "little")
        other.take(state[4 : 4 + length])
        state = state[4 + length :]
    assert sorted(mirror.strings) == sorted(other.strings)


def test_a_line_and_a_row_of_what_happens_reach_the_socket(page):
    name = f"p-{os.getpid()}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    began = []

    def until(frame, mirror):
        if not began:
            began.append(page.ask("POST", "apply", {"yaml": json.dumps(pod)}).json)
        is_line = frame.kind == frames.LINES and any(
            (line["obj"] or {}).get("name") == name for line in frame.header["lines"]
        )
        seen.add("line" if is_line else "")
        running = [
            mirror.strings[row]
            for row, phase in zip(mirror.tables["pods"]["name"], mirror.tables["pods"]["phase"], strict=True)
            if phase == 1
        ]
        seen.add("row" if name in running else "")
        return {"line", "row"} <= seen

    seen = set()
    page.watch(until)
    assert 1 == began[0]["applied"]


def test_2_a_killed_scheduler_is_noticed_and_comes_back(mesh, page):
    before = process(page.get("mesh"), "scheduler")

    answer = page.ask("POST", "break", {"target": "scheduler", "action": "kill"})
    assert (200, ["scheduler killed"]) == (answer.code, answer.json["done"])
    found = page.eventually(
        "mesh", lambda mesh: mesh["alarms"]["faults"] and mesh["alarms"]["faults"][-1]["healed_s"] is not None
    )
    after, fault = process(found, "scheduler"), found["alarms"]["faults"][-1]
    assert (before["restarts"] + 1, True) == (after["restarts"], after["pid"] != before["pid"])
    assert fault["noticed_s"] <= fault["healed_s"]
    assert 0 == fault["writes_lost"]
    events = [
        json.loads(line)
        for path in (mesh.data / "events").glob("*.jsonl")
        for line in path.read_text().splitlines()
        if '"ui.command"' in line or '"fault.inject"' in line
    ]
    assert {("ui", "kill"), ("supervisor", "kill")} <= {
        (each["comp"], each["data"].get("command") or each["data"]["what"]) for each in events
    }


def test_3_a_pause_is_healed_early_and_a_cut_link_says_so(mesh, page):
    pid = process(page.get("mesh"), "kubelet/h0")["pid"]
    page.ask("POST", "break", {"target": "kubelet/h0", "action": "pause", "for_s": 600})
    found = process(page.get("mesh"), "kubelet/h0")
    assert ("Stopped", "pause") == (found["state"], found["fault"]["action"])
    assert 590 < found["fault"]["left_s"] <= 600

    assert ["kubelet/h0 pause healed"] == page.ask("POST", "break", {"target": "kubelet/h0", "action": "heal"}).json[
        "done"
    ]
    found = page.eventually("mesh", lambda mesh: process(mesh, "kubelet/h0")["state"] == "Running")
    assert (pid, None) == (process(found, "kubelet/h0")["pid"], process(found, "kubelet/h0")["fault"])

    page.ask("POST", "break", {"target": "kubelet/h1", "action": "cut", "way": "both"})
    link = next(link for link in page.get("mesh")["links"] if link["from"] == "kubelet/h1")
    assert ("cut", "both") == (link["fault"]["action"], link["fault"]["way"])
    assert {"cut": "both"} == json.loads((mesh.data / "run" / "kubelet_h1.faults").read_text())["links"][""]
    page.ask("POST", "break", {"action": "heal"})
    assert [] == page.get("mesh")["faults"]


def test_a_process_that_dies_while_it_is_stopped_is_not_paused_any_more(mesh, page):
    page.ask("POST", "break", {"target": "claim-controller", "action": "pause", "for_s": 600})
    stopped = process(page.get("mesh"), "claim-controller")["pid"]
    os.kill(stopped, signal.SIGKILL)

    found = page.eventually(
        "mesh", lambda mesh: not mesh["faults"] and process(mesh, "claim-controller")["state"] == "Running"
    )
    assert stopped != process(found, "claim-controller")["pid"]


@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        (b"{", 400, "body: "),
        ({"action": "kill"}, 400, "target: want the name of a process to kill"),
        ({"action": "kill", "target": "x"}, 400, "no process is called x; there are apiserver, scheduler"),
        ({"action": "melt", "target": "scheduler"}, 400, "body: Invalid enum value 'melt'"),
        ({"action": "cut", "target": "scheduler", "way": "up"}, 400, "way: want requests, replies, both, not 'up'"),
        ({"action": "cut", "target": "apiserver"}, 400, "target: apiserver has no link"),
        ({"action": "pause", "target": "scheduler", "for_s": -1}, 400, "for_s: want 0 to 3600 seconds, not -1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_by_its_field(page, body, code, why):
    answer = page.ask("POST", "break", body)
    assert code == answer.code
    assert why in answer.json["message"]


def test_without_flags_nothing_is_changed_or_broken(reader):
    for method, path, flag in (
        ("POST", "break", "--allow-break"),
        ("POST", "apply", "--allow-write"),
        ("PUT", "objects/deployments/default/web", "--allow-write"),
        ("DELETE", "objects/deployments/default/web", "--allow-write"),
    ):
        answer = reader.ask(method, path, b"{}")
        assert 403 == answer.code
        assert flag in answer.json["message"]
    assert {"write": False, "break": False} == reader.get("meta")["flags"]


def test_9_what_is_older_than_the_window_says_so_and_nothing_is_blank(mesh, reader, page):
    """The mesh ran for longer than its window before the page began."""
    found = page.eventually("objects/nodes/-/node-0/versions", lambda found: found["items"][0]["type"] == "ADDED")[
        "items"
    ]

    assert not found[0]["recorded"]
    assert "system:node:node-0" == found[0]["writer"]
    rows = page.get(f"objects/nodes?rv={found[0]['rv']}")
    assert not rows["recorded"]
    assert all(cell != "" for row in rows["rows"] for cell in row["cells"])
    assert "body not recorded" in {cell for row in rows["rows"] for cell in row["cells"]}
    answer = page.ask("GET", f"objects/nodes/-/node-0?rv={found[0]['rv']}")
    assert (410, True) == (answer.code, answer.json["message"].startswith("body not recorded"))
    assert found[-1]["recorded"]


def test_14_an_edit_is_tried_applied_and_seen_and_a_stale_one_shows_both_sides(page):
    stale = page.get("objects/deployments/default/web")
    edited = {**stale, "spec": {**stale["spec"], "replicas": 2}}

    tried = page.ask("PUT", "objects/deployments/default/web?dryRun=All", edited).json
    assert (2, stale["metadata"]["resourceVersion"]) == (
        tried["spec"]["replicas"],
        page.get("objects/deployments/default/web")["metadata"]["resourceVersion"],
    )
    assert 2 == page.ask("PUT", "objects/deployments/default/web", edited).json["spec"]["replicas"]
    page.eventually("objects/pods?ns=default&q=web", lambda rows: 2 == len(rows["rows"]))

    answer = page.ask("PUT", "objects/deployments/default/web", {**stale, "spec": {**stale["spec"], "replicas": 3}})
    details = answer.json["details"]
    assert (409, 2, 3) == (answer.code, details["theirs"]["spec"]["replicas"], details["yours"]["spec"]["replicas"])
    newest = page.get("objects/deployments/default/web/versions")["items"][-1]
    assert "system:mesh-admin" in {
        each["writer"] for each in page.get("objects/deployments/default/web/versions")["items"]
    }
    assert newest["rv"] > int(stale["metadata"]["resourceVersion"])


def test_an_apply_says_of_each_document_what_became_of_it(page):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Nope\nmetadata: {name: b}\n---\nkind: Pod\n"
    answer = page.ask("POST", "apply?dryRun=All", text.encode())

    assert (200, 0 + 1) == (answer.code, answer.json["applied"])
    assert ["", 'no matches for kind "Nope" in version "v1"', "want an object with apiVersion and kind"] == [
        each.get("status", {}).get("message", "") for each in answer.json["items"]
    ]


def test_16_values_of_secrets_are_in_no_answer_frame_or_recording(mesh, page):
    answers = [
        page.ask("GET", path).text
        for path in (
            "objects/secrets",
            "objects/secrets?q=password",
            "objects/secrets/default/s",
            "objects/secrets/default/s?as=yaml",
            "objects/secrets/default/s/versions",
            "mesh",
            "queue",
        )
    ]
    seen, _ = page.watch(lambda frame, _: frame.kind == frames.RATES)

    assert f"••• {len(PLANTED)} bytes" in json.loads(answers[2])["data"].values()
    written = [path.read_bytes() for path in (mesh.data / "ui.keprec").iterdir()]
    import zlib

    unpacked = [zlib.decompressobj(31).decompress(data) for data in written if data[:2] == b"\x1f\x8b"]
    everything = b"".join(
        (*(text.encode() for text in answers), *(repr(frame).encode() for frame in seen), *written, *unpacked)
    )
    for text in (PLANTED.encode(), base64.b64encode(PLANTED.encode())):
        assert text not in everything
    with_them = page.get("objects/secrets/default/s")
    assert 400 == page.ask("PUT", "objects/secrets/default/s", with_them).code, (
        "what stands for a value would be stored"
    )


def test_18_who_may_not_ask_is_refused(page):
    origin = {"Origin": "http://evil.example"}
    assert 401 == page.ask("GET", "mesh", Cookie="").code
    assert 401 == page.ask("GET", "mesh", Cookie="keplab-ui=wrong").code
    assert 421 == page.ask("GET", "mesh", Host="evil.example").code
    assert 421 == page.ask("GET", f"{page.base}/ui/", Host=f"evil.example:{page.port}").code
    assert 403 == page.ask("GET", "mesh", **origin).code
    assert 403 == page.ask("POST", "apply", b"a: 1", **origin).code
    assert 403 == page.ask("POST", "apply", b"a: 1", X_Keplab_CSRF="wrong").code
    assert 403 == page.ask("POST", "session", {"token": page.token}, **origin).code
    assert 401 == page.ask("POST", "session", {"token": "wrong"}).code
    assert "HttpOnly; Path=/ui; SameSite=Strict" in page.set_cookie
    for headers, code in ((origin, 403), ({"Cookie": ""}, 401), ({"Host": "evil.example"}, 421)):
        with pytest.raises(Exception, match=str(code)):
            page.watch(lambda *_: True, headers=headers)


def test_every_answer_has_the_headers_of_the_design(page):
    for path in ("mesh", "nope", f"{page.base}/ui/", f"{page.base}/ui/js/none.js"):
        headers = page.ask("GET", path).headers
        assert "nosniff" == headers["X-Content-Type-Options"]
        assert "no-store" == headers["Cache-Control"]
        assert "no-referrer" == headers["Referrer-Policy"]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["Content-Security-Policy"].endswith("require-trusted-types-for 'script'; trusted-types keplab")


def test_the_page_reads_in_a_name_of_its_own_and_that_may_change_nothing(mesh, page):
    tokens = json.loads((mesh.data / "credentials" / "ui.json").read_text())
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).encode()
    import ssl
    import urllib.error
    import urllib.request

    url = f"{mesh.supervisor.rest_url}/api/v1/namespaces/default/configmaps"
    headers = {"Authorization": f"Bearer {tokens['keplab:ui']}", "Content-Type": "application/json"}
    trust = ssl.create_default_context(cafile=str(mesh.supervisor.authority))
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), context=trust)
    assert 403 == refusal.value.code
    opened = [
        json.loads(line)
        for path in (mesh.data / "events").glob("apiserver*.jsonl")
        for line in path.read_text().splitlines()
        if '"keplab:ui"' in line and '"watch.open"' in line
    ]
    kinds = [line["data"].get("resource") for line in opened]
    assert set(kinds) >= {"pods", "nodes", "deployments.apps"}


def test_a_traces_pieces_add_up_to_its_total(page):
    name = page.get("objects/pods?ns=default&q=web")["rows"][0]["name"]
    # Spans reach their files half a second after their ends: the trace is whole when the pod runs in it.
    found = page.eventually(f"trace/default/{name}", lambda found: found.get("pieces"))

    assert round(1e6 * found["total_ms"]) == sum(piece["end_ns"] - piece["start_ns"] for piece in found["pieces"])
    assert 404 == page.ask("GET", "trace/default/none").code


def test_the_queue_and_the_explanation_are_those_of_the_commands(mesh, page):
    name = page.get("objects/pods?ns=default&q=web")["rows"][0]["name"]
    words = [sys.executable, "-m", "lab.cli", "explain", f"pod/{name}", "--data", str(mesh.data), "-o", "json"]
    expected = json.loads(
        subprocess.run(words, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}).stdout
    )

    found = page.get(f"explain/default/{name}")
    assert {key: expected[key] for key in ("pod", "node", "final", "scores", "would_fit_if")} == {
        key: found[key] for key in ("pod", "node", "final", "scores", "would_fit_if")
    }
    assert {"gated", "active", "in_flight", "backoff", "error_backoff", "unschedulable"} == set(
        page.get("queue")["counts"]
    )
    past = page.get(f"explain/default/{name}?rv={page.get('meta')['runs'][0]['to_rv']}")
    assert found["node"] == past["node"]
    assert "would_fit_if" not in past


def test_event_lines_come_as_server_sent_events(page):
    answer = urllib_open(page, "events")
    lines = [answer.readline() for _ in range(2)]
    answer.close()

    assert lines[0].startswith(b"id: 20")
    assert "ev" in json.loads(lines[1].removeprefix(b"data: "))


def urllib_open(page, path):
    import urllib.request

    return urllib.request.urlopen(
        urllib.request.Request(f"{page.base}/ui/v1/{path}", headers={"Cookie": page.cookie}), timeout=20
    )


def test_25_beside_containers_a_fault_is_a_line_to_copy(mesh, tmp_path, monkeypatch):
    """As the service of compose.yaml is started, with what the folder of credentials has."""
    folder = tmp_path / "ui"
    folder.mkdir()
    (folder / "token.json").write_bytes((mesh.data / "credentials" / "ui.json").read_bytes())
    (folder / "ca.crt").write_bytes(mesh.supervisor.authority.read_bytes())
    monkeypatch.setenv("KEPLAB_UI_REST_URL", mesh.supervisor.rest_url)
    words = ("--server", mesh.supervisor.grpc_target, "--credentials", folder, "--allow-break")
    with PageServer(*words, "--events", mesh.data / "events", "--spans", mesh.data / "spans", cwd=tmp_path) as page:
        answer = page.ask("POST", "break", {"target": "scheduler", "action": "kill"})
        assert (409, "docker compose kill scheduler") == (answer.code, answer.json["details"]["command"])
        page.eventually("objects/nodes", lambda rows: 2 == len(rows["rows"]))
        lines = page.watch(lambda frame, _: frame.kind == frames.LINES)[0][-1].header["lines"]
        assert lines


def test_23_a_server_that_comes_back_sends_no_line_twice(mesh, tmp_path):
    """The page comes back with the time of the last line it has."""
    token = tmp_path / "token"
    token.write_text("t" * 64)
    token.chmod(0o600)
    words = ("--data", mesh.data, "--recording", "none", "--token-file", token)
    lines = []

    def until(frame, _):
        if frame.kind == frames.LINES:
            lines.extend(frame.header["lines"])
        return bool(lines) and frame.kind == frames.RATES

    with PageServer(*words, cwd=tmp_path) as first:
        assert first.address.endswith(f"/ui/#t=… (the text of {token})")
        port = first.port
        first.watch(until)
    with PageServer(*words, cwd=tmp_path, port=port) as second:
        assert port == second.port
        second.watch(until, {"t": "sub", "run": "live", "since": max(line["wall"] for line in lines)})
    seen = [(line["comp"], line["inc"], line["seq"]) for line in lines]
    assert len(seen) == len(set(seen))
