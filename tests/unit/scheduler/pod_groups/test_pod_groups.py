"""Groups without any loop: the queue's entities, the cycle's decisions, preemption's rules, the condition."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.framework.events import UNBOUND
from scheduler.framework.status import Code, Status
from scheduler.pod_groups.cycle import WAITING, GroupCycle, GroupResult, Outcome
from scheduler.pod_groups.placement import Placement, Rejected
from scheduler.pod_groups.queue import GroupInfo
from scheduler.preemption.eligibility import GROUP_IN_PROGRESS, GUARDED
from scheduler.preemption.units import Units
from scheduler.queue.queued_pod import Pool, QueuedPod
from scheduler.wiring import core_of
from services.api.kinds.pod import PodSchedulingGroup
from services.api.kinds.poddisruptionbudget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from services.api.kinds.podgroup import (
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupStatus,
    TopologyConstraint,
)
from services.api.meta import Condition, Key, LabelSelector, Mark, ObjectMeta
from services.api.switches import Switches
from tests.unit.scheduler.conftest import Worlds, new_handle

a = Worlds()
SHORT = "minCount (3) cannot be satisfied"


def group(name: str = "g", count: int | None = 2, *, priority: int = 0, whole: bool = False, **spec: Any) -> PodGroup:
    """A gang of `count`; None: basic."""
    policy = (
        PodGroupSchedulingPolicy(basic=Mark())
        if count is None
        else PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    )
    mode = DisruptionMode(all=Mark()) if whole else None
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", generation=1),
        spec=PodGroupSpec(scheduling_policy=policy, disruption_mode=mode, priority=priority, **spec),
    )


def member(name: str, of: str = "g", **pod: Any) -> Any:
    return a.pod(name, scheduling_group=PodSchedulingGroup(pod_group_name=of), **pod)


class Scene:
    """The scheduler's core with groups; `attempt` pops and runs one group cycle, and does to the queue what the loop does."""

    def __init__(self, *objects: Any, **switches: Any) -> None:
        values = {"GenericWorkload": True, "gang.generation": "W2", "gang.group_preemption": "cluster"}
        values |= {name.replace("__", "."): value for name, value in switches.items()}
        handle = new_handle(Switches(values), *objects)
        self.handle = type(handle)(**{**vars(handle), "groups": PodGroups(is_on=True)})
        self.core = core_of(self.handle)
        self.queue: Any = self.core.queue
        self.cache = self.core.cache

    def nodes(self, *names: str, cpu: str = "4") -> Scene:
        for name in names:
            self.core.handlers.on_node(None, a.node(name, cpu=cpu), 0.0)
        return self

    def see(self, *pods: Any, now: float = 0.0) -> Scene:
        for pod in pods:
            self.core.handlers.on_pod(None, pod, now)
        return self

    def gone(self, *pods: Any, now: float = 0.0) -> Scene:
        for pod in pods:
            self.core.handlers.on_pod(pod, None, now)
        return self

    def pop(self, now: float = 0.0) -> Any:
        self.queue.flush(now)
        return self.queue.pop(now)

    def attempt(self, now: float = 0.0) -> GroupResult:
        entity = self.pop(now)
        assert isinstance(entity.info, GroupInfo), entity
        assert self.core.group_cycle is not None
        result = self.core.group_cycle.run(entity.info, now)
        self.settle(entity, result, now)
        return result

    def settle(self, entity: Any, result: GroupResult, now: float) -> None:
        for placed in result.placed:
            self.queue.place(entity, placed.member)
        for rejected in result.rejected:
            self.queue.add_unschedulable(rejected.member, now, rejectors=rejected.rejectors)
            self.queue.nominator.set(rejected.member.info, rejected.nominated)
        self.queue.end_attempt(
            entity, now, rejectors=result.rejectors, pending=result.pending, has_placed=bool(result.placed)
        )

    @property
    def entity(self) -> Any:
        return self.queue.entities()[0]

    def counts(self) -> dict[str, int]:
        return {name: len(node.pods) for name, node in self.cache.nodes.items()}


