"""The alternatives that KEP-5836 and its reviews discuss, each against the answer it replaces (kep-5836 16)."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.queue.scheduling_queue import Pool
from scheduler.resize.accounting import accounting_of
from scheduler.resize.cycle import DEGRADED
from scheduler.resize.resize_loop import apart
from services.api.kinds.pod import Container, ContainerStatus, ResourceRequirements
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Condition, Key
from services.api.switches import Switches
from services.telemetry.metrics import Samples, Series
from tests.unit.scheduler.resize.test_resize_preemption import HIGH, LOW, MID, Scene, asks

LEAVING = (Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler"),)


@pytest.fixture
def scene(a):
    return lambda *objects, **switches: Scene(a, *objects, **switches)


def schedule(s, name):
    """Run the cycle of a new pod; return its result."""
    info = s.queue.get(Key("default", name)).info
    return s.core.profiles.of(info).cycle.schedule(info, s.now)


# -- what counts for how much --------------------------------------------------------------------------------


def two_containers(a, reason=""):
    """a: 100m desired, 300m allocated; b: 300m desired, 100m allocated."""
    pod = a.pod(
        "p", node="n1", containers=(Container(name="a", resources=asks(100)), Container(name="b", resources=asks(300)))
    )
    statuses = tuple(
        ContainerStatus(name=name, allocated_resources={"cpu": f"{has}m"}, resources=asks(has))
        for name, has in (("a", 300), ("b", 100))
    )
    pending = (Condition(type="PodResizePending", status="True", reason=reason),) if reason else ()
    return replace(pod, status=replace(pod.status, container_statuses=statuses, conditions=pending))


@pytest.mark.parametrize(("granularity", "counts"), [("per_container", 600), ("aggregated", 400)])
def test_kep_5836_4_1_a_resize_that_shifts_capacity_between_containers_counts_by_container_or_by_pod(
    a, granularity, counts
):
    accounting = accounting_of(Switches({"resize.accounting": granularity}))
    info = PodInfo(two_containers(a))

    if accounting is not None:
        accounting.apply(info)

    assert info.requests.amounts["cpu"] == counts


def test_a_deferred_resize_counts_once_it_is_accepted_and_until_another_is_asked_for(a):
    accounting = accounting_of(Switches({"resize.reserved_space": "once_accepted"}))

    def counts(pod):
        info = PodInfo(pod)
        accounting.apply(info)
        return info.requests.amounts["cpu"]

    deferred = two_containers(a, "Deferred")
    spec = replace(deferred.spec, containers=(deferred.spec.containers[0], Container(name="b", resources=asks(500))))
    other = replace(deferred, spec=spec)
    before, accepted = counts(deferred), accounting.accept(deferred)

    assert (before, accepted.requests.amounts["cpu"]) == (400, 600)
    assert (counts(deferred), accounting.accept(deferred)) == (600, None)
    assert counts(two_containers(a)) == 600  # waits no more: as every pod
    assert counts(other) == 400
    accounting.forget(deferred.metadata.uid)
    assert counts(deferred) == 400


def test_a_whole_pod_that_its_node_calls_infeasible_counts_what_it_has(a):
    pod = two_containers(a, "Infeasible")
    pod = replace(
        pod,
        spec=replace(
            pod.spec, containers=(Container(name="a", resources=asks(900)), Container(name="b", resources=asks(900)))
        ),
    )
    info, again = PodInfo(pod), PodInfo(pod)
    accounting = accounting_of(Switches({"resize.accounting": "aggregated"}))

    accounting.apply(info)
    accounting.apply(again)

    assert info.requests.amounts["cpu"] == 400
    assert again.requests is info.requests


def test_kep_5836_14_a_new_pod_takes_what_is_not_actuated_if_so_configured(scene):
    s = scene(resize__reserved_space="ignore_unactuated").node(1000).pod("x", 300, priority=HIGH)
    s.deferred("r", 800, 300, MID)
    s.attempt()

    s.pod("n", 400, priority=HIGH, node="")
    s.pod("equal", 400, priority=MID, node="")

    assert schedule(s, "n").node_name == "n1"
    assert "Insufficient cpu" in schedule(s, "equal").diagnosis.message  # to it the request counts
    s.pod("n", 400, priority=HIGH)
    assert s.handle.cache.nodes["n1"].requested["cpu"] == 1500  # R's request counts again for all others
    assert s.pool("r") is Pool.UNSCHEDULABLE


def test_capacity_that_was_actuated_meanwhile_is_not_free(scene):
    s = scene(resize__reserved_space="ignore_unactuated").node(1000).deferred("r", 800, 300, MID)
    s.attempt()
    s.pod("n", 400, priority=HIGH, node="")
    unactuated = schedule(s, "n")

    s.pod("r", 800, 800, MID)  # costs what it cost, but all of it is actuated now
    given = schedule(s, "n")

    assert unactuated.node_name == "n1"
    assert [pod.key.name for eviction in given.post_filter.actions for pod in eviction.victims] == ["r"]


def test_in_the_newcomers_eyes_a_node_is_short_of_what_it_would_still_be_short_of(scene):
    s = scene(resize__reserved_space="ignore_unactuated").node(1000).deferred("r", 800, 700, MID)
    s.attempt()

    s.pod("n", 400, priority=HIGH, node="", preemption_policy="Never")
    s.pod("huge", 2000, priority=HIGH, node="", preemption_policy="Never")

    assert "1 Insufficient cpu" in schedule(s, "n").diagnosis.message
    assert "1 Insufficient cpu" in schedule(s, "huge").diagnosis.message


# -- the attempt -----------------------------------------------------------------------------------------------


def extended(a, s, name, desired, has, priority=LOW, pending=""):
    """Show a pod of 100m cpu with so many GPUs."""

    def size(count):
        return {"cpu": "100m", "example.com/gpu": str(count)}

    made = a.pod(
        name,
        node="n1",
        priority=priority,
        phase="Running",
        containers=(Container(name="c", resources=ResourceRequirements(requests=size(desired))),),
    )
    said = (Condition(type="PodResizePending", status="True", reason=pending),) if pending else ()
    status = ContainerStatus(
        name="c", allocated_resources=size(has), resources=ResourceRequirements(requests=size(has))
    )
    made = replace(made, status=replace(made.status, conditions=said, container_statuses=(status,)))
    s.core.handlers.on_pod(None, made, s.now)


def test_extended_resources_count_when_capacity_is_sought(scene, a):
    s = scene()
    s.core.handlers.on_node(None, a.node("n1", cpu="4", **{"example.com__gpu": "4"}), 0.0)
    extended(a, s, "v", 3, 3)
    extended(a, s, "h", 3, 1, HIGH, "Deferred")

    outcome = s.attempt()

    assert outcome.reasons == ("Insufficient example.com/gpu",)
    assert [pod.key.name for pod in outcome.eviction.victims] == ["v"]


def test_of_an_extended_resource_only_what_is_asked_for_beyond_must_be_there_at_all(scene, a):
    s = scene()
    s.core.handlers.on_node(None, a.node("n1", cpu="4", **{"example.com__gpu": "2"}), 0.0)
    extended(a, s, "v", 1, 1)
    extended(a, s, "h", 3, 3, HIGH, "Deferred")  # the node has shrunk since

    outcome = s.attempt()

    # Unlike 3 CPUs on a node of 2, that is not called hopeless: victims are sought, and there are none that help.
    assert (outcome.has_tried, outcome.eviction) == (True, None)


@pytest.mark.parametrize(("generation", "reasons"), [("G0", ()), ("G3", ("Too many pods",))])
def test_the_first_generation_takes_the_pod_off_its_node_while_it_looks(scene, generation, reasons):
    s = scene(resize__generation=generation).node(1000, pods="1").deferred("h", 300, 100)

    outcome = s.attempt()

    assert (outcome.reasons, s.cycle.attempts) == (reasons, 1)


@pytest.mark.parametrize("generation", ["G3", "G4"])
def test_counted_as_the_kubelet_counts_a_pod_that_fitted_is_tried_again_when_another_gets_the_capacity(
    scene, generation
):
    s = scene(resize__reprieve_uses_allocated=True, resize__generation=generation).node(2000)
    s.deferred("h", 800, 400, HIGH).deferred("m", 900, 400, MID).pod("k", 500)
    while s.attempt() is not None:
        pass
    s.later()
    before = s.pool("m")

    s.pod("h", 800, 800, HIGH)  # its kubelet actuated what it requested; to the scheduler it counts as it did

    assert before is (Pool.UNSCHEDULABLE if generation == "G3" else Pool.NONE)
    assert s.victims() == ["k"]


# -- the clock ---------------------------------------------------------------------------------------------------


def test_with_periodic_retry_the_clock_alone_wakes_a_deferred_pod(scene):
    s = scene(resize__retry_scope="periodic", resize__retry_period_s=20.0).node(200).pod("other", 200, priority=HIGH)
    s.deferred("d", 100, 50, LOW)
    s.attempt()
    resizes = s.core.resizes

    s.now = 15.0
    s.gone("other")
    resizes.flush(s.now)
    early, due = s.pool("d"), resizes.next_deadline()
    s.now = 20.0
    resizes.flush(s.now)

    assert (early, due) == (Pool.UNSCHEDULABLE, 20.0)
    assert s.attempt().fits


def test_who_waits_no_more_is_not_woken_by_the_clock(scene):
    s = scene(resize__retry_scope="periodic").node(200).pod("other", 200, priority=HIGH).deferred("d", 100, 50, LOW)
    s.attempt()

    s.gone("d")

    assert s.core.resizes.next_deadline() is None


# -- preempting twice ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nominated", "victims"), [("n1", []), ("", ["w2"])])
def test_kep_5836_15_a_nomination_in_the_pods_status_survives_a_restart(scene, nominated, victims):
    s = scene(resize__double_preemption="nnn").node(500)
    s.pod("v", 200, start="2026-01-01T00:00:02Z", deleting=True, conditions=LEAVING)
    s.pod("w2", 200, start="2026-01-01T00:00:03Z")
    made = s.a.pod(
        "h",
        node="n1",
        priority=HIGH,
        phase="Running",
        nominated=nominated,
        containers=(Container(name="c", resources=asks(300)),),
    )
    status = ContainerStatus(name="c", allocated_resources={"cpu": "100m"}, resources=asks(100))
    pending = (Condition(type="PodResizePending", status="True", reason="Deferred"),)
    made = replace(made, status=replace(made.status, conditions=pending, container_statuses=(status,)))

    s.core.handlers.on_pod(None, made, 0.0)
    found = s.attempt()

    pending_victims = [pod.key.name for pod in found.eviction.pending] if found.eviction is not None else []
    assert pending_victims == victims
    assert found.is_guarded is (nominated == "n1")
    assert s.handle.nominator.node_of("h") == ""  # its capacity is counted already


# -- groups --------------------------------------------------------------------------------------------------------


def gang(min_count, priority, mode="single"):
    return msgspec.convert(
        {
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": min_count}},
                "disruptionMode": {mode: {}},
                "priority": priority,
            },
        },
        PodGroup,
    )


def test_a_member_that_acts_for_its_group_preempts_with_the_groups_priority(scene):
    def run(**switches):
        s = scene(gang(1, HIGH), GenericWorkload=True, **switches).node(300).pod("v", 200, priority=MID)
        return s.deferred("h", 300, 100, LOW, group="g").victims()

    assert run() == []
    assert run(resize__group_member="group") == ["v"]


def test_a_member_that_acts_for_its_group_never_evicts_another_member(scene):
    def run(**switches):
        s = scene(gang(1, MID), GenericWorkload=True, **switches).node(300).pod("kin", 200, group="g")
        return s.deferred("h", 300, 100, HIGH, group="g").victims()

    assert run() == ["kin"]
    assert run(resize__group_member="group") == []


def test_a_group_that_is_short_of_members_does_not_cost_others_theirs(scene):
    s = scene(gang(2, HIGH), GenericWorkload=True, resize__group_member="group").node(300).node(500, "n2")
    s.pod("v", 200).deferred("h", 300, 100, HIGH, group="g")

    short = s.attempt()
    s.later().pod("kin", 100, node="n2", priority=HIGH, group="g").pod("v", 150)

    assert (short.after, short.eviction) == (DEGRADED, None)
    assert s.victims() == ["v"]


# -- queue and cache ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "order", "victims"), [
    ("G3", "queue_first", ["v"]), ("G3", "cache_first", None), ("G4", "cache_first", None)])  # fmt: skip
def test_between_two_updates_an_attempt_works_with_the_larger_of_both_forms(scene, generation, order, victims):
    s = scene(resize__generation=generation, resize__update_order=order).node(300).pod("v", 200)
    s.pod("h", 100, priority=HIGH)

    s.deferred("h", 300, 100)
    outcome = s.attempt()  # in the gap
    s.core.handlers.catch_up()

    found = None if outcome is None else [pod.key.name for pod in outcome.eviction.victims]
    assert found == victims
    if found is None:
        assert s.victims() == ["v"]


def test_kep_5836_13_4_a_beta_attempt_in_the_gap_loses_a_pod_that_the_queue_followed_first(scene):
    s = scene(resize__generation="G4", resize__update_order="queue_first").node(300).pod("v", 200)
    s.pod("h", 100, priority=HIGH)

    s.deferred("h", 300, 100)
    lost = s.attempt()  # the cache still has it as one that does not wait
    s.core.handlers.catch_up()

    assert (lost, s.pool("h"), s.later(400).attempt()) == (None, Pool.NONE, None)


@pytest.mark.parametrize("order", ["queue_first", "cache_first"])
def test_the_next_change_finds_queue_and_cache_agreed(scene, order):
    s = scene(resize__update_order=order).node(300).pod("v", 200).pod("h", 100, priority=HIGH)

    s.deferred("h", 300, 100)
    behind = s.core.handlers.is_behind
    s.gone("v")

    assert (behind, s.core.handlers.is_behind) == (True, False)
    assert s.attempt().fits


# -- what is reported-------------------------------------------------------------------------------------------------


def test_a_failed_attempt_knows_how_much_is_missing(scene):
    s = scene().node(300).pod("o", 200, priority=HIGH).deferred("h", 300, 100)

    assert s.attempt().missing == (("cpu", 200),)


def samples_of(values):
    """Return samples by their names with labels, as a process has them before they are written."""
    series = []
    for whole, value in values.items():
        name, _, labels = whole.partition("{")
        series.append(Series(None, name, ((), tuple(re.findall(r'(\w+)="([^"]*)"', labels)), ()), value))
    return Samples(series)


def test_kep_5836_12_the_betas_metrics_have_resizes_apart_from_new_pods():
    samples = samples_of({
        'scheduler_pending_pods{queue="unschedulable"}': 5,
        'scheduler_pending_pods{queue="backoff"}': 2,
        'scheduler_unschedulable_pods{plugin="DeferredPodScheduling",profile="default-scheduler"}': 3,
        'scheduler_queued_entities{queue="unschedulable",type="Pod"}': 5,
        'scheduler_preemption_goroutines_execution_total{result="error"}': 1,
        'scheduler_preemption_goroutines_execution_total{operation="pod_resize",result="error"}': 2,
        "scheduler_inflight_events": 7,
    })  # fmt: skip

    found = apart(samples, {"unschedulable": 3, "backoff": 2, "waiting": 9})

    assert found == {
        'scheduler_pending_pods{queue="unschedulable"}': 2,
        'scheduler_pending_pods{queue="backoff"}': 0,
        'scheduler_queued_entities{operation="initial_placement",queue="unschedulable",type="Pod"}': 2,
        'scheduler_queued_entities{operation="pod_resize",queue="unschedulable",type="Pod"}': 3,
        'scheduler_preemption_goroutines_execution_total{operation="initial_placement",result="error"}': 1,
        'scheduler_preemption_goroutines_execution_total{operation="pod_resize",result="error"}': 2,
        "scheduler_inflight_events": 7,
    }
