"""Why a pod is where it is: what was decided, what holds now, and what a client of the scheduler is answered."""

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from scheduler.cycle.attempt import Decision
from scheduler.explain.explanation import Explainer
from scheduler.explain.record_store import SimulatorRecords
from scheduler.queue.queued_pod import Pool
from scheduler.wiring import core_of
from services.api.kinds.pod import SchedulingGate
from services.api.meta import Condition, Key
from tests.unit.scheduler.conftest import new_handle

P = Key("default", "p")
NOW = 100.0


class Asked:
    """A scheduler's core, what its watch shows, and the explainer of it."""

    def __init__(self, a, *nodes, records=None):
        self.core, self.shown = core_of(new_handle()), {}
        for node in nodes or (a.node("n1"),):
            self.core.handlers.on_node(None, node, 0.0)
        self.explainer = Explainer(self.core, self.shown.get, lambda: NOW, records)

    def see(self, *pods, now=0.0, in_queue=True):
        for pod in pods:
            self.shown[pod.metadata.key] = pod
            if in_queue:
                self.core.handlers.on_pod(None, pod, now)
        return self

    def decided(self, outcome="unschedulable", **more):
        fields = {"uid": "p", "attempt": 3, "at_s": 40.0, "outcome": outcome, "message": "it did not fit", **more}
        self.core.decisions.keep(P, Decision(**fields))
        return self

    def rejected(self, now=10.0, plugins=("NodeResourcesFit",)):
        queue = self.core.queue
        queue.add_unschedulable(queue.pop(now), now, rejectors=plugins)
        return self

    @property
    def pod(self):
        return self.explainer.pod(P)


@pytest.fixture
def asked(a):
    return lambda *nodes, **more: Asked(a, *nodes, **more)


def test_of_a_pod_that_nothing_is_known_of_there_is_no_answer(asked):
    assert asked().pod is None


def test_a_pod_that_waits_is_explained_by_its_place_in_the_queue(asked, a):
    found = asked().see(a.pod("p", cpu="9")).rejected().pod

    assert (found["pod"], found["uid"], found["exists"], found["phase"], found["node"]) == (
        "default/p", "p", True, "Pending", "",
    )  # fmt: skip
    assert (found["pool"], found["attempts"], found["rejected_by"]) == ("unschedulable", 1, ["NodeResourcesFit"])
    assert (found["pool_since_s"], found["waiting_since_s"], found["gated_by"]) == (90.0, 100.0, "")
    assert found["since_s"] is None, "no cycle of it was recorded"
    assert any("Node" in event for event in found["wakes_on"])


def test_a_pod_in_its_back_off_says_when_it_is_tried_next_and_what_moved_it(asked, a):
    it = asked().see(a.pod("p", cpu="9")).rejected(now=99.5)
    it.core.handlers.on_node(None, a.node("n2", cpu="16"), 99.6)

    found = it.pod

    assert (found["pool"], found["next_attempt_in_s"]) == ("backoff", 1.0)
    assert found["moved_by"]


def test_what_was_decided_last_is_shown_with_its_age_and_what_the_nominator_knows_now_comes_first(asked, a):
    it = asked().see(a.pod("p", cpu="9")).rejected().decided(nominated_node="n9", victims=("default/v",))

    before = it.pod
    it.core.queue.nominator.set(it.core.queue.get(P).info, "n1")
    after = it.pod

    assert (before["since_s"], before["outcome"], before["message"], before["victims"]) == (
        60.0, "unschedulable", "it did not fit", ["default/v"],
    )  # fmt: skip
    assert (before["nominated_node"], after["nominated_node"]) == ("n9", "n1")


def test_of_a_pod_that_has_its_node_it_is_not_said_any_more_why_it_did_not_fit(asked, a):
    found = asked().see(a.pod("p", node="n1", phase="Running")).decided("scheduled", node="n9").pod

    assert (found["node"], found["phase"], found["message"], found["pool"]) == ("n1", "Running", "", "")
    assert (found["wakes_on"], found["would_fit_if"], found["devices"]) == ([], [], [])
    assert found["pool_since_s"] is None


def test_a_pod_that_is_gone_is_explained_by_its_last_decision(asked):
    found = asked().decided("scheduled", node="n9").pod

    assert (found["exists"], found["phase"], found["uid"], found["node"]) == (False, "", "p", "n9")
    assert found["message"] == "it did not fit"


