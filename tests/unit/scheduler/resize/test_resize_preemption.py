"""Deferred resizes: who is queued, what an attempt finds, who wakes whom (kep-5836), without any loop."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from scheduler.cache.cache import Cache
from scheduler.cache.nominator import Nominator
from scheduler.entry import Handle
from scheduler.framework.world import FixedWorld
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import Pool
from scheduler.resize.cycle import Waits
from scheduler.resize.rules import rules_of
from scheduler.wiring import core_of
from services.api.kinds.node import Node, NodePodPreemptionPolicy
from services.api.kinds.pod import Container, ContainerStatus, Pod, PodSchedulingGroup, ResourceRequirements
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Condition, Key
from services.api.switches import Switches

LOW, MID, HIGH = 0, 200, 300


def asks(cpu):
    return ResourceRequirements(requests={"cpu": f"{cpu}m"})


class Scene:
    """A scheduler's core, fed with what the watch shows."""

    def __init__(self, a, *objects, **switches):
        chosen = {name.replace("__", "."): value for name, value in switches.items()}
        self.a = a
        self.handle = Handle(
            switches=Switches({"InPlacePodVerticalScalingSchedulerPreemption": True, **chosen}),
            cache=Cache(),
            nominator=Nominator(),
            world=FixedWorld(*objects),
            exclusions=Exclusions(),
            random=random.Random(7),
            wall=lambda: 1_767_225_600.0,
        )
        if self.handle.switches.flag("GenericWorkload"):
            self.handle.groups.is_on = True
        self.core = core_of(self.handle)
        self.queue, self.cycle = self.core.queue, self.core.resizes.cycle
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.now = 0.0
        self._rv = 0

    def node(self, cpu, name="n1", *, pods="110", owners=(), annotations=None):
        """Show the node, of so many millicores."""
        made = self.a.node(name, cpu=f"{cpu}m", pods=pods)
        policy = NodePodPreemptionPolicy(tuple(owners)) if owners else None
        made = replace(
            made,
            spec=replace(made.spec, pod_preemption_policy=policy),
            metadata=replace(made.metadata, annotations=annotations or {}),
        )
        before, self.nodes[name] = self.nodes.get(name), made
        self.core.handlers.on_node(before, made, self.now)
        return self

    def pod(
        self,
        name,
        desired,
        has=None,
        priority=LOW,
        *,
        actual=None,
        node="n1",
        pending="",
        group="",
        labels=None,
        start="",
        deleting=False,
        conditions=(),
        **spec,
    ):
        """Show the pod that asks for `desired` millicores; `has`: what it was allocated, and has, unless `actual` says."""
        has = desired if has is None else has
        made = self.a.pod(
            name,
            node=node,
            priority=priority,
            labels=labels,
            phase="Running",
            containers=(Container(name="c", resources=asks(desired)),),
            scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None,
            **spec,
        )
        said = (Condition(type="PodScheduled", status="True"), *conditions)
        if pending:
            said += (Condition(type="PodResizePending", status="True", reason=pending),)
        self._rv += 1
        status = ContainerStatus(
            name="c", allocated_resources={"cpu": f"{has}m"}, resources=asks(has if actual is None else actual)
        )
        made = replace(
            made,
            metadata=replace(
                made.metadata,
                resource_version=str(self._rv),
                deletion_timestamp="2026-01-01T00:00:30Z" if deleting else None,
            ),
            status=replace(
                made.status,
                conditions=said,
                container_statuses=(status,) if node else (),
                start_time=start or "2026-01-01T00:00:00Z",
            ),
        )
        before, self.pods[name] = self.pods.get(name), made
        self.core.handlers.on_pod(before, made, self.now)
        return self

    def deferred(self, name, desired, has, priority=HIGH, **more):
        return self.pod(name, desired, has, priority, pending="Deferred", **more)

    def cpu_of(self, name):
        """Return what the pod as shown last asks for, in millicores."""
        return int(self.pods[name].spec.containers[0].resources.requests["cpu"].removesuffix("m"))

    def gone(self, name):
        self.core.handlers.on_pod(self.pods.pop(name), None, self.now)
        return self

    def attempt(self):
        """Make the next attempt; return its outcome, None when no pod is ready."""
        self.queue.flush(self.now)
        queued = self.queue.pop(self.now)
        if queued is None:
            return None
        outcome = self.cycle.decide(queued.info)
        self.core.resizes.settle(queued, outcome, self.now)
        return outcome

    def victims(self):
        outcome = self.attempt()
        return [pod.key.name for pod in outcome.eviction.victims] if outcome.eviction is not None else []

    def pool(self, name):
        queued = self.queue.get(Key("default", name))
        return queued.pool if queued is not None else Pool.NONE

    def attempts(self, name):
        return self.queue.get(Key("default", name)).attempts

    def later(self, seconds=60.0):
        """Let all back-offs pass."""
        self.now += seconds
        self.queue.flush(self.now)
        return self


