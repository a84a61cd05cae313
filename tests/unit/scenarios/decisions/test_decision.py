"""Which lines of an event log are decisions, about which role."""

import msgspec
import pytest

from lab.scenarios.decisions.decision import Decisions
from services.telemetry.eventlog import Line


def line(ev, kind="Pod", name="p", uid="u", ns="default", *, at_s=1.0, node="", comp="scheduler", identity="", **data):
    obj = {"kind": kind, "ns": ns, "name": name, "uid": uid}
    return Line(1, 1, int(at_s * 1e9), "", comp, "0", ev, obj=obj, node=node, identity=identity, data=data)


def commit(kind, name, uid, type_="ADDED", ns="default", *, identity="", **data):
    made = line("store.commit", kind, name, uid, ns, comp="apiserver", identity=identity)
    return msgspec.structs.replace(made, data={"type": type_, **data})


def decided(*lines):
    reader = Decisions()
    return [found for each in lines if (found := reader.of(each)) is not None]


def roles(*lines):
    """The roles of the pods of these commits, in the order of their deletion, which is a decision about each."""
    uids = [(each.obj["name"], each.obj["uid"], each.obj["ns"], each.obj["kind"]) for each in lines]
    gone = [commit(kind, name, uid, "DELETED", ns) for name, uid, ns, kind in uids]
    return [found.role for found in decided(*lines, *gone)]


def test_a_bare_pod_is_its_name_and_one_of_the_same_name_the_next():
    assert roles(commit("Pod", "p", "u1"), commit("Pod", "p", "u2")) == ["pod/p", "pod/p#1"]


def test_pods_of_an_owner_are_counted_in_the_order_of_creation():
    assert roles(
        commit("ReplicaSet", "web", "rs"),
        commit("Pod", "web-x7k2p", "u1", owners=["rs"]),
        commit("Pod", "web-abcde", "u2", owners=["rs"]),
    ) == ["replicaset/web", "replicaset/web#0", "replicaset/web#1"]


def test_pods_of_a_deployment_are_counted_over_its_revisions():
    found = roles(
        commit("Deployment", "web", "d"),
        commit("ReplicaSet", "web-5d4f", "rs1", owners=["d"]),
        commit("Pod", "web-5d4f-aaaaa", "u1", owners=["rs1"]),
        commit("ReplicaSet", "web-77bc", "rs2", owners=["d"]),
        commit("Pod", "web-77bc-bbbbb", "u2", owners=["rs2"]),
    )

    assert found == [
        "deployment/web",
        "deployment/web/replicaset#0",
        "deployment/web#0",
        "deployment/web/replicaset#1",
        "deployment/web#1",
    ]


def test_a_role_names_every_namespace_but_default():
    assert roles(commit("Pod", "p", "u1", ns="shop")) == ["shop/pod/p"]


def test_a_pod_whose_owner_was_never_seen_is_its_name():
    assert roles(commit("Pod", "web-x7k2p", "u1", owners=["gone"])) == ["pod/web-x7k2p"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (line("sched.attempt", node="n1", outcome="scheduled"), ("sched.attempt", "scheduled", "n1")),
        (line("sched.attempt", outcome="unschedulable", nominated="n2"), ("sched.attempt", "unschedulable", "n2")),
        (line("sched.nominate", node="n1"), ("sched.nominate", "nominated", "n1")),
        (line("sched.bind_result", node="n1", outcome="conflict"), ("sched.bind_result", "conflict", "n1")),
        (line("kubelet.admit", node="n1", requests={}), ("kubelet.admit", "admitted", "n1")),
        (line("kubelet.admit", node="n1", adopted=True), ("kubelet.admit", "adopted", "n1")),
        (line("kubelet.reject", node="n1", reason="OutOfcpu"), ("kubelet.reject", "OutOfcpu", "n1")),
        (line("kubelet.unbind_call", node="n1", reason="OutOfcpu"), ("kubelet.unbind_call", "OutOfcpu", "n1")),
        (
            line("kubelet.resize", node="n1", requests={"memory": 5, "cpu": 2000}),
            ("kubelet.resize", "cpu=2000 memory=5", "n1"),
        ),
    ],
)
def test_what_schedulers_and_kubelets_decide_is_read_from_their_own_lines(given, what):
    (found,) = decided(given)

    assert found.what == what
    assert (found.role, found.name, found.at_s) == ("pod/p", "default/p", 1.0)


def test_a_victim_is_compared_with_the_role_that_it_leaves_for():
    created = [commit("ReplicaSet", "web", "rs"), commit("Pod", "web-x", "u1", owners=["rs"]), commit("Pod", "v", "u2")]

    found = decided(*created, line("sched.victim", name="v", uid="u2", node="n1", preemptor="u1"))

    assert [each.what for each in found] == [("sched.victim", "for replicaset/web#0", "n1")]


def test_steps_to_a_final_phase_are_decisions_and_each_is_one():
    found = decided(
        commit("Pod", "p", "u", phase="Pending"),
        commit("Pod", "p", "u", "MODIFIED", phase="Running", node="n1"),
        commit("Pod", "p", "u", "MODIFIED", phase="Failed", node="n1"),
        commit("Pod", "p", "u", "MODIFIED", phase="Failed", node="n1"),
    )

    assert [each.what for each in found] == [("phase", "Failed", "n1")]


@pytest.mark.parametrize(
    ("writer", "actor"),
    [
        ("system:node:n1", "kubelet"),
        ("system:serviceaccount:kube-system:pod-garbage-collector", "phase"),
        ("", "phase"),
    ],
)
def test_a_last_phase_that_a_node_writes_is_its_kubelets_decision(writer, actor):
    [found] = decided(commit("Pod", "p", "u", phase="Failed", node="n1", identity=writer))

    assert (found.component, found.actor) == (writer or "apiserver", ("pod/p", actor))


def test_a_deletion_is_decided_when_it_is_asked_for_by_who_asks():
    found = decided(
        commit("Pod", "p", "u"),
        commit("Pod", "p", "u", "MODIFIED", deletion="2026-01-01T00:00:00Z"),
        commit("Pod", "p", "u", "DELETED", deletion="2026-01-01T00:00:00Z"),
    )
    asked = line("store.commit", identity="system:controller:replicaset", type="DELETED")

    assert [each.event for each in found] == ["delete"]
    assert decided(asked)[0].what == ("delete", "by system:controller:replicaset", "")


@pytest.mark.parametrize("kind", ["Event", "Lease"])
def test_what_expires_by_itself_is_no_decision(kind):
    assert decided(commit(kind, "e", "u"), commit(kind, "e", "u", "DELETED")) == []


def test_what_a_store_had_before_its_log_began_was_decided_earlier():
    restart = commit("Pod", "old", "u", phase="Failed", replayed=True)

    assert decided(restart, commit("Pod", "old", "u", "MODIFIED", phase="Failed")) == []


def test_a_step_that_only_a_restarted_server_reports_counts_once():
    found = decided(
        commit("Pod", "p", "u", phase="Running"),
        commit("Pod", "p", "u", "MODIFIED", phase="Failed", replayed=True),
        commit("Pod", "p", "u", "MODIFIED", phase="Failed"),
    )

    assert [each.outcome for each in found] == ["Failed"]


@pytest.mark.parametrize("ev", ["api.request", "watch.event", "sched.assume", "kubelet.start"])
def test_other_lines_are_no_decisions(ev):
    assert decided(line(ev)) == []
