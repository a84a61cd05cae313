"""I32 over a few lines: silent when a successor waits or its predecessor was removed by force, loud otherwise."""

import pytest

from lab.scenarios.invariants import Auditor
from services.api.switches import Switches
from services.telemetry.eventlog import Line


def judge(*steps):
    """Return what I32 says of `(event, uid, node or identity)`, all about the pod db-0."""
    auditor = Auditor(Switches())
    for number, (event, uid, who) in enumerate(steps, 1):
        obj = {"kind": "Pod", "ns": "default", "name": "db-0", "uid": uid}
        node, identity, data = who, "", {"container": "main"}
        if event == "store.commit":
            node, identity, data = "", who, {"type": "DELETED", "verb": "delete", "content_sha256": f"c{number}"}
        auditor.take(Line(1, number, number * 1000, "", "c", "i", event, obj=obj, node=node, identity=identity,
                          rv=number if event == "store.commit" else None, data=data))  # fmt: skip
    return [v.detail for v in auditor.violations if v.invariant == "I32"]


A, B = ("kubelet.start", "a", "n1"), ("kubelet.start", "b", "n2")


@pytest.mark.parametrize(
    "steps",
    [
        (A, ("kubelet.stop", "a", "n1"), B),
        (A, ("kubelet.stop", "a", "n1"), ("kubelet.start", "b", "n1")),
        (A, ("node.boot", "", "n1"), ("kubelet.start", "b", "n1")),
        (A, ("store.commit", "a", "user:ann"), B),
        (A, A),
    ],
    ids=["ended first", "ended first there", "booted", "removed by force", "again"],
)
def test_a_name_may_be_taken_again(steps):
    assert judge(*steps) == []


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((A, ("store.commit", "a", "user:ann"), ("kubelet.start", "b", "n1")), "starts on n1 while a"),
        ((A, ("store.commit", "a", "system:node:n1"), B), "removed by system:node:n1, runs on n1"),
        ((A, B), "still stored, runs on n1"),
    ],
    ids=["on one node", "its node said it had ended", "still there"],
)
def test_a_name_is_not_taken_twice(steps, said):
    found = judge(*steps)

    assert len(found) == 1
    assert said in found[0]