def nodes_of(result: GroupResult) -> dict[str, str]:
    return {each.member.key.name: each.node_name for each in result.placed}


def victims_of(result: GroupResult) -> list[str]:
    return [victim.key.name for eviction in result.actions for victim in eviction.victims]


# -- the queue ---------------------------------------------------------------------------------------------


def test_a_member_is_seen_to_enter_the_pool_that_its_group_is_in_and_to_leave_it():
    scene, moves = Scene(group()).nodes("n1"), []
    scene.queue.on_move = lambda queued, pool, by, hint: moves.append((queued.key.name, pool.value))

    scene.see(member("a"), member("b"))
    joined = list(moves)
    scene.pop()
    scene.see(member("c"))
    scene.gone(member("c"))

    assert joined == [("a", "gated"), ("b", "gated"), ("a", "active"), ("b", "active")]
    assert moves[len(joined) :] == [("a", "in_flight"), ("b", "in_flight"), ("c", "in_flight"), ("c", "")]


def test_a_member_that_waits_at_the_gate_moves_once_however_many_join():
    scene, moves = Scene(group(count=50)).nodes("n1"), []
    scene.queue.on_move = lambda queued, pool, by, hint: moves.append((queued.key.name, pool.value, by))

    scene.see(*(member(f"p{i}") for i in range(49)))
    waiting = list(moves)
    scene.see(member("p49"))

    assert waiting == [(f"p{i}", "gated", "GangScheduling") for i in range(49)]
    assert moves[49:] == [
        ("p49", "gated", "GangScheduling"),
        *((f"p{i}", "active", "UnscheduledPodAdd") for i in range(50)),
    ]


def test_members_wait_as_one_entity_and_are_popped_together():
    scene = Scene(group(count=3)).nodes("n1").see(member("p1"), member("p2"))
    assert (scene.pop(), scene.entity.pool) == (None, Pool.GATED)
    assert scene.queue.get(Key("default", "p1")).pool is Pool.GATED

    scene.see(member("p3"))

    assert [each.key.name for each in scene.pop().info.in_order()] == ["p1", "p2", "p3"]
    assert scene.queue.is_in_flight("p1")
    assert scene.queue.get(Key("default", "p2")).attempts == 1


def test_groups_and_pods_are_ordered_by_the_groups_priority_then_by_time():
    scene = Scene(group(count=None, priority=5)).nodes("n1")
    scene.see(a.pod("low", priority=1), member("m", priority=5), a.pod("high", priority=9))

    assert [scene.pop().key.name for _ in range(3)] == ["high", "podgroup/g", "low"]


def test_a_member_that_arrives_during_the_cycle_waits_for_its_end():
    scene = Scene(group(count=1)).nodes("n1").see(member("p1", cpu="8"))
    entity = scene.pop()
    result = scene.core.group_cycle.run(entity.info, 0.0)
    scene.see(member("p2"))
    assert scene.pop() is None
    scene.queue.end_attempt(entity, 0.0, rejectors=result.rejectors, has_placed=False)

    assert nodes_of(scene.attempt(2.0)) == {"p2": "n1"}


def test_one_members_hint_wakes_the_whole_group_after_its_back_off():
    scene = Scene(group(count=2)).nodes("n1").see(a.pod("x", cpu="3", node="n1"))
    scene.see(member("p1", cpu="2"), member("p2", cpu="2"))
    assert scene.attempt().outcome is Outcome.UNSCHEDULABLE
    assert scene.entity.pool is Pool.UNSCHEDULABLE

    scene.gone(a.pod("x", cpu="3", node="n1"), now=0.1)

    assert scene.entity.pool is Pool.BACKOFF
    assert sorted(nodes_of(scene.attempt(2.0))) == ["p1", "p2"]


