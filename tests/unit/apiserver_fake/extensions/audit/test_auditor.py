"""Audit events: upstream's fields, the stages of a request, and a file that never stops one."""

import errno
import json
import os

import pytest

from apiserver_fake.extensions.audit import log
from apiserver_fake.extensions.audit.auditor import Auditor
from apiserver_fake.extensions.audit.event import Source
from apiserver_fake.extensions.audit.log import AuditFile, Rotation
from apiserver_fake.extensions.audit.policy import Policy, PolicyRule
from apiserver_fake.registry.policy import Attributes
from services.api.identity import Identity

ANN = Identity("ann", ("dev",), uid="u1", extra=(("k", ("v",)),))
CREATE = Attributes("create", "apps", "deployments", namespace="a")
SOURCE = Source("/apis/apps/v1/namespaces/a/deployments", ("10.0.0.1",), "curl/8")
FIELDS = (
    "kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user", "impersonatedUser", "sourceIPs",
    "userAgent", "objectRef", "responseStatus", "requestObject", "responseObject", "requestReceivedTimestamp",
    "stageTimestamp", "annotations",
)  # fmt: skip
"""Every field of upstream's Event, in its order."""


class Lines:
    written = lost = 0

    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(json.loads(line))


def audited(level="RequestResponse", **rule):
    lines = Lines()
    own = Policy(api_version="audit.k8s.io/v1", kind="Policy", rules=(PolicyRule(level=level, **rule),))
    return Auditor(own, lines, lambda: 1_767_225_600.25, lambda: "new"), lines.lines


def test_an_event_about_a_text_without_a_form_is_written():
    auditor, lines = audited()
    source = Source("/api/v1/\udcff", ("\ud800",), "a\udcff")

    auditor.begin(ANN, CREATE._replace(name="\ud800"), source, audit_id="id", version="v1")

    assert ["/api/v1/\\udcff", ["\\ud800"], "a\\udcff", "\\ud800"] == [
        *(lines[0][name] for name in ("requestURI", "sourceIPs", "userAgent")),
        lines[0]["objectRef"]["name"],
    ]


def create(auditor, body=b'{"metadata":{"name":"web","managedFields":[1]},"spec":{}}', code=201, answer=None):
    trail = auditor.begin(ANN, CREATE, SOURCE, audit_id="id", version="v1")
    if trail is None:
        return
    trail.impersonates(Identity("bob"))
    trail.on_decision(allowed=True, reason="why")
    trail.on_request_body(body)
    trail.on_annotations({"hook/x": "1", "authorization.k8s.io/reason": "forged"})
    trail.on_response_body(body)
    trail.on_response_complete(code, body if answer is None else answer)


def test_an_event_has_upstreams_fields_in_its_order_and_says_who_did_what_to_which_object():
    auditor, lines = audited()
    create(auditor)

    received, complete = lines
    assert tuple(complete) == FIELDS
    assert set(received) < set(FIELDS)
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert "responseStatus" not in received
    assert complete["user"] == {"username": "ann", "uid": "u1", "groups": ["dev"], "extra": {"k": ["v"]}}
    assert complete["impersonatedUser"] == {"username": "bob"}
    reference = {"resource": "deployments", "namespace": "a", "name": "web", "apiGroup": "apps", "apiVersion": "v1"}
    assert complete["objectRef"] == reference
    assert complete["responseStatus"] == {"metadata": {}, "code": 201}
    assert complete["requestObject"]["metadata"] == {"name": "web", "managedFields": [1]}
    assert complete["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": "why",
        "hook/x": "1",
    }
    assert complete["requestReceivedTimestamp"] == "2026-01-01T00:00:00.250000Z"


@pytest.mark.parametrize(
    ("level", "objects"),
    [("Metadata", ()), ("Request", ("requestObject",)), ("RequestResponse", ("requestObject", "responseObject"))],
)
def test_a_level_says_which_objects_are_recorded(level, objects):
    auditor, lines = audited(level)
    create(auditor)

    assert tuple(name for name in FIELDS if name.endswith("Object") and name in lines[-1]) == objects
    assert lines[-1]["objectRef"]["name"] == "web"