@pytest.fixture
def scene(a):
    return lambda *objects, **switches: Scene(a, *objects, **switches)


# -- the gate -------------------------------------------------------------------------------------------


def test_without_the_gate_the_scheduler_ignores_deferred_resizes(cluster, a):
    assert rules_of(Switches()) is None
    world = cluster().nodes(a.node("n1"))

    world.pods(
        replace(
            a.pod("h", cpu="3", node="n1"),
            status=replace(
                a.pod("h").status, conditions=(Condition(type="PodResizePending", status="True", reason="Deferred"),)
            ),
        )
    )

    assert world.queue.pop(0.0) is None


def test_a_generation_is_a_set_of_answers_of_which_two_can_be_chosen_apart():
    on = {"InPlacePodVerticalScalingSchedulerPreemption": True}

    fourth = rules_of(Switches({**on, "resize.generation": "G4"}))
    mixed = rules_of(Switches({**on, "resize.generation": "G4", "resize.double_preemption": "accept"}))

    assert (fourth.on_fit, fourth.double_preemption) == ("complete_bind", "spec_node_name")
    assert (mixed.on_fit, mixed.double_preemption) == ("complete_bind", "accept")
    assert not rules_of(Switches({**on, "resize.generation": "G0"})).looks_first


# -- victims --------------------------------------------------------------------------------------------


def test_kep_5836_01_a_single_victim_leaves_and_the_pod_keeps_its_status(scene):
    s = scene().node(300).pod("v", 200).deferred("h", 300, 100)

    outcome = s.attempt()

    assert [pod.key.name for pod in outcome.eviction.victims] == ["v"]
    assert outcome.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert (outcome.eviction.node, s.pool("h")) == ("n1", Pool.UNSCHEDULABLE)
    assert s.handle.nominator.node_of("h") == ""


def test_kep_5836_02_two_victims_leave_when_both_must_and_one_when_one_does(scene):
    both = scene().node(300).pod("v1", 100).pod("v2", 100).deferred("h", 300, 100)
    one = scene().node(350).pod("v1", 200).pod("v2", 50).deferred("h", 300, 100)

    assert sorted(both.victims()) == ["v1", "v2"]
    assert one.victims() == ["v1"]


def test_kep_5836_03_a_pod_that_never_preempts_stays_deferred_and_queued(scene):
    s = scene().node(300).pod("v", 200).deferred("h", 300, 100, preemption_policy="Never")

    outcome = s.attempt()

    assert outcome.eviction is None
    assert outcome.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert s.pool("h") is Pool.UNSCHEDULABLE


def test_equal_priority_is_never_a_victim(scene):
    s = scene().node(300).pod("v", 200, priority=HIGH).deferred("h", 300, 100)

    assert "No preemption victims found" in s.attempt().message


def test_kep_5836_04_an_infeasible_resize_is_not_queued_and_counts_what_it_has(scene):
    s = scene().node(300).pod("h", 400, 100, HIGH, pending="Infeasible")

    assert s.pool("h") is Pool.NONE
    assert s.handle.cache.nodes["n1"].requested["cpu"] == 100


def test_kep_5836_06_what_is_deferred_is_reserved(scene):
    s = scene().node(2000).deferred("h", 1500, 500).pod("l", 500)

    assert s.handle.cache.nodes["n1"].requested["cpu"] == 2000
    s.pod("n", 100, node="")
    s.attempt()
    result = s.core.profiles.of(s.queue.get(Key("default", "n")).info).cycle.schedule(
        s.queue.get(Key("default", "n")).info, 0.0
    )
    assert "Insufficient cpu" in result.diagnosis.message