def test_a_hint_for_one_member_is_enough():
    scene = Scene(group(count=None)).nodes("n1")
    scene.see(member("p1", node_selector={"disk": "hdd"}), member("p2", node_selector={"disk": "ssd"}))
    scene.attempt()
    assert scene.entity.pool is Pool.UNSCHEDULABLE

    scene.core.handlers.on_node(None, a.node("n2", cpu="1", labels={"disk": "ssd"}), 0.1)

    assert scene.entity.pool is Pool.BACKOFF


def test_with_back_off_only_a_group_comes_back_without_any_event_and_not_before_its_back_off_is_over():
    scene = Scene(group(count=1), gang__retry="backoffOnly").nodes("n1").see(member("p1", cpu="9"))
    scene.attempt()

    assert scene.entity.pool is Pool.ERROR_BACKOFF
    assert scene.queue.pop(0.5) is None, "an idle scheduler must wait as well (KEP-5142)"
    assert scene.queue.next_deadline(0.5) <= 2.0


def test_a_groups_back_off_may_be_longer_than_a_pods():
    scene = Scene(group(count=1), gang__retry="backoffOnly", gang__backoff_max_s=60.0, SchedulerPopFromBackoffQ=False)
    scene.nodes("n1").see(member("p1", cpu="9"))
    now, waits = 0.0, []
    for _ in range(8):
        scene.attempt(now)
        due = scene.queue.next_deadline(now)
        waits.append(due - now)
        now = due

    assert waits[-3:] == [32.0, 60.0, 60.0]


def test_a_member_whose_bind_failed_joins_its_group_again():
    scene = Scene(group(count=2)).nodes("n1").see(member("p1"), member("p2"))
    result = scene.attempt()
    assert scene.queue.entities() == []
    failed = result.placed[0].member
    scene.cache.forget(failed.uid)

    scene.queue.add_unschedulable(failed, 1.0)

    assert list(scene.entity.info.members) == [failed.uid]
    assert scene.entity.pool is Pool.ERROR_BACKOFF


def test_a_member_that_must_wait_has_its_whole_group_wait_with_it():
    scene = Scene(group(count=1)).nodes("n1").see(member("p1"))

    queued = scene.queue.add_after(PodInfo(member("p2")), 0.0, 8.0, UNBOUND, traceparent="cause")

    assert (queued.not_before, queued.traceparent) == (8.0, "cause")
    assert sorted(scene.entity.info.members) == ["p1", "p2"]
    assert scene.pop(7.9) is None
    assert sorted(nodes_of(scene.attempt(8.0))) == ["p1", "p2"]


def test_a_pod_without_a_group_that_must_wait_waits_alone():
    scene = Scene(group(count=1)).nodes("n1").see(member("p1"))

    scene.queue.add_after(PodInfo(a.pod("alone")), 0.0, 8.0, UNBOUND)

    assert [each.key.name for each in (scene.pop(), scene.pop(8.0))] == ["podgroup/g", "alone"]


def test_a_group_whose_last_waiting_member_is_deleted_is_not_queued():
    scene = Scene(group(count=1)).nodes("n1").see(member("p1"))
    scene.gone(member("p1"))

    assert (scene.queue.entities(), scene.queue.all(), scene.pop()) == ([], [], None)


def test_the_metrics_have_pods_apart_from_groups_and_incomplete_from_pending():
    scene = Scene(group(count=3), group("h", count=1)).nodes("n1")
    scene.see(member("p1"), member("p2"), member("q", of="h"), a.pod("alone"))
    samples = scene.queue.metrics()

    assert samples['scheduler_queued_entities{queue="gated",type="PodGroup"}'] == 1
    assert samples['scheduler_queued_entities{queue="active",type="PodGroup"}'] == 1
    assert samples['scheduler_queued_entities{queue="active",type="Pod"}'] == 1
    assert samples['scheduler_pending_pods{queue="incomplete"}'] == 2
    assert samples['scheduler_pending_pods{queue="pending"}'] == 1