def test_without_a_decision_of_its_own_a_scheduler_says_what_the_pods_condition_says(asked, a):
    condition = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available"
    )
    pod, plain = a.pod("p"), a.pod("p")
    said = replace(pod, status=replace(pod.status, conditions=(condition,)))

    assert asked().see(said, in_queue=False).pod["message"] == "0/3 nodes are available"
    assert asked().see(plain, in_queue=False).pod["message"] == ""
    assert asked().see(said, in_queue=False).decided().pod["message"] == "it did not fit"


def test_a_gated_pod_says_what_its_gate_says_now(asked, a):
    found = asked().see(a.pod("p", scheduling_gates=(SchedulingGate(name="wait.io/a"),))).decided().pod

    assert (found["pool"], found["gated_by"]) == ("gated", "SchedulingGates")
    assert "wait.io/a" in found["message"]


def test_a_pod_of_another_scheduler_says_for_whom_it_waits(asked, a):
    found = asked().see(a.pod("p", scheduler_name="other"), in_queue=False).pod

    assert found["message"] == "it waits for the scheduler 'other'; this one is default-scheduler"


def test_the_nodes_that_a_pod_was_unbound_from_are_named(asked, a):
    pod = a.pod("p", unbound=(("n1", "OutOfcpu", 600),))

    assert set(asked().see(pod).pod["excluded"]) == {"n1"}
    assert asked().see(a.pod("p")).pod["excluded"] == {}


def test_what_would_make_a_waiting_pod_fit_is_looked_up_when_it_is_asked(asked, a):
    it = asked(a.node("n1", cpu="2")).see(a.pod("p", cpu="3")).rejected()

    (change,) = it.pod["would_fit_if"]

    assert (change["dimension"], change["after"], change["nodes"]) == ("cpu", "2", ("n1",))
    assert it.core.queue.get(P).info.requests.amounts["cpu"] == 3000, "asking changes nothing"


def test_the_record_of_a_pod_is_shown_where_one_is_kept(asked, a):
    records = SimulatorRecords()
    records.keep("p", {"selected-node": "n1"})

    assert (
        "kube-scheduler-simulator.sigs.k8s.io/selected-node"
        in asked(records=records).see(a.pod("p")).pod["annotations"]
    )
    assert asked(records=records).see(a.pod("p", uid="another")).pod["annotations"] == {}
    assert "annotations" not in asked().see(a.pod("p")).pod


def test_the_queue_is_shown_by_pool_and_in_the_order_in_which_pods_came(asked, a):
    gates = (SchedulingGate(name="wait.io/a"),)
    it = asked().see(a.pod("rejected", cpu="9")).rejected()
    it.see(a.pod("gated", scheduling_gates=gates), now=11.0).see(a.pod("late", priority=7), now=13.0)
    it.see(a.pod("early", priority=7), now=12.0)
    it.core.queue.nominator.set(it.core.queue.get(Key("default", "late")).info, "n1")

    found = it.explainer.queue()

    assert [each["pod"] for each in found["pods"]] == [
        "default/early", "default/late", "default/rejected", "default/gated",
    ]  # fmt: skip
    assert {pool: count for pool, count in found["counts"].items() if count} == {
        Pool.ACTIVE.value: 2, Pool.UNSCHEDULABLE.value: 1, Pool.GATED.value: 1,
    }  # fmt: skip
    late = found["pods"][1]
    assert (late["priority"], late["nominated_node"], late["pool_since_s"]) == (7, "n1", 87.0)
    assert found["rejected_by_plugin"]["NodeResourcesFit"] == 1
    assert found["in_flight_events"] == 0


def test_the_documents_are_served_as_json_and_an_unknown_pod_is_not_found(asked, a):
    it = asked().see(a.pod("p"))
    routes = dict(it.explainer.routes())
    named = routes["/explain/{namespace}/{name}"]

    status, kind, body = named(SimpleNamespace(params={"namespace": "default", "name": "p"}))
    missing = named(SimpleNamespace(params={"namespace": "default", "name": "q"}))
    queue = routes["/explain/queue"](SimpleNamespace(params={}))

    assert (status, kind, msgspec.json.decode(body)["pod"]) == (200, "application/json", "default/p")
    assert missing == (404, "text/plain", b"pod default/q is not known to this scheduler\n")
    pods = routes["/explain/pods"](SimpleNamespace(params={}))
    assert (pods[:2], msgspec.json.decode(pods[2])) == ((200, "application/json"), {"pods": ["default/p"]})
    assert (queue[:2], len(msgspec.json.decode(queue[2])["pods"])) == ((200, "application/json"), 1)