def test_kep_5836_08_what_eviction_cannot_cure_evicts_no_pod_until_less_is_asked_for(scene):
    s = scene().node(300).pod("v", 100).pod("o", 150, priority=HIGH).deferred("h", 250, 50)

    assert s.victims() == []
    s.later().deferred("h", 150, 50)

    assert s.later().victims() == ["v"]


def test_kep_5836_10_over_eviction_of_deferred_victims_and_the_kubelets_way_of_counting(scene):
    def run(**switches):
        s = scene(**switches).node(2000)
        for name in ("p2", "p3", "p4"):
            s.deferred(name, 2000, 500, LOW)
        return s.deferred("p1", 1000, 500, HIGH).victims()

    assert sorted(run()) == ["p2", "p3", "p4"]
    assert len(run(resize__reprieve_uses_allocated=True)) == 1


def test_kep_5836_12_a_budget_spares_the_lesser_pod_unless_there_is_no_other_way(scene):
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    pdb = msgspec.convert(budget, PodDisruptionBudget)
    both = scene(pdb).node(400).pod("low", 100, labels={"app": "web"}).pod("mid", 200, priority=MID)
    alone = scene(pdb).node(300).pod("low", 200, labels={"app": "web"})

    assert both.deferred("h", 300, 100).victims() == ["mid"]
    assert alone.deferred("h", 300, 100).victims() == ["low"]


def test_kep_5836_13_two_resizes_evict_no_more_than_both_need(scene):
    s = scene().node(500).pod("v1", 100).pod("v2", 100).pod("v3", 100)
    s.deferred("p1", 200, 100).deferred("p2", 200, 100)

    first = s.victims()
    for name in first:
        s.gone(name)
    second = s.attempt()

    assert len(first) == 2
    assert second.fits


def test_kep_5836_16_a_group_leaves_as_one_or_member_by_member(scene):
    def run(mode):
        group = msgspec.convert(
            {
                "metadata": {"name": "g", "namespace": "default"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {mode: {}}, "priority": LOW},
            },
            PodGroup,
        )
        s = scene(group, GenericWorkload=True).node(300, "n1").node(400, "n2")
        s.pod("g1", 200, group="g").pod("g2", 200, node="n2", group="g")
        return sorted(s.deferred("h", 300, 100).victims())

    assert run("all") == ["g1", "g2"]
    assert run("single") == ["g1"]


def test_a_deferred_member_of_a_group_is_queued_alone(scene):
    s = scene(GenericWorkload=True).node(300).pod("v", 200)

    s.deferred("h", 300, 100, group="a-group-that-is-not-there")

    assert s.victims() == ["v"]


# -- what fits ------------------------------------------------------------------------------------------


def test_kep_5836_05_a_resize_that_fits_is_parked_or_leaves_the_queue(scene):
    third = scene().node(300).deferred("h", 300, 100)
    fourth = scene(resize__generation="G4").node(300).deferred("h", 300, 100)

    parked, request_release = third.attempt(), fourth.attempt()

    assert (parked.waits_for, parked.plugin, parked.eviction) == (Waits.KUBELET, "DeferredPodScheduling", None)
    assert third.pool("h") is Pool.UNSCHEDULABLE
    assert (request_release.waits_for, fourth.pool("h")) == (Waits.NOTHING, Pool.NONE)


def test_the_first_generation_looks_for_victims_before_it_looks_whether_it_must(scene):
    s = scene(resize__generation="G0").node(400).pod("v", 100).deferred("h", 300, 100)

    outcome = s.attempt()

    assert (outcome.eviction, s.cycle.attempts) == (None, 1)


def test_a_node_full_of_pods_refuses_its_own_unless_the_count_is_adjusted(scene):
    def run(**switches):
        return scene(**switches).node(1000, pods="1").deferred("h", 300, 100).attempt()

    assert run().reasons == ("Too many pods",)
    assert run(resize__adjust_pod_count=True).fits


def test_what_the_node_could_never_give_is_no_reason_to_evict(scene):
    s = scene().node(300).pod("v", 200).deferred("h", 400, 100)

    outcome = s.attempt()

    assert (outcome.eviction, s.cycle.attempts) == (None, 0)


# -- the node's policy ----------------------------------------------------------------------------------


def test_kep_5836_11_a_node_opts_out_until_its_last_owner_takes_that_back(scene):
    s = scene().node(300, owners=["ops/x"]).pod("v", 200).deferred("h", 300, 100)

    first = s.attempt()
    s.later().node(300, owners=["ops/x", "ops/y"]).node(300, owners=["ops/y"])
    still = s.later().attempt()
    s.node(300)

    assert "node had resize preemption disabled" in first.message
    assert still is None
    assert s.later().victims() == ["v"]