def test_preemption_18_a_lower_minimum_is_a_hint_and_the_gate_still_decides():
    scene = Scene(group(count=5)).nodes("n1").see(member("p1"), member("p2"), member("p3"))
    hint = next(
        r.hint
        for r in scene.core.profiles.registrations()["default-scheduler"]["GangScheduling"]
        if (r.event.resource, r.event.action.name) == ("PodGroup", "UPDATE_OTHER")
    )
    assert hint is not None
    pod = PodInfo(member("p1"))

    assert hint(pod, group(count=5), group(count=4)) == "Queue"
    assert hint(pod, group(count=3), group(count=6)) == "QueueSkip"
    assert hint(pod, group("h", count=5), group("h", count=4)) == "QueueSkip"
    scene.handle.world.put(group(count=4))
    assert not scene.core.profiles.pre_enqueue(pod).is_success


# -- the cycle ---------------------------------------------------------------------------------------------


def test_preemption_19_nothing_is_left_of_a_gang_that_does_not_fit():
    scene = Scene(group(count=3)).nodes("n1", "n2").see(*(member(f"p{i}", cpu="3") for i in range(3)))

    result = scene.attempt()

    assert (result.outcome, result.message.split(":")[0]) == (Outcome.UNSCHEDULABLE, SHORT)
    assert scene.counts() == {"n1": 0, "n2": 0}
    assert len(scene.queue.nominator) == 0


@pytest.mark.parametrize("generation", ["W1", "W2"])
def test_without_any_node_no_plugin_rejected_the_group_and_its_back_off_alone_tries_it_again(generation):
    scene = Scene(group(count=2), gang__generation=generation).see(*(member(f"p{i}") for i in range(2)))

    result = scene.attempt()

    assert result.outcome is Outcome.UNSCHEDULABLE
    assert (result.rejectors, result.pending) == (frozenset(), frozenset())
    assert result.rejected[0].status.message == "no nodes available to schedule pods"
    assert scene.pop(0.5) is None
    assert scene.pop(2.5) is not None


def test_members_keep_their_nominations_when_the_group_is_taken_back():
    scene = Scene(group(count=3)).nodes("n1", "n2").see(*(member(f"p{i}", cpu="3") for i in range(2)))
    scene.see(member("p2", cpu="9"))
    entity = scene.pop()
    scene.queue.nominator.set(entity.info.members["p0"].info, "n2")

    scene.core.group_cycle.run(entity.info, 0.0)

    assert scene.queue.nominator.node_of("p0") == "n2"


def test_the_cycle_stops_as_soon_as_the_minimum_is_out_of_reach():
    scene = Scene(group(count=3)).nodes("n1", cpu="1").see(*(member(f"p{i}", cpu="2") for i in range(3)))

    result = scene.attempt()

    assert result.message.startswith("minCount (3) cannot be satisfied: 0 scheduled, 2 remaining")
    own = {each.member.key.name: each.status.message.split(":")[0] for each in result.rejected}
    assert own == {"p0": "0/1 nodes are available", "p1": SHORT, "p2": SHORT}


def test_a_basic_group_binds_members_that_fit_and_tries_the_rest_again_at_once():
    scene = Scene(group(count=None)).nodes("n1").see(*(member(f"p{i}", cpu="3") for i in range(2)))

    first = scene.attempt()
    second = scene.attempt()

    assert (first.outcome, nodes_of(first)) == (Outcome.SCHEDULED, {"p0": "n1"})
    assert second.outcome is Outcome.UNSCHEDULABLE


def test_a_gangs_first_attempt_binds_what_fits_and_preempts_for_the_rest_only_next_time():
    scene = Scene(group(count=2, priority=10)).nodes("n1", "n2", "n3").see(a.pod("low", cpu="4", node="n3"))
    scene.see(*(member(f"p{i}", cpu="3", priority=10) for i in range(3)))

    first = scene.attempt()
    second = scene.attempt()

    assert (first.outcome, len(first.placed), victims_of(first)) == (Outcome.SCHEDULED, 2, [])
    assert (second.outcome, victims_of(second)) == (Outcome.WAITING_ON_PREEMPTION, ["low"])


