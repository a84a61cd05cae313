"""Each invariant is silent over a lawful log and speaks over the breach it is named for."""

import pytest

from lab.scenarios.invariants import Auditor
from lab.scenarios.invariants.i14_requests import KEPT
from services.api.switches import Switches
from services.client.statehash import MODULUS, version_summand
from services.telemetry.eventlog import Line

POD = {"kind": "Pod", "ns": "default", "name": "p", "uid": "u1"}
NODE = {"kind": "Node", "ns": "", "name": "n1", "uid": "node1"}
UNNUMBERED = {
    "type": "ADDED", "verb": "create", "subresource": "", "content_sha256": "c", "node": "", "phase": "Pending",
    "binding_generation": 0, "unbind_count": 0, "nominated": "",
}  # fmt: skip
WRITERS = {"binding": "system:kube-scheduler", "unbind": "system:node:n1"}


class Log:
    """Numbers lines, so that a test shows only what matters to it."""

    def __init__(self):
        self.lines, self._seqs, self._rv = [], {}, 0

    def add(self, ev, *, obj=None, seq=None, at_s=None, comp="c", **fields):
        number = self._seqs[comp] = seq or self._seqs.get(comp, 0) + 1
        at_ns = (len(self.lines) + 1) * 1000 if at_s is None else int(at_s * 1e9)
        self.lines.append(Line(1, number, at_ns, "", comp, "i", ev, obj=obj or POD, **fields))
        return self

    def commit(self, *, rv=None, identity="", verb="patch", sub="", kind="MODIFIED", obj=None, asked=True, **data):
        """A commit and the request it came from; of the pod unless `obj` says otherwise."""
        obj = obj or POD
        self._rv = rv or self._rv + 1
        identity = identity or WRITERS.get(sub, "system:mesh-admin")
        verb = "create" if sub in ("binding", "unbind") else "delete" if kind == "DELETED" else verb
        if asked:
            resource = {"Pod": "pods", "Node": "nodes", "Lease": "leases.coordination.k8s.io",
                        "PodGroup": "podgroups.scheduling.k8s.io"}[obj["kind"]]  # fmt: skip
            path = "/".join((resource, obj["ns"], obj["name"], sub)).rstrip("/")
            self.add(
                "api.request", identity=identity, req_id=f"r{self._rv}", data={"verb": verb, "path": path, "uid": "u"}
            )
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


def _judge(log, *switches, is_volatile=False):
    auditor = Auditor(Switches.parse(switches), is_volatile=is_volatile)
    for line in log.lines:
        auditor.take(line)
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


def test_i2_an_unbind_by_an_identity_without_the_right():
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


def test_i2_a_pod_created_on_a_node_by_another_node():
    assert "I2" in _judge(Log().commit(kind="ADDED", verb="create", node="n1", identity="system:node:n2"))
    for identity in ("system:node:n1", "system:controller:replicaset", "user:ann"):
        assert "I2" not in _judge(Log().commit(kind="ADDED", verb="create", node="n1", identity=identity))


def test_i3_a_bind_taken_for_failed_that_is_stored():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    log.add("sched.bind_result", node="n1", data={"outcome": "error", "unbind_count": 0})

    assert _judge(log) == {"I3"}


def test_i3_a_bind_of_one_pod_that_bound_another():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    log.add("sched.bind_result", obj=POD | {"uid": "u0"}, rv=2, node="n1", data={"outcome": "ok", "unbind_count": 0})

    assert _judge(log) == {"I3"}


def test_i4_a_start_before_its_checkpoint():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    log.add("kubelet.start", node="n1", gen=2, data={"container": "main"})

    assert _judge(log) == {"I4"}


def _crowded():
    log = Log().commit(kind="ADDED", verb="create", obj=NODE, allocatable={"cpu": 4000, "pods": 110})
    for uid in ("u1", "u2"):
        pod = POD | {"uid": uid, "name": uid}
        log.commit(kind="ADDED", verb="create", obj=pod, node="n1", requests={"cpu": 3000})
    return log


def test_i5_more_bound_to_a_node_than_it_holds_for_longer_than_five_seconds():
    assert _judge(_crowded().add("x", seq=None, at_s=4.0)) == set()
    assert _judge(_crowded().add("x", at_s=7.0)) == {"I5"}