@pytest.mark.parametrize(("generation", "condition"), [("G1", "ResizePreemptionDisabled"),
                                                       ("G2", "PodResizePreemptionDisabled")])  # fmt: skip
def test_early_generations_obey_the_kubelets_condition_and_start_when_it_is_cleared(scene, generation, condition):
    s = scene(resize__generation=generation).node(300).pod("v", 200)
    disabled = (Condition(type=condition, status="True", reason="ByPolicy"),)

    s.deferred("h", 300, 100, conditions=disabled)
    at_start = s.pool("h")
    s.deferred("h", 300, 100)
    cleared = s.pool("h")
    s.deferred("h", 300, 100, conditions=disabled)

    assert (at_start, cleared, s.pool("h")) == (Pool.NONE, Pool.ACTIVE, Pool.NONE)
    s.deferred("h", 300, 100)
    assert s.victims() == ["v"]


def test_in_the_third_draft_the_scheduler_does_not_read_the_nodes_policy(scene):
    s = scene(resize__generation="G2").node(300, owners=["ops/x"]).pod("v", 200)

    assert s.deferred("h", 300, 100).victims() == ["v"]


# -- who wakes whom -------------------------------------------------------------------------------------


def full(scene, **switches):
    """A deferred pod that was refused, on n1; another node has a pod, too."""
    s = scene(**switches).node(200, "n1").node(200, "n2").pod("other", 200, priority=HIGH).pod("far", 200, node="n2")
    s.deferred("d", 100, 50, LOW)
    assert not s.attempt().fits
    return s.later()


def test_kep_5836_07_only_events_of_its_own_node_wake_a_deferred_pod(scene):
    s = full(scene)

    s.gone("far").pod("other", 200, priority=HIGH, labels={"a": "b"}).node(900, "n2")
    untouched = s.attempts("d"), s.pool("d")
    s.pod("other", 100, priority=HIGH)

    assert untouched == (1, Pool.UNSCHEDULABLE)
    assert s.attempt().fits
    assert s.attempts("d") == 2


@pytest.mark.parametrize("happens", [lambda s: s.gone("other"), lambda s: s.node(900, "n1"),
                                     lambda s: s.deferred("d", 80, 50, LOW)])  # fmt: skip
def test_capacity_on_its_node_or_a_smaller_request_wakes_a_deferred_pod(scene, happens):
    s = full(scene)

    happens(s)

    assert s.pool("d") is Pool.ACTIVE


def test_with_any_event_a_deferred_pod_is_woken_from_afar(scene):
    s = full(scene, resize__retry_scope="any_event")

    s.gone("far")

    assert s.pool("d") is Pool.ACTIVE


def test_a_shrinking_pod_wakes_only_when_its_node_says_that_it_shrank(scene):
    s = full(scene)

    s.pod("other", 100, 200, priority=HIGH)
    asked = s.pool("d")
    s.pod("other", 100, 100, priority=HIGH)

    assert asked is Pool.UNSCHEDULABLE
    assert s.pool("d") is Pool.ACTIVE


@pytest.mark.parametrize(
    ("switches", "pool"),
    [
        ({}, Pool.UNSCHEDULABLE),
        ({"resize__parked_wakeup": "fit_scaleup_hint"}, Pool.ACTIVE),
        ({"resize__generation": "G4"}, Pool.ACTIVE),
    ],
)
def test_kep_5836_09_a_competitor_that_grows_wakes_a_pod_that_fitted_by_generation(scene, switches, pool):
    s = scene(**switches).node(1000).pod("a", 200, priority=MID).pod("c", 200, priority=HIGH).pod("b", 500)
    s.deferred("a", 600, 200, MID)
    assert s.victims() == ["b"]
    s.gone("b").later()
    assert s.attempt().fits

    s.later().pod("c", 700, 200, priority=HIGH)  # its kubelet has not judged that yet
    woken = s.pool("a")
    s.pod("c", 700, 700, priority=HIGH)
    again = s.attempt()

    assert woken is pool
    if woken is Pool.ACTIVE:
        assert (again.fits, again.eviction, s.pool("a")) == (False, None, Pool.UNSCHEDULABLE)
    else:
        assert again is None