def test_a_growing_gang_waits_for_capacity_before_it_binds_in_part():
    scene = Scene(group(count=1, priority=10)).nodes("n1", "n2").see(a.pod("low", cpu="4", node="n2"))
    scene.see(member("p0", cpu="1", node="n1", priority=10))
    scene.see(member("p1", cpu="3", priority=10), member("p2", cpu="3", priority=10))

    result = scene.attempt()

    assert (result.outcome, victims_of(result)) == (Outcome.WAITING_ON_PREEMPTION, ["low"])
    assert sorted(each.nominated for each in result.rejected) == ["n1", "n2"]
    assert scene.counts() == {"n1": 1, "n2": 1}


def test_a_growing_gang_that_preemption_cannot_help_binds_what_fits():
    scene = Scene(group(count=1)).nodes("n1").see(member("p0", cpu="1", node="n1"))
    scene.see(member("p1", cpu="3"), member("p2", cpu="3"))

    result = scene.attempt()

    assert (result.outcome, nodes_of(result)) == (Outcome.SCHEDULED, {"p1": "n1"})


def test_members_of_two_schedulers_fail_together():
    scene = Scene(group(count=2)).nodes("n1")
    scene.see(member("p1"))
    entity_members = [member("p1"), member("p2", scheduler_name="other")]
    info = GroupInfo(Key("default", "g"), _queued(entity_members[0]))
    info.members["p2"] = _queued(entity_members[1])

    result = scene.core.group_cycle.run(info, 0.0)

    assert result.outcome is Outcome.ERROR
    assert result.message == (
        "all pods in a single pod group should have the same .spec.schedulerName set, got: "
        '"default-scheduler" and "other"'
    )


def _queued(pod: Any) -> Any:
    return QueuedPod(PodInfo(pod), 0.0)


@pytest.mark.parametrize(("generation", "outcome"), [("W1", Outcome.SCHEDULED), ("W2", Outcome.ERROR)])
def test_preemption_22_a_members_own_priority_counts_from_w2_on(generation, outcome):
    scene = Scene(group(count=1, priority=1), gang__generation=generation).nodes("n1").see(member("p1", priority=2))

    assert scene.attempt().outcome is outcome


def test_in_w1_members_may_preempt_for_themselves_and_the_group_waits_for_all():
    scene = Scene(group(count=2, priority=10), gang__generation="W1", gang__group_preemption="per-pod")
    scene.nodes("n1", "n2").see(a.pod("v1", cpu="3", node="n1"), a.pod("v2", cpu="3", node="n2"))
    scene.see(member("p1", cpu="3", priority=10), member("p2", cpu="3", priority=10))

    result = scene.attempt()

    assert result.outcome is Outcome.WAITING_ON_PREEMPTION
    assert sorted(victims_of(result)) == ["v1", "v2"]
    assert {eviction.node for eviction in result.actions} == {"n1", "n2"}


# -- preemption --------------------------------------------------------------------------------------------


def _full(*, victims: tuple[Any, ...], **more: Any) -> Scene:
    """A gang of one that needs 3 CPUs on n1, where the victims run."""
    objects = more.pop("objects", (group(count=1, priority=100, **more.pop("spec", {})),))
    scene = Scene(*objects, **more.pop("switches", {})).nodes("n1").see(*victims)
    return scene.see(member("p", cpu="3", priority=100, **more))


def test_pods_that_can_stay_beside_the_placement_stay_the_most_important_first():
    scene = _full(victims=(a.pod("a", cpu="1", node="n1", priority=10), a.pod("b", cpu="2", node="n1", priority=5)))

    assert victims_of(scene.attempt()) == ["b"]
    assert scene.counts() == {"n1": 2}


def test_equal_priority_is_no_victim():
    result = _full(victims=(a.pod("a", cpu="4", node="n1", priority=100),)).attempt()

    assert victims_of(result) == []
    assert result.message.endswith("pod group preemption: No preemption victims found for incoming preemptor")