def test_i5_what_was_on_a_machine_that_shrank_may_stay_and_nothing_comes():
    log = Log().commit(kind="ADDED", verb="create", obj=NODE, allocatable={"cpu": 6000, "pods": 110})
    for uid in ("u1", "u2"):
        log.commit(kind="ADDED", verb="create", obj=POD | {"uid": uid, "name": uid}, node="n1", requests={"cpu": 3000})
    log.commit(kind="MODIFIED", verb="patch", obj=NODE, allocatable={"cpu": 4000, "pods": 110})

    assert _judge(log.add("x", at_s=9.0)) == set()
    log.commit(
        kind="ADDED", verb="create", obj=POD | {"uid": "u3", "name": "u3"}, node="n1", requests={"cpu": 1}, at_s=9.0
    )
    assert _judge(log.add("x", at_s=20.0)) == {"I5"}


def test_i5_time_with_faults_does_not_count():
    broken = _crowded().add("fault.inject", data={"target": "kubelet/h0"}).add("x", at_s=7.0)
    healed = broken.add("fault.heal", data={"target": "kubelet/h0"}, at_s=8.0)

    assert _judge(broken) == set()
    assert _judge(healed.add("x", at_s=14.0)) == {"I5"}


def test_i11_a_pod_whose_owner_went_long_ago():
    log = Log().commit(kind="ADDED", verb="create", obj=NODE)
    log.commit(kind="ADDED", verb="create", owners=["node1"])
    log.commit(kind="DELETED", obj=NODE).add("x", at_s=2.0)

    assert _judge(log) == set()
    assert _judge(log.add("x", at_s=95.0)) == {"I11"}


def test_i11_a_pod_on_a_node_that_never_was_although_nothing_was_removed():
    log = Log().commit(kind="ADDED", verb="create", node="n9").add("x", at_s=2.0)

    assert _judge(log) == set()
    assert _judge(log.add("x", at_s=95.0)) == {"I11"}


def test_i12_a_recovery_that_lost_what_was_published():
    log = Log().commit(kind="ADDED", verb="create").commit().add("store.recovered", rv=1)

    assert _judge(log) == {"I12"}
    assert _judge(log, is_volatile=True) == set()


def test_i13_an_answer_with_a_version_that_was_never_stored():
    log = Log().commit(kind="ADDED", verb="create")
    answer = {"verb": "create", "code": 201, "path": "pods/default/p"}

    assert _judge(log.add("api.response", rv=1, data=answer)) == set()
    assert _judge(log.add("api.response", rv=7, data=answer)) == {"I13"}


def test_i14_a_commit_without_a_request_and_one_that_was_refused():
    refused = Log().commit(kind="ADDED", verb="create")
    refused.add("api.response", identity="system:mesh-admin", req_id="r1", data={"verb": "create", "code": 409})

    assert _judge(Log().commit(kind="ADDED", verb="create", asked=False)) == {"I14"}
    assert _judge(refused) == {"I14"}


def test_i14_a_refused_arrival_beside_one_that_was_carried_out():
    log = Log().add("api.request", identity="system:mesh-admin", req_id="r1", data={"verb": "create"})
    log.add("api.response", identity="system:mesh-admin", req_id="r1", data={"verb": "create", "code": 429})

    assert _judge(log.commit(kind="ADDED", verb="create")) == set()


def test_i14_a_refusal_begins_with_400():
    def answered(code):
        log = Log().commit(kind="ADDED", verb="create")
        return log.add("api.response", identity="system:mesh-admin", req_id="r1", data={"verb": "create", "code": code})

    assert [_judge(answered(code)) for code in (399, 400, 500, 501)] == [set(), {"I14"}, set(), {"I14"}]


@pytest.mark.parametrize(("others", "found"), [(2 * KEPT - 1, set()), (2 * KEPT, {"I14"})])
def test_i14_so_many_requests_are_remembered_and_then_the_oldest_half_is_forgotten(others, found):
    log = Log()
    log.add("api.request", identity="system:mesh-admin", req_id="r1", data={"verb": "create"})
    for number in range(others):
        log.add("api.request", identity="system:mesh-admin", req_id=f"x{number}", data={"verb": "create"})

    assert _judge(log.commit(kind="ADDED", verb="create", asked=False)) == found