def test_kep_5836_17_a_resize_taken_back_leaves_the_queue(scene):
    s = scene().node(300).pod("v", 200).deferred("h", 300, 100)

    s.pod("h", 100, priority=HIGH)

    assert (s.pool("h"), s.attempt()) == (Pool.NONE, None)


def test_kep_5836_18_a_deferred_pod_that_is_deleted_is_forgotten(scene):
    s = full(scene)

    s.gone("d")

    assert s.pool("d") is Pool.NONE
    assert s.core.resizes.pending() == {}
    assert "d" not in s.handle.cache.pods


def test_a_deferred_pod_that_is_being_deleted_does_not_preempt(scene):
    s = scene().node(300).pod("v", 200).deferred("h", 300, 100)

    s.deferred("h", 300, 100, deleting=True)

    assert s.attempt() is None


def test_a_competitor_that_was_deferred_and_left_wakes_the_others(scene):
    s = scene().node(300).deferred("a", 200, 100, HIGH).deferred("b", 200, 100, MID)
    assert s.attempt().fits is False  # both counted with what they ask for
    s.attempt()

    s.later().gone("a")

    assert s.attempt().pod.key.name == "b"


# -- superseded, and preempting twice -------------------------------------------------------------------


def test_a_superseded_resize_counts_as_its_spec_says_or_with_the_larger_request(scene):
    def run(**switches):
        s = scene(**switches).node(1000).deferred("h", 800, 100).deferred("h", 500, 100)
        held = s.handle.cache.nodes["n1"].requested["cpu"]
        s.pod("h", 500, 500, HIGH)
        return held, s.handle.cache.nodes["n1"].requested["cpu"]

    assert run() == (500, 500)
    assert run(resize__supersede="hold_max_until_resolved") == (800, 500)


