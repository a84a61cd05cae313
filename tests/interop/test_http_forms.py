"""What HTTP clients rely on beyond kubectl's commands, against a real process: versions, watches, ends."""

import contextlib
import json
import signal
import threading

import pytest
from conftest import Mesh


@contextlib.contextmanager
def a_stream(mesh, path, accept="application/json"):
    """Open a watch; yields an iterator of decoded lines."""
    connection = mesh.connection()
    headers = {"Authorization": f"Bearer {mesh.token('system:mesh-admin')}", "Accept": accept}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    try:
        yield (json.loads(line) for line in answer)
    finally:
        connection.close()


def a_config_map(mesh, namespace, name, **data):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return mesh.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)[1]


def refused(mesh, path, method="GET", body=None, **options):
    code, status = mesh.call(method, path, body, ok=False, **options)
    assert status["kind"] == "Status"
    assert status["code"] == code
    return code, status["reason"]


def test_guarantees_w12_initial_events_end_with_one_annotated_bookmark(mesh, namespace):
    made = [a_config_map(mesh, namespace, name) for name in ("a", "b")]
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3"

    with a_stream(mesh, f"/api/v1/namespaces/{namespace}/configmaps?{query}") as lines:
        first, second, mark = (next(lines) for _ in range(3))
        a_config_map(mesh, namespace, "c")
        change = next(lines)

    assert [e["object"]["metadata"]["name"] for e in (first, second)] == ["a", "b"]
    assert [e["object"]["kind"] for e in (first, mark)] == ["ConfigMap", "ConfigMap"]
    assert (mark["type"], mark["object"]["metadata"]["annotations"]) == (
        "BOOKMARK", {"k8s.io/initial-events-end": "true"},
    )  # fmt: skip
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(made[-1]["metadata"]["resourceVersion"])
    assert (change["type"], change["object"]["metadata"]["name"]) == ("ADDED", "c")


def test_a_watch_ends_cleanly_at_its_timeout(mesh, namespace):
    with a_stream(mesh, f"/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=1") as lines:
        assert [e["type"] for e in lines] in ([], ["BOOKMARK"])


def test_guarantees_w11_a_version_that_is_too_old_is_one_error_event(mesh, namespace):
    with a_stream(mesh, f"/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion=1") as lines:
        [event] = list(lines)

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_guarantees_2_1_versions_that_cannot_be_are_refused(mesh, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    future = str(int(mesh.call("GET", path)[1]["metadata"]["resourceVersion"]) + 1_000_000)

    assert refused(mesh, f"{path}?resourceVersion=x") == (400, "BadRequest")
    assert refused(mesh, f"{path}?resourceVersion=0&resourceVersionMatch=Exact") == (422, "Invalid")
    assert refused(mesh, f"{path}?resourceVersion=1&resourceVersionMatch=Exact")[0] == 410
    assert refused(mesh, f"{path}?resourceVersion={future}&resourceVersionMatch=NotOlderThan") == (504, "Timeout")
    assert refused(mesh, f"{path}?continue=forged&limit=1") == (400, "BadRequest")
    assert refused(mesh, f"{path}?fieldSelector=spec.foo%3Dbar") == (400, "BadRequest")
    assert refused(mesh, f"{path}?watch=1&sendInitialEvents=true") == (422, "Invalid")


def test_pages_of_a_list_are_one_snapshot(mesh, namespace):
    for name in ("a", "b", "c"):
        a_config_map(mesh, namespace, name)
    path = f"/api/v1/namespaces/{namespace}/configmaps?limit=2"

    _, first = mesh.call("GET", path)
    mesh.call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/c")
    _, second = mesh.call("GET", f"{path}&continue={first['metadata']['continue']}")

    assert first["metadata"]["remainingItemCount"] == 1
    assert [i["metadata"]["name"] for i in second["items"]] == ["c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_deletecollection_deletes_what_is_selected(mesh, namespace):
    for name in ("a", "b"):
        a_config_map(mesh, namespace, name)
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    mesh.call("DELETE", f"{path}?fieldSelector=metadata.name%3Da")

    assert [i["metadata"]["name"] for i in mesh.call("GET", path)[1]["items"]] == ["b"]


def test_preconditions_and_repeated_request_ids_hold_over_http(mesh, namespace):
    made = a_config_map(mesh, namespace, "a", x="1")
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    wrong = {"preconditions": {"uid": "11111111-1111-4111-8111-111111111111"}}

    assert refused(mesh, path, "DELETE", wrong) == (409, "Conflict")
    mesh.merge(path, {"data": {"x": "2"}})
    assert refused(mesh, path, "PUT", made) == (409, "Conflict")
    assert refused(mesh, f"/api/v1/namespaces/{namespace}/configmaps", "POST", made)[0] in (400, 409)


@pytest.mark.parametrize(
    ("path", "user", "expected"),
    [
        ("/api/v1/namespaces/default/pods", "user:absent", 401),
        ("/api/v1/nodes", "", 403),
        ("/apis", "", 403),
        ("/version", "", 200),
    ],
)
def test_callers_without_a_known_credential_see_health_and_version_only(mesh, path, user, expected):
    connection = mesh.connection(10)
    connection.request("GET", path, headers={"Authorization": "Bearer wrong"} if user else {})
    with contextlib.closing(connection):
        assert connection.getresponse().status == expected


def test_a_namespace_goes_once_its_finalizer_is_gone(mesh):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}}
    mesh.call("POST", "/api/v1/namespaces", body)
    mesh.call("DELETE", "/api/v1/namespaces/going", {"propagationPolicy": "Background"})
    _, namespace = mesh.call("GET", "/api/v1/namespaces/going")
    assert namespace["status"]["phase"] == "Terminating"
    assert refused(mesh, "/api/v1/namespaces/going/configmaps", "POST", {**body, "kind": "ConfigMap"})[0] == 403

    namespace["spec"]["finalizers"] = []
    mesh.call("PUT", "/api/v1/namespaces/going/finalize", namespace, user="system:controller:namespace")

    assert refused(mesh, "/api/v1/namespaces/going") == (404, "NotFound")


def test_guarantees_w18_streams_end_and_the_process_ends_on_sigterm(tmp_path):
    mesh = Mesh(tmp_path)
    begun, ended = threading.Event(), threading.Event()
    mesh.a_node("n1")

    def watch():
        with a_stream(mesh, "/api/v1/nodes?watch=1&allowWatchBookmarks=true") as lines, contextlib.suppress(OSError):
            for _ in lines:
                begun.set()
            ended.set()

    watching = threading.Thread(target=watch, daemon=True)
    try:
        watching.start()
        assert begun.wait(5)
        mesh.process.send_signal(signal.SIGTERM)
        assert mesh.process.wait(5) == 0
        assert ended.wait(2)
    finally:
        mesh.stop()