@pytest.mark.parametrize(("others", "found"), [(2 * KEPT - 1, set()), (2 * KEPT, {"I14"})])
def test_i14_so_many_requests_without_an_id_are_remembered_and_then_the_oldest_half_is_forgotten(others, found):
    asked = {"verb": "create", "path": "pods/default"}
    log = Log().add("api.request", identity="system:mesh-admin", data=asked)
    for number in range(others):
        log.add("api.request", identity="system:mesh-admin", data={"verb": "create", "path": f"pods/{number}"})
    log.add("store.commit", rv=1, identity="system:mesh-admin", data=UNNUMBERED)

    assert _judge(log) == found


def _cache(log, rv, *held):
    total = sum(version_summand("Pod", "default", "p", version) for version in held) % MODULUS
    data = {"resource": "pods", "namespace": "", "field_selector": "spec.nodeName=n1", "label_selector": ""}
    return log.add("cache.sync", rv_seen=rv, data={**data, "objects": len(held), "versions_hash": f"{total:064x}"})


def test_i16_a_cache_that_differs_from_the_view_at_its_version():
    log = Log().commit(kind="ADDED", verb="create")
    _bound(log)
    log.commit(sub="status", identity="system:node:n1", node="n1", binding_generation=2, observed=2, phase="Running")

    assert _judge(_cache(_cache(_cache(log, 1), 2, 2), 3, 3)) == set()
    assert _judge(_cache(log, 3, 2)) == {"I16"}


def test_i17_a_nomination_of_a_node_that_is_gone():
    log = Log().commit(kind="ADDED", verb="create", nominated="n9").add("x", at_s=2.0)

    assert _judge(log) == set()
    assert _judge(log.add("x", at_s=15.0)) == {"I17"}


@pytest.mark.parametrize(
    ("identity", "sub", "facts"),
    [
        ("system:node:n2", "status", {"node": "n1"}),
        ("system:node:n1", "status", {"node": "n1", "observed": 0, "binding_generation": 2}),
        ("system:node:n1", "status", {"node": "n1", "nominated": "n3"}),
        ("system:kube-scheduler", "ephemeralcontainers", {"node": "n1"}),
        ("user:ann", "status", {"node": "n1"}),
    ],
)
def test_i24_a_commit_its_writer_may_not_make(identity, sub, facts):
    bound = {"node": "n1", "binding_generation": facts.get("binding_generation", 0)}
    log = Log().commit(kind="ADDED", verb="create", **bound)

    assert "I24" in _judge(log.commit(identity=identity, sub=sub, **facts))


def test_i24_a_node_that_gives_itself_an_owner():
    log = Log().commit(kind="ADDED", verb="create", obj=NODE, identity="system:node:n1")

    assert _judge(log.commit(obj=NODE, identity="system:node:n1", owners=["u1"])) == {"I24"}


@pytest.mark.parametrize(
    ("who", "switch"), [("podgc", "podgc.recheck=false"), ("taint-eviction", "tainteviction.faithful=true")]
)
def test_i24_a_delete_without_uid_is_lawful_where_a_switch_asks_for_it(who, switch):
    identity = f"system:controller:{who}"
    log = Log().commit(kind="ADDED", verb="create", node="n1")
    log.add("api.request", identity=identity, req_id="r2", data={"verb": "delete", "path": "pods/default/p"})
    log.commit(verb="delete", identity=identity, asked=False, node="n1", deletion="2026-01-01T00:00:30Z")

    assert _judge(log) == {"I24"}
    assert _judge(log, switch) == set()


def test_what_no_line_shows_is_named_as_not_judged():
    auditor = Auditor(Switches())
    for line in Log().commit(kind="ADDED", verb="create").lines:
        auditor.take(line)

    assert {"I6", "I15", "I16"} <= set(auditor.not_judged)
    assert "I12" not in auditor.not_judged