@pytest.mark.parametrize(
    ("mode", "victims"), [("accept", ["w2"]), ("memory", ["w2"]), ("spec_node_name", [])]
)  # memory does not survive a restart
def test_kep_5836_15_a_restarted_scheduler_preempts_again_unless_terminating_victims_hold_it(scene, mode, victims):
    leaving = (Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler"),)
    s = scene(resize__double_preemption=mode).node(500)
    s.pod("v", 200, start="2026-01-01T00:00:02Z", deleting=True, conditions=leaving)
    s.pod("w2", 200, start="2026-01-01T00:00:03Z")

    s.deferred("h", 300, 100)

    found = s.attempt()
    pending = [pod.key.name for pod in found.eviction.pending] if found.eviction is not None else []
    assert pending == victims


def test_memory_of_an_eviction_keeps_a_running_scheduler_from_evicting_more(scene):
    leaving = (Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler"),)
    s = scene(resize__double_preemption="memory").node(500)
    s.pod("w", 200, start="2026-01-01T00:00:01Z").pod("v", 200, start="2026-01-01T00:00:02Z").deferred("h", 300, 100)
    assert s.victims() == ["v"]
    s.pod("v", 200, start="2026-01-01T00:00:02Z", deleting=True, conditions=leaving)

    s.gone("w").later()
    s.pod("w2", 200, start="2026-01-01T00:00:03Z")

    assert "terminating pod" in s.attempt().message


# -- new pods ---------------------------------------------------------------------------------------------


def test_kep_5836_14_a_newcomer_that_matters_more_evicts_the_whole_resizing_pod(scene):
    s = scene().node(1000).pod("x", 300, priority=HIGH).deferred("r", 800, 300, MID)
    s.attempt()
    s.pod("n", 400, priority=HIGH, node="")
    info = s.queue.get(Key("default", "n")).info

    result = s.core.profiles.of(info).cycle.schedule(info, 0.0)

    (eviction,) = result.post_filter.actions
    assert [pod.key.name for pod in eviction.victims] == ["r"]


def test_kep_5836_20_new_pods_come_and_go_and_no_deferred_pod_of_another_node_is_looked_at(scene):
    s = scene().node(9000, "n0")
    for number in range(1, 101):
        s.node(200, f"n{number}").pod(f"o{number}", 150, priority=HIGH, node=f"n{number}")
        s.deferred(f"d{number}", 100, 50, LOW, node=f"n{number}")
    while s.attempt() is not None:
        pass
    s.later()

    for number in range(50):
        s.pod(f"new{number}", 100, node="").pod(f"new{number}", 100, node="n0")
        s.gone(f"new{number}")
    untouched = s.queue.pools[Pool.UNSCHEDULABLE]
    s.gone("o7")

    assert untouched == 100
    assert s.attempt().pod.key.name == "d7"
    assert s.attempt() is None


# -- what the sources name as tests, and no scenario says (kep-5836 18) --------------------------------------


def test_kep_5836_18_a_scheduler_that_starts_queues_what_is_deferred_already(scene):
    s = scene().node(300).pod("v", 200)

    s.deferred("h", 300, 100)  # the first that is ever seen of it

    assert (s.pool("h"), s.victims()) == (Pool.ACTIVE, ["v"])


def test_kep_5836_18_a_pod_is_queued_when_its_kubelet_says_deferred_and_not_before(scene):
    s = scene().node(300).pod("v", 200).pod("h", 100, priority=HIGH)

    s.pod("h", 300, 100, HIGH)
    asked = s.pool("h")
    s.deferred("h", 300, 100)

    assert (asked, s.pool("h")) == (Pool.NONE, Pool.ACTIVE)


@pytest.mark.parametrize("profile", ["default-scheduler", "another"])
def test_kep_5836_18_another_schedulers_pods_are_none_of_ours(scene, profile):
    s = scene().node(300).pod("v", 200).deferred("h", 300, 100, scheduler_name=profile)

    assert s.pool("h") is (Pool.ACTIVE if profile == "default-scheduler" else Pool.NONE)


@pytest.mark.parametrize(("generation", "again"), [("G3", True), ("G4", False)])
def test_kep_5836_18_during_a_long_grace_only_the_beta_spares_the_others(scene, generation, again):
    leaving = (Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler"),)
    s = scene(resize__generation=generation).node(600)
    s.pod("v", 200, start="2026-01-01T00:00:02Z").pod("w", 200, start="2026-01-01T00:00:01Z").pod("o", 100)
    s.deferred("h", 400, 100)  # 900 are asked for: v and o go, or so
    first = s.victims()
    for name in first:
        s.pod(name, s.cpu_of(name), start="2026-01-01T00:00:02Z", deleting=True, conditions=leaving)

    s.later().deferred("h", 350, 100)  # a reason to look again while they leave
    outcome = s.attempt()

    assert len(first) == 2
    assert ("terminating pod" in outcome.after) is not again
    assert outcome.is_guarded is not again


def test_kep_5836_18_a_policy_wakes_only_where_it_ends_and_only_on_its_own_node(scene):
    s = scene().node(300, owners=["ops/x"]).node(300, "n2", owners=["ops/x"]).pod("v", 200).deferred("h", 300, 100)
    s.attempt()
    s.later()

    s.node(300, "n2")
    elsewhere = s.pool("h")
    s.node(300, owners=["ops/y"])
    still = s.pool("h")
    s.node(300)

    assert (elsewhere, still, s.pool("h")) == (Pool.UNSCHEDULABLE, Pool.UNSCHEDULABLE, Pool.ACTIVE)


def test_kep_5836_18_a_policy_that_begins_wakes_no_pod(scene):
    s = full(scene)

    s.node(200, "n1", owners=["ops/x"])

    assert s.pool("d") is Pool.UNSCHEDULABLE


def test_kep_5836_18_a_node_that_comes_wakes_pods_that_ran_there_before_it_was_known(scene):
    s = scene().pod("v", 200).deferred("h", 300, 100)
    unknown = s.attempt()

    s.later().node(300)

    assert "the pod's node is not known" in unknown.message
    assert s.victims() == ["v"]


def test_kep_5836_18_of_two_deferred_pods_the_higher_evicts_the_lower_where_it_must(scene):
    s = scene().node(1000).deferred("low", 600, 300, MID).deferred("high", 800, 400, HIGH)

    assert s.attempt().eviction.victims[0].key.name == "low"
    assert "No preemption victims found" in s.attempt().message


def test_kep_5836_18_short_of_memory_only_a_pod_still_fails_on_cpu_that_another_has_overbooked(scene, a):
    s = scene().node(1000).deferred("d", 900, 300, HIGH)
    s.pod("h", 200, priority=HIGH, pending="Deferred")  # its own request is another matter than cpu

    s.attempt()
    assert s.attempt().reasons == ("Insufficient cpu",)