def test_level_none_records_nothing_and_managed_fields_and_stages_can_be_left_out():
    auditor, lines = audited("None")
    create(auditor)
    assert lines == []
    auditor, lines = audited(omit_stages=("RequestReceived",), omit_managed_fields=True)
    create(auditor, answer=b"")
    (event,) = lines
    assert "managedFields" not in event["requestObject"]["metadata"]
    assert "managedFields" not in event["responseObject"]["metadata"]


def test_a_refusal_is_recorded_with_its_reason_and_a_body_that_is_no_json_is_left_out():
    auditor, lines = audited()
    status = {"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "details": {"name": "x"}}
    create(auditor, body=b"{", code=403, answer=json.dumps({**status, "code": 403}).encode())

    said = lines[-1]["responseStatus"]
    assert said == {"metadata": {}, **{k: v for k, v in status.items() if k != "kind"}, "code": 403}
    assert "requestObject" not in lines[-1]


def test_a_watch_has_begun_before_it_is_complete_and_a_bug_panics_once():
    auditor, lines = audited()
    trail = auditor.begin(ANN, Attributes("watch", resource="pods"), SOURCE)
    trail.on_response_started(200)
    trail.on_response_complete(500)
    trail.on_panic(ValueError("x"))
    broken = auditor.begin(ANN, CREATE, SOURCE)
    broken.on_response_started(200)
    broken.on_panic(ValueError("secret"))
    broken.on_response_complete(500)

    assert [line["stage"] for line in lines] == [
        "RequestReceived", "ResponseStarted", "ResponseComplete", "RequestReceived", "Panic",
    ]  # fmt: skip
    assert lines[2]["responseStatus"]["code"] == 200
    assert "secret" not in json.dumps(lines[4])


def test_a_caller_that_is_not_known_is_recorded_without_a_user():
    auditor, lines = audited()
    auditor.record_unauthenticated(CREATE, SOURCE, audit_id="id", version="v1", tried="bearer")

    (event,) = lines
    assert (event["user"], event["stage"], event["responseStatus"]["code"]) == ({}, "ResponseStarted", 401)
    assert event["responseStatus"]["message"] == "Authentication failed, attempted: bearer"


class Clock:
    now = 1_767_225_600.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_a_full_file_is_put_aside_and_so_many_are_kept(tmp_path):
    path = tmp_path / "audit" / "audit.log"
    file = AuditFile(str(path), Rotation(max_size_mb=1, max_backup=2), Clock())
    file.open()
    line = b"x" * (1 << 18) + b"\n"
    for _ in range(20):
        file.write(line)
    file.close()

    assert sorted(each.name for each in path.parent.iterdir()) == [
        "audit-2026-01-01T00-00-05.000.log", "audit-2026-01-01T00-00-06.000.log", "audit.log",
    ]  # fmt: skip
    assert all(each.stat().st_size <= 1 << 20 for each in path.parent.iterdir())
    assert (file.written, file.lost) == (20, 0)
    assert path.stat().st_mode & 0o777 == 0o600


def test_files_are_kept_for_so_many_days(tmp_path):
    old = tmp_path / "audit-2025-01-01T00-00-00.000.log"
    old.write_bytes(b"")
    os.utime(old, (1_735_689_600, 1_735_689_600))
    file = AuditFile(str(tmp_path / "audit.log"), Rotation(max_size_mb=1, max_age_days=30), Clock())
    for _ in range(3):
        file.write(b"x" * (1 << 19) + b"\n")
    file.close()

    assert not old.exists()
    assert file.written == 3


def test_guarantees_l_log_a_full_disk_loses_lines_and_leaves_no_half_of_one(tmp_path, monkeypatch):
    path, real, free = tmp_path / "audit.log", os.write, [10]

    def write(fd, data):
        if free[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sent = real(fd, data[: free[0]])
        free[0] -= sent
        return sent

    file = AuditFile(str(path), Rotation(), Clock())
    file.open()
    monkeypatch.setattr(log.os, "write", write)
    for line in (b"first\n", b"second\n", b"third\n"):
        file.write(line)
    free[0] = 1000
    file.write(b"fourth\n")
    file.close()

    assert path.read_bytes() == b"first\nfourth\n"
    assert (file.written, file.lost) == (2, 2)
