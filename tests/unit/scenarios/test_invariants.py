"""Each invariant is silent over a lawful log and speaks over the breach it is named for."""

import pytest

from services.api.switches import Switches
from services.scenarios.invariants import Auditor
from services.telemetry.eventlog import Line

POD = {"kind": "Pod", "ns": "default", "name": "p", "uid": "u1"}
NODE = {"kind": "Node", "ns": "", "name": "n1", "uid": "node1"}
WRITERS = {"binding": "system:kube-scheduler", "unbind": "system:node:n1"}


class Log:
    """Numbers lines, so that a test shows only what matters to it."""

    def __init__(self):
        self.lines, self._seq, self._rv = [], 0, 0

    def add(self, ev, *, obj=None, seq=None, **fields):
        self._seq = seq or self._seq + 1
        self.lines.append(Line(1, self._seq, self._seq * 1000, "", "c", "i", ev, obj=obj or POD, **fields))
        return self

    def commit(self, *, rv=None, identity="", verb="patch", sub="", kind="MODIFIED", obj=None, asked=True, **data):
        """A commit and the request it came from; of the pod unless `obj` says otherwise."""
        obj = obj or POD
        self._rv = rv or self._rv + 1
        identity = identity or WRITERS.get(sub, "system:mesh-admin")
        verb = "create" if sub in ("binding", "unbind") else "delete" if kind == "DELETED" else verb
        if asked:
            resource = {"Pod": "pods", "Node": "nodes"}[obj["kind"]]
            path = "/".join((resource, obj["ns"], obj["name"], sub)).rstrip("/")
            self.add("api.request", identity=identity, req_id=f"r{self._rv}", data={"verb": verb, "path": path, "uid": "u"})
        facts = {"node": "", "phase": "Pending", "binding_generation": 0, "unbind_count": 0, "nominated": ""}
        return self.add(
            "store.commit",
            obj=obj,
            rv=self._rv,
            identity=identity,
            req_id=f"r{self._rv}",
            data={
                "type": kind, "verb": verb, "subresource": sub, "content_sha256": f"c{self._rv}",
                **(facts if obj["kind"] == "Pod" else {}), **data,
            },
        )  # fmt: skip

    def started(self, node, gen, uid="u1"):
        pod = POD | {"uid": uid}
        self.add("kubelet.checkpoint", obj=pod, node=node, gen=gen)
        return self.add("kubelet.start", obj=pod, node=node, gen=gen, data={"container": "main"})


def _judge(log, *switches):
    auditor = Auditor(Switches.parse(switches))
    auditor.take_all(log.lines)
    return {v.invariant for v in auditor.violations}


def _bound(log, node="n1", generation=2, unbinds=0):
    return log.commit(sub="binding", node=node, binding_generation=generation, unbind_count=unbinds)


def _unbound(log, generation=2, unbinds=1, identity="system:node:n1"):
    log.add("kubelet.teardown_done", node="n1", gen=generation)
    return log.commit(sub="unbind", identity=identity, binding_generation=generation, unbind_count=unbinds)


def test_a_lawful_life_with_an_unbind_breaks_nothing():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    _unbound(log)
    _bound(log, "n2", 4, 1)
    log.started("n2", 4)
    log.commit(sub="status", node="n2", binding_generation=4, unbind_count=1, phase="Running")
    log.add("kubelet.stop", node="n2", gen=4, data={"container": "main"})

    assert _judge(log) == set()


def test_i1_two_nodes_run_one_uid():
    log = Log()
    log.started("n1", 2)
    log.started("n2", 2)

    assert "I1" in _judge(log)


@pytest.mark.parametrize("sub", ["", "status", "unbind"])
def test_i2_a_node_name_set_by_anything_but_a_binding(sub):
    log = Log().commit(kind="ADDED", verb="create").commit(sub=sub, node="n1")

    assert "I2" in _judge(log)


def test_i2_an_unbind_by_somebody_who_may_not():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    _unbound(log, identity="system:kube-scheduler")

    assert _judge(log) == {"I2", "I24"}


def test_i3_a_second_bind_without_an_unbind_between():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    _bound(log, "n1", 3)

    assert _judge(log) == {"I3"}


def test_i3_more_unbinds_than_allowed():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    _unbound(log)

    assert _judge(log, "unbind.max_attempts=0") == {"I3"}


def test_i4_a_start_of_a_binding_that_was_unbound():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    _unbound(log)
    log.started("n1", 2)

    assert _judge(log) == {"I4"}


def test_i4_an_unbind_before_its_teardown_was_done():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    log.commit(sub="unbind", identity="system:node:n1", binding_generation=2, unbind_count=1)

    assert _judge(log) == {"I4"}
    assert _judge(log, "kubelet.unbind_teardown=after") == set()


def test_i5_a_ledger_above_allocatable():
    log = Log().add("kubelet.admit", node="n1", data={"ledger": {"cpu": 5000}, "allocatable": {"cpu": 4000}})

    assert _judge(log) == {"I5"}


def test_i12_a_missing_version():
    assert _judge(Log().commit(kind="ADDED", verb="create").commit(rv=3)) == {"I12"}


def test_i17_a_bound_pod_still_nominated():
    log = Log().commit(kind="ADDED")
    log.commit(sub="binding", node="n1", binding_generation=2, nominated="n1")

    assert _judge(log) == {"I17"}


@pytest.mark.parametrize(("before", "after"), [("Running", "Pending"), ("Failed", "Running"), ("Succeeded", "Failed")])
def test_i21_a_phase_that_goes_back(before, after):
    assert _judge(Log().commit(kind="ADDED").commit(phase=before).commit(phase=after)) == {"I21"}


def test_i22_a_deletion_that_is_taken_back_and_a_uid_that_returns():
    moved = Log().commit(kind="ADDED").commit(deletion="2026-01-01T00:00:30Z").commit(deletion="")
    back = Log().commit(kind="ADDED").commit(kind="DELETED").commit(kind="ADDED")

    assert _judge(moved) == {"I22"}
    assert _judge(back) == {"I22"}


def test_i23_a_removal_with_a_finalizer():
    assert _judge(Log().commit(kind="ADDED").commit(kind="DELETED", finalizers=["a/b"])) == {"I23"}


def test_i27_a_gap_in_the_numbering():
    assert _judge(Log().add("x").add("y", seq=3)) == {"I27"}