def test_a_group_whose_victims_are_being_evicted_evicts_no_others():
    scene = _full(victims=(a.pod("v", cpu="3", node="n1", priority=1),))
    entity = scene.pop()
    scene.handle.preempting.begin("uid-g")

    result = scene.core.group_cycle.run(entity.info, 0.0)

    assert victims_of(result) == []
    assert result.message.endswith(f"pod group preemption: {GROUP_IN_PROGRESS}")


@pytest.mark.parametrize(("priority", "is_guarded"), [(99, True), (100, False)])
def test_only_a_leaving_victim_of_lower_priority_on_the_nominated_node_holds_a_group_back(priority, is_guarded):
    scene = _full(victims=(_leaving("gone", priority), a.pod("v", cpu="3", node="n1", priority=1)))
    scene.queue.nominator.set(PodInfo(member("p", priority=100)), "n1")

    result = scene.attempt()

    assert victims_of(result) == ([] if is_guarded else ["v"])
    assert result.message.endswith(GUARDED) is is_guarded


def _leaving(name: str, priority: int) -> Any:
    """A victim of an earlier preemption that has not gone yet."""
    pod = a.pod(name, cpu="500m", node="n1", priority=priority)
    marked = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T10:00:00Z"),
        status=replace(pod.status, conditions=(marked,)),
    )


def _reasons(result: GroupResult) -> dict[str, str]:
    return {each.member.key.name: each.status.message for each in result.rejected}


def test_members_that_wait_for_victims_say_so_and_others_keep_their_own_reason():
    scene = Scene(group(count=2, priority=100)).nodes("n1", "n2")
    scene.see(a.pod("v1", cpu="3", node="n1", priority=1), a.pod("v2", cpu="3", node="n2", priority=1))
    scene.see(*(member(name, cpu=cpu, priority=100) for name, cpu in (("p0", "8"), ("p1", "3"), ("p2", "3"))))

    reasons = _reasons(scene.attempt())

    assert (reasons["p1"], reasons["p2"]) == (WAITING, WAITING)
    assert reasons["p0"].startswith("0/2 nodes are available: 2 Insufficient cpu.")


@pytest.mark.parametrize(("code", "own"), [(Code.ERROR, "it broke"), (Code.UNSCHEDULABLE, "the group's error")])
def test_after_an_error_members_that_were_merely_rejected_have_the_groups_reason(code, own):
    refused = Rejected(_queued(member("p1")), Status(code, ("it broke",)))
    found = Placement(
        status=Status(Code.ERROR, ("the group's error",)), rejected=[refused], untried=[_queued(member("p2"))]
    )

    result = GroupCycle._reject(Outcome.ERROR, found.status, found)

    assert _reasons(result) == {"p1": own, "p2": "the group's error"}


def test_a_group_of_mode_all_stays_or_goes_as_a_whole():
    v = group("v", count=2, priority=10, whole=True)
    scene = _full(objects=(group(count=1, priority=100), v), victims=()).nodes("n2")
    scene.see(
        member("v1", of="v", cpu="3", node="n1", priority=10), member("v2", of="v", cpu="3", node="n2", priority=10)
    )

    assert sorted(victims_of(scene.attempt())) == ["v1", "v2"]


def test_a_budget_keeps_the_pods_it_covers_if_others_will_do():
    covered = a.pod("a", cpu="1", node="n1", priority=1, labels={"app": "db"})
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "db"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    scene = _full(
        objects=(group(count=1, priority=100), budget), victims=(covered, a.pod("b", cpu="1", node="n1", priority=50))
    )

    assert victims_of(scene.attempt()) == ["b"]


def test_a_group_with_topology_constraints_does_not_preempt():
    constraints = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key="zone"),))
    scene = _full(spec={"scheduling_constraints": constraints}, victims=(a.pod("a", cpu="4", node="n1"),))

    assert scene.attempt().message.endswith("pod group preemption: not supported with topology constraints")


def test_members_that_never_preempt_keep_their_group_from_preempting():
    scene = _full(victims=(a.pod("a", cpu="4", node="n1"),), preemption_policy="Never")

    assert scene.attempt().message.endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


