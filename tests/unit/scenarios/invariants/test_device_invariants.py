"""The invariants of devices are silent over a lawful life and speak over the breach they are named for (I6 to I10, I30)."""

import pytest

from lab.scenarios.invariants import Auditor
from services.api.switches import Switches
from tests.unit.scenarios.invariants.test_invariants import NODE, Log

CLAIM = {"kind": "ResourceClaim", "ns": "default", "name": "c", "uid": "c1"}
OTHER = {**CLAIM, "name": "d", "uid": "c2"}
GPU = "gpu.example/n1/gpu-0"
MINE = {"granted": [GPU], "nodes": ["n1"], "consumers": ["u1"]}


def judge(log, *switches):
    auditor = Auditor(Switches.parse(switches))
    for line in log.lines:
        auditor.take(line)
    return {v.invariant for v in auditor.violations if v.invariant in ("I6", "I7", "I8", "I9", "I10", "I30")}


def claim(log, obj=CLAIM, kind="MODIFIED", **facts):
    return log.commit(obj=obj, kind=kind, asked=False, **facts)


def life():
    """A pod with a claim: granted, bound, prepared, running."""
    log = Log().commit(kind="ADDED", verb="create", claims=["c"])
    claim(log, kind="ADDED", generated=True, owners=["u1"])
    claim(log, generated=True, owners=["u1"], **MINE)
    log.commit(sub="binding", node="n1", binding_generation=2, claims=["c"])
    log.add("driver.prepare", node="n1", data={"claim": "c1", "name": "c", "devices": [GPU]})
    return log.started("n1", 2)


def test_a_lawful_life_with_devices_breaks_nothing():
    log = life().add("kubelet.stop", node="n1", gen=2, data={"container": "main"})
    log.add("driver.unprepare", node="n1", data={"claim": "c1", "name": "c", "devices": [GPU]})
    log.commit(phase="Succeeded", node="n1", binding_generation=2, claims=["c"])
    claim(log, generated=True, owners=["u1"])
    claim(log, kind="DELETED", generated=True, owners=["u1"]).add("x", at_s=500)

    assert judge(log) == set()


def test_i6_one_device_for_two_claims():
    log = claim(claim(life(), OTHER, "ADDED"), OTHER, **MINE)

    assert judge(log) == {"I6"}


@pytest.mark.parametrize(("guard", "broken"), [("none", set()), ("apiserver", {"I6"})])
def test_i6_with_two_schedulers_it_is_counted_unless_the_api_server_guards(guard, broken):
    log = life().add("sched.attempt", comp="scheduler/a").add("sched.attempt", comp="scheduler/b")

    assert judge(claim(claim(log, OTHER, "ADDED"), OTHER, **MINE), f"dra.double_allocation_guard={guard}") == broken


def test_i7_one_device_prepared_for_two_claims():
    log = life().add("driver.prepare", node="n1", data={"claim": "c2", "name": "d", "devices": [GPU]})

    assert "I7" in judge(log)


def answered(log, event, claim, *devices, driver="gpu.example", error=""):
    """What a kubelet logs of a call to a driver that writes no log of its own."""
    data = {"driver": driver, "claims": [claim], "names": [claim]}
    data |= {"error": error} if error else {"devices": {claim: list(devices)}}
    return log.add(event, node="n1", obj={"kind": "Pod", "ns": "default", "name": "p", "uid": "u1"}, data=data)


def test_i7_of_a_driver_without_a_log_its_kubelets_answers_say_the_same():
    log = answered(answered(Log(), "kubelet.prepared", "c1", GPU), "kubelet.prepared", "c2", GPU)
    freed = answered(answered(Log(), "kubelet.prepared", "c1", GPU), "kubelet.unprepared", "c1")
    failed = answered(Log(), "kubelet.prepared", "c1", GPU)
    answered(failed, "kubelet.unprepared", "c1", error="rpc error: code = DeadlineExceeded")

    assert judge(log) == {"I7"}
    assert judge(answered(freed, "kubelet.prepared", "c2", GPU)) == set()
    assert judge(answered(failed, "kubelet.prepared", "c2", GPU)) == {"I7"}


