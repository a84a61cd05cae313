"""The live page as a service of compose.yaml: it answers on loopback, and says what to type where it cannot do it itself (check 25)."""

import json
import urllib.error
import urllib.request

import pytest
from mesh_in_containers import free_port, wait_for

pytestmark = pytest.mark.timeout(900)


def ask(base, path, cookie="", body=None, csrf=""):
    headers = {"Cookie": cookie, "X-Keplab-CSRF": csrf, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{base}/ui/v1/{path}", data, headers), timeout=20) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_25_the_page_answers_on_loopback_and_break_shows_the_command_to_copy(mesh):
    port = free_port()
    mesh.environ |= {"KEPLAB_UI_PORT": str(port)}
    mesh.compose("up", "-d", "--no-deps", "ui")
    base = f"http://127.0.0.1:{port}"
    wait_for(lambda: 200 == urllib.request.urlopen(f"{base}/ui/", timeout=5).status, "the page answers")
    token = mesh.compose("exec", "-T", "ui", "cat", "/credentials/ui/page.token").strip()

    assert 401 == ask(base, "mesh")[0]
    code, headers, _ = ask(base, "session", body={"token": token})
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert 204 == code
    names = {each["name"] for each in json.loads(ask(base, "mesh", cookie)[2])["processes"]}
    assert {"apiserver", "scheduler", "controllers", "claim-controller"} <= names
    assert json.loads(ask(base, "objects/nodes", cookie)[2])["rows"]
    csrf = json.loads(ask(base, "meta", cookie)[2])["csrf"]
    code, _, body = ask(base, "break", cookie, {"target": "scheduler", "action": "kill"}, csrf)
    assert (409, "docker compose kill scheduler") == (code, json.loads(body)["details"]["command"])