def test_while_a_victim_is_still_terminating_no_second_attempt_is_made():
    scene = _full(victims=(a.pod("a", cpu="4", node="n1"),))
    assert victims_of(scene.attempt()) == ["a"]
    leaving = a.pod("a", cpu="4", node="n1", rv=2)
    condition = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    leaving = _changed(leaving, deletion="2026-01-01T00:00:00Z", conditions=(condition,))
    scene.core.handlers.on_pod(a.pod("a", cpu="4", node="n1"), leaving, 1.0)
    scene.queue.activate([Key("default", "p")], 2.0)

    second = scene.attempt(2.0)

    assert victims_of(second) == []
    assert second.message.endswith("not eligible due to a terminating pod on the nominated node.")


def _changed(pod: Any, *, deletion: str, conditions: tuple[Condition, ...]) -> Any:
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=deletion),
        status=replace(pod.status, conditions=conditions),
    )


def test_while_its_evictions_run_the_group_waits_at_the_gate():
    scene = _full(victims=(a.pod("a", cpu="4", node="n1"),))
    scene.handle.preempting.begin("uid-g")

    status = scene.core.profiles.pre_enqueue(PodInfo(member("p")))

    assert status.reasons == ("waiting for the preemption for this pod group to be finished",)


def test_a_member_on_its_own_is_not_preempted_for():
    scene = Scene(group(count=1)).nodes("n1").see(a.pod("a", cpu="4", node="n1", priority=-1))
    cycle = scene.core.profiles.of(PodInfo(member("p"))).cycle

    refused = cycle.schedule(PodInfo(member("p", cpu="2", priority=5)), 0.0)

    assert refused.diagnosis.message.endswith("preemption: not eligible due to workload aware preemption enabled")


# -- units and conditions ----------------------------------------------------------------------------------


def test_units_are_whole_groups_of_mode_all_and_single_pods_with_their_groups_priority():
    scene = Scene(group("v", count=2, priority=10, whole=True), group("w", count=2, priority=20)).nodes("n1", "n2")
    scene.see(
        member("v1", of="v", node="n1", priority=99),
        member("v2", of="v", node="n2"),
        member("w1", of="w", node="n1"),
        a.pod("x", node="n1", priority=7),
    )
    units = Units(scene.handle.groups, scene.cache, scene.handle.world).of(scene.cache.nodes["n1"].pods.values())

    found = [(u.is_group, [p.key.name for p in u.pods], u.priority) for u in units]
    assert found == [(True, ["v1", "v2"], 10), (False, ["w1"], 20), (False, ["x"], 7)]


def test_known_members_wait_or_run_but_are_not_leaving():
    groups, key = PodGroups(is_on=True), Key("default", "g")
    for name, node in (("p1", ""), ("p2", "n1"), ("p3", "n1")):
        groups.on_pod(None, member(name, node=node))
    assert groups.count_members(key) == 3

    groups.on_pod(member("p3"), _changed(member("p3"), deletion="2026-01-01T00:00:00Z", conditions=()))
    groups.on_pod(member("p2"), member("p2", phase="Succeeded"))

    assert (groups.count_members(key), list(groups.uids(key))) == (1, ["p1", "p3"])


def test_the_condition_never_goes_back_from_true_and_is_written_once():
    done = Condition(type="PodGroupInitiallyScheduled", status="True", reason="Scheduled", observed_generation=1)
    scheduled = replace(group(), status=PodGroupStatus(conditions=(done,)))
    failed, placed = GroupResult(Outcome.UNSCHEDULABLE, "no"), GroupResult(Outcome.SCHEDULED)

    assert failed.condition(scheduled) is None
    again, found = placed.condition(scheduled), failed.condition(group())
    assert again is not None
    assert not again.changes(done)
    assert found is not None
    assert (found.status, found.reason, found.message, found.observed_generation) == ("False", "Unschedulable", "no", 1)