def test_i7_a_device_that_driver_and_kubelet_report_is_reported_once_with_both_pods():
    log = life().add("driver.prepare", node="n1", data={"claim": "c2", "name": "d", "devices": [GPU], "pods": ["q"]})
    auditor = Auditor(Switches.parse(()))
    for line in answered(log, "kubelet.prepared", "c2", GPU).lines:
        auditor.take(line)

    (found,) = (violation for violation in auditor.violations if violation.invariant == "I7")
    assert "is prepared for claim c2 (pod q, prepared at" in found.detail
    assert "while it is for c1 (prepared at" in found.detail


def test_i8_more_consumers_than_configured_are_too_many():
    listed = {**MINE, "consumers": [f"u{i}" for i in range(257)]}

    assert judge(claim(claim(Log(), kind="ADDED"), **listed), "reserved_for.max=257") == set()
    assert judge(claim(claim(Log(), kind="ADDED"), **listed), "reserved_for.max=256") == {"I8"}


@pytest.mark.parametrize(
    "facts",
    [{}, {**MINE, "nodes": ["n2"]}, {**MINE, "consumers": ["another"]},
     {**MINE, "consumers": [f"u{i}" for i in range(257)]}],
)  # fmt: skip
def test_i8_a_bind_before_the_claim_was_there(facts):
    log = Log().commit(kind="ADDED", verb="create", claims=["c"])
    claim(log, kind="ADDED", **facts)

    assert judge(log.commit(sub="binding", node="n1", binding_generation=2, claims=["c"])) == {"I8"}


def test_i9_devices_taken_back_from_a_pod_that_runs():
    assert judge(claim(life())) == {"I9"}


def test_i9_a_pod_removed_by_force_cannot_be_waited_for():
    log = life().commit(kind="DELETED", node="n1", binding_generation=2, claims=["c"])

    assert judge(claim(log)) == set()


def test_i10_a_claim_that_outlives_its_pod():
    log = life().commit(kind="DELETED", node="n1", binding_generation=2, claims=["c"])
    log.add("x", at_s=2.0).add("x", at_s=64.0)

    assert judge(log) == {"I10"}


def test_i30_a_device_prepared_without_a_reservation():
    log = life().commit(kind="DELETED", node="n1", binding_generation=2, claims=["c"])
    claim(log, kind="DELETED").add("x", at_s=2.0).add("x", at_s=110.0)

    assert judge(log) == {"I30"}
    booted = life().commit(kind="DELETED", node="n1", binding_generation=2, claims=["c"])
    claim(booted, kind="DELETED").add("node.boot", obj=NODE, node="n1").add("x", at_s=2.0).add("x", at_s=110.0)
    assert judge(booted) == set()


def not_judged(log):
    auditor = Auditor(Switches())
    for line in log.lines:
        auditor.take(line)
    return auditor.not_judged


def test_without_claims_nothing_is_said_of_them_and_with_them_it_is():
    assert {"I6", "I7", "I8", "I9", "I10", "I30"} <= not_judged(Log().commit(kind="ADDED", verb="create")).keys()
    assert not {"I6", "I7", "I8", "I9", "I10", "I30"} & not_judged(life()).keys()


def test_a_log_that_ends_within_the_grace_says_nothing_of_claims_and_devices_that_should_go():
    log = life().commit(kind="DELETED", node="n1", binding_generation=2, claims=["c"]).add("x", at_s=2.0)
    assert "claim default/c is still there, its pod is gone or has ended" in not_judged(log.add("x", at_s=30.0))["I10"]

    unprepared = claim(log, kind="DELETED").add("x", at_s=31.0).add("x", at_s=60.0)
    assert "claim c is prepared on n1 and reserved for no pod, for 29.0 s" in not_judged(unprepared)["I30"]