def _preempted(**data):
    waiting = POD | {"uid": "u9", "name": "vip"}
    log = Log().commit(kind="ADDED", verb="create").commit(kind="ADDED", verb="create", obj=waiting)
    if data:
        log.add("sched.victim", data=data)
    return log.commit(verb="delete", identity="system:kube-scheduler", deletion="2026-01-01T00:00:30Z")


def test_i18_a_victim_that_was_not_announced_or_of_equal_priority_or_whose_preemptor_is_gone():
    lawful = {"preemptor": "u9", "priority": 0, "preemptor_priority": 10}

    assert _judge(_preempted(**lawful)) == set()
    assert _judge(_preempted()) == {"I18"}
    assert _judge(_preempted(**lawful | {"priority": 10})) == {"I18"}
    assert _judge(_preempted(**lawful | {"preemptor": "u7"})) == {"I18"}
    again = _preempted(**lawful).commit(
        verb="delete", identity="system:kube-scheduler", deletion="2026-01-01T00:00:30Z"
    )
    assert _judge(again) == {"I18"}


@pytest.mark.parametrize(("seen", "broken"), [(2, set()), (3, {"I18"})])
def test_i18_what_became_of_the_preemptor_while_the_call_was_under_way_is_no_fault(seen, broken):
    waiting = POD | {"uid": "u9", "name": "vip"}
    log = Log().commit(kind="ADDED", verb="create").commit(kind="ADDED", verb="create", obj=waiting)
    log.add("sched.victim", data={"preemptor": "u9", "priority": 0, "preemptor_priority": 10}, rv_seen=seen)
    log.commit(kind="DELETED", verb="delete", obj=waiting)

    assert (
        _judge(log.commit(verb="delete", identity="system:kube-scheduler", deletion="2026-01-01T00:00:30Z")) == broken
    )


LEASE = {"kind": "Lease", "ns": "kube-system", "name": "kube-scheduler", "uid": "l1"}


def _led(transitions):
    """A log in which the scheduler has just taken the lease for the n-th time."""
    log = Log().commit(kind="ADDED", verb="create")
    for number in range(transitions + 1):
        log.commit(kind="MODIFIED" if number else "ADDED", obj=LEASE, identity="system:kube-scheduler",
                   transitions=number)  # fmt: skip
    return log.add("lease.acquire", data={"epoch": f"kube-system/kube-scheduler/{transitions}"})


def _bound_under(log, epoch):
    _bound(log) if epoch is None else log.commit(sub="binding", node="n1", binding_generation=2, lease_epoch=epoch)
    rv = log.lines[-1].rv
    return log.add("sched.bind_result", rv=rv, node="n1",
                   data={"outcome": "ok", "resolved_how": "reply", "unbind_count": 0})  # fmt: skip


def test_i25_a_commit_under_an_older_epoch_and_a_leaders_write_without_one():
    assert _judge(_bound_under(_led(2), "kube-system/kube-scheduler/2")) == set()
    assert _judge(_bound_under(_led(2), "kube-system/kube-scheduler/1")) == {"I25"}
    assert _judge(_bound_under(_led(0), None)) == {"I25"}
    assert _judge(_bound_under(_led(0).add("lease.lose"), None)) == set()


def test_i25_what_a_controller_announced_carries_its_epoch():
    def wrote(**epoch):
        log = _led(1).add("ctrl.write", req_id="r4")
        return log.commit(identity="system:controller:gc", verb="patch", rv=4, **epoch)

    assert "I25" not in _judge(wrote(lease_epoch="kube-system/kube-scheduler/1"))
    assert "I25" in _judge(wrote())


def test_i29_a_pod_that_only_the_flush_saved():
    assert _judge(Log().add("sched.flush_rescue", node="n1", data={"plugins": ["NodeAffinity"]})) == {"I29"}


def test_i3_of_two_schedulers_that_ask_for_one_binding_only_one_gets_it():
    log = Log().commit(kind="ADDED", verb="create")
    for comp in ("scheduler-1", "scheduler-2"):
        log.add("sched.bind_call", node="n1", comp=comp, data={"unbind_count": 0})
    _bound(log)
    log.add("sched.bind_result", comp="scheduler-2", node="n1", data={"outcome": "conflict", "unbind_count": 0})

    assert _judge(log) == set()


GROUP = {"kind": "PodGroup", "ns": "default", "name": "g", "uid": "g1"}
GANGS = ("GenericWorkload=true", "gang.permit_timeout_s=5")


def _gang(*bound, at_s=2.0):
    """A gang of three whose members of these names are bound."""
    log = Log().commit(kind="ADDED", obj=GROUP, verb="create", min_count=3)
    for name in bound:
        pod = POD | {"name": name, "uid": f"u-{name}"}
        log.commit(kind="ADDED", verb="create", obj=pod, group="g")
        log.commit(sub="binding", obj=pod, node="n1", binding_generation=2)
    return log.add("x", at_s=at_s)


def test_i26_a_gang_that_is_bound_in_part():
    log = _gang("a", "b")
    assert _judge(log.add("x", at_s=14.0), *GANGS) == set()
    assert _judge(log.add("x", at_s=19.0), *GANGS) == {"I26"}
    assert _judge(log) == set()


def _not_judged(log, *switches):
    auditor = Auditor(Switches.parse(switches))
    for line in log.lines:
        auditor.take(line)
    return auditor.not_judged


def test_what_the_log_ends_too_early_for_is_not_judged():
    gang = _not_judged(_gang("a", "b").add("x", at_s=14.0), *GANGS)["I26"]
    node = _not_judged(_crowded().add("x", at_s=4.0))["I5"]
    nominated = _not_judged(Log().commit(kind="ADDED", verb="create", nominated="n9").add("x", at_s=2.0))["I17"]
    pod = Log().commit(kind="ADDED", verb="create", node="n9").add("x", at_s=2.0).add("x", at_s=60.0)
    orphan = _not_judged(pod)["I11"]

    assert "pod group default/g is bound in part, for 14.0 s" in gang
    assert "node n1 is over-committed" in node
    assert "node n9 is gone" in nominated
    assert orphan.startswith("the run ended within the grace: pod default/p is still there, its node n9 is gone")
    assert "of 90 s allowed" in orphan


def test_what_was_found_broken_was_judged():
    log = Log().commit(kind="ADDED", verb="create", node="n9").add("x", at_s=2.0).add("x", at_s=95.0)

    assert "I11" not in _not_judged(log)


def test_i26_a_gang_that_lost_a_member_was_scheduled_all_the_same():
    log = _gang("a", "b", "c")
    gone = POD | {"name": "a", "uid": "u-a"}
    log.commit(kind="DELETED", obj=gone, node="n1", binding_generation=2)
    assert _judge(log.add("x", at_s=60.0), *GANGS) == set()


@pytest.mark.parametrize(("kind", "found"), [("ERROR", set()), ("MODIFIED", {"I15"})])
def test_i15_the_error_that_ends_a_stream_is_no_part_of_the_state_it_did_not_get(kind, found):
    log = Log().commit(kind="ADDED", verb="create")
    log.add("watch.open", comp="apiserver", data={"watch": 1, "resource": "pods", "start_rv": 1})
    log.add("watch.event", comp="apiserver", rv=0, data={"watch": 1, "resource": "pods", "type": kind})

    assert _judge(log) == found


def _audited(log):
    auditor = Auditor(Switches.parse(()))
    for line in log.lines:
        auditor.take(line)
    return auditor


def test_what_a_write_past_admission_breaks_is_by_hand_and_not_counted():
    """Simulator 5.3."""
    log = Log().commit(kind="ADDED", verb="create").commit(verb="update", sub="raw", node="n1")
    log.started("n1", 0)
    other = POD | {"name": "q", "uid": "u2"}

    by_hand = _audited(log)
    both = _audited(log.commit(kind="ADDED", verb="create", obj=other).commit(sub="status", obj=other, node="n9"))

    assert {v.invariant for v in by_hand.violations} >= {"I2"}
    assert (by_hand.count, by_hand.by_hand) == (0, len(by_hand.violations))
    counted = [v for v in both.violations if not v.by_hand]
    assert ({v.objects for v in counted}, {v.invariant for v in counted}) == ({("Pod default/q",)}, {"I2", "I24"})
    assert both.count == len(counted)
