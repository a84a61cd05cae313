"""Resizes judged: what fits, what waits, what never can, and who is tried first."""

import msgspec
import pytest

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.resize.allocation import Deferred, Fits, Infeasible, NodeRules, grows, judge
from kubelet.resize.manager import Rank, ResizeQueue
from kubelet.runtime.resources import PodResources, align_resources, is_same, overlaid, resources_of
from kubelet.view import WorkerKey, worker_key
from services.api.podresources import pod_requests

NODE = NodeFacts("n1", {})


def ledger(*pods, **allocatable):
    made = Ledger({"cpu": "1", "memory": "4Gi", "pods": "110", **allocatable})
    for pod in pods:
        made.add(worker_key(pod), pod, made.needs(pod), NO_ALLOCATION)
    return made


def judged(desired, before, others, rules=None, **options):
    return judge(desired, resources_of(before), others, NODE, rules or NodeRules(), **options)


def test_resize_a_size_that_fits_says_what_is_counted_from_now_on(a_pod):
    outcome = judged(a_pod(cpu="600m"), a_pod(cpu="400m"), ledger(a_pod("q", cpu="300m")))

    assert outcome == Fits({"cpu": 600, "pods": 1})


def test_kep_1287_03_no_capacity_now_is_deferred_with_what_is_used_by_others(a_pod):
    outcome = judged(a_pod(cpu="600m"), a_pod(cpu="400m"), ledger(a_pod("q", cpu="500m")))

    assert outcome == Deferred("Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000")


def test_kep_1287_05_more_than_the_node_has_is_infeasible(a_pod):
    outcome = judged(a_pod(cpu="1200m"), a_pod(cpu="400m"), ledger(a_pod("q", cpu="500m")))

    assert outcome == Infeasible(
        "Node didn't have enough capacity: cpu, requested: 1200, capacity: 1000", "insufficient_node_allocatable"
    )


def test_a_resize_beyond_both_capacities_names_memory_first(a_pod):
    outcome = judged(a_pod(cpu="2", memory="8Gi"), a_pod(cpu="400m", memory="1Gi"), ledger())

    assert outcome.message.startswith("Node didn't have enough capacity: memory, requested: 8589934592")


def test_kep_1287_20_static_cpus_make_a_guaranteed_pods_cpu_infeasible_and_leave_its_memory(guaranteed):
    rules = NodeRules(has_static_cpus=True)
    before = guaranteed("g", "1")
    other_memory = {"cpu": "1", "memory": "2Gi"}
    memory_only = guaranteed(
        "g", spec={"containers": [{"name": "c0", "resources": {"requests": other_memory, "limits": other_memory}}]}
    )

    cpu = judged(guaranteed("g", "2"), before, ledger(cpu="8"), rules)
    memory = judged(memory_only, before, ledger(cpu="8"), rules)

    assert cpu.detail == "guaranteed_pod_cpu_manager_static_policy"
    assert cpu.message == 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    assert isinstance(memory, Fits)


def test_static_cpus_do_not_concern_a_burstable_pod(a_pod):
    outcome = judged(
        a_pod(cpu="600m", limits=False), a_pod(cpu="400m", limits=False), ledger(), NodeRules(has_static_cpus=True)
    )

    assert isinstance(outcome, Fits)


SWAPPING = NodeRules(has_swap=True)
RESTARTS = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def sized(a_pod, requests, limits=None, policy=(), **spec):
    container = {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, "resizePolicy": list(policy)}
    return a_pod(spec={"containers": [container], **spec})


@pytest.mark.parametrize(("desired", "limits", "policy", "spec", "is_refused"), [
    ({"memory": "2Gi"}, None, (), {}, True),
    ({"cpu": "2", "memory": "1Gi"}, None, (), {}, False),
    ({"memory": "2Gi"}, None, RESTARTS, {}, False),
    ({"memory": "2Gi"}, {"memory": "2Gi"}, (), {}, True),
    ({"memory": "2Gi"}, None, (), {"priority": 2_000_000_000}, False),
], ids=["memory", "cpu only", "restarts anyway", "all allocated after, not before", "critical"])  # fmt: skip
def test_kep_1287_section_5_swap_forbids_another_memory_request_without_a_restart(
    a_pod, desired, limits, policy, spec, is_refused
):
    before = sized(a_pod, {"memory": "1Gi"}, limits, policy, **spec)
    desired = sized(a_pod, desired, limits, policy, **spec)

    with_swap = judged(desired, before, ledger(cpu="8"), SWAPPING)
    without = judged(desired, before, ledger(cpu="8"))

    refusal = Infeasible("In-place resize of containers with swap is not supported.", "swap_limitation")
    assert (with_swap == refusal) == is_refused
    assert isinstance(without, Fits)


def test_a_guaranteed_pod_has_no_swap_and_may_be_resized(guaranteed):
    outcome = judged(guaranteed("g", "2"), guaranteed("g", "1"), ledger(cpu="8"), SWAPPING)

    assert isinstance(outcome, Fits)


def test_a_static_pod_is_never_resized(a_pod):
    mirror = {"annotations": {"kubernetes.io/config.source": "file"}}

    outcome = judged(a_pod(cpu="600m", metadata=mirror), a_pod(cpu="400m"), ledger())

    assert outcome == Infeasible("In-place resize of static-pods is not supported", "static_pod")


def test_a_critical_pods_resize_names_whom_to_evict(a_pod):
    low = a_pod("low", cpu="500m", spec={"priority": 0})
    critical = {"spec": {"priority": 2_000_000_000}}

    outcome = judged(a_pod(cpu="600m", **critical), a_pod(cpu="400m", **critical), ledger(low))

    message = "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
    assert outcome == Deferred(message, (worker_key(low),), "cpu")


def test_what_is_kept_for_a_resize_goes_with_the_pod_that_a_critical_one_evicts(a_pod):
    low, other = a_pod("low", cpu="300m", spec={"priority": 0}), a_pod("other", cpu="200m", spec={"priority": 5})
    critical = {"spec": {"priority": 2_000_000_000}}
    full = ledger(low, other)
    full.reserve(worker_key(low), {"cpu": 500})

    outcome = judged(a_pod(cpu="700m", **critical), a_pod(cpu="100m", **critical), full)

    assert outcome.victims == (worker_key(low),)
    assert outcome.message == "Node didn't have enough resource: cpu, requested: 700, used: 1000, capacity: 1000"


def test_a_kubelet_that_leaves_preemption_to_the_scheduler_defers_a_critical_pods_resize(a_pod):
    low = a_pod("low", cpu="500m", spec={"priority": 0})
    critical = {"spec": {"priority": 2_000_000_000}}
    desired, has = a_pod(cpu="600m", **critical), a_pod(cpu="400m", **critical)

    outcome = judge(desired, resources_of(has), ledger(low), NODE, NodeRules(evicts=False))

    assert isinstance(outcome, Deferred)
    assert outcome.victims == ()
    assert outcome.message.startswith("Node didn't have enough resource: cpu")


def test_quantities_are_compared_not_their_spelling(a_pod):
    assert is_same(resources_of(a_pod(cpu="500m")), resources_of(a_pod(cpu="0.5")))
    assert not is_same(resources_of(a_pod(cpu="500m")), resources_of(a_pod(cpu="501m")))


def test_a_pod_seen_through_its_allocation_asks_for_what_it_was_given(a_pod):
    small, big = a_pod(cpu="100m"), a_pod(cpu="900m")

    seen = overlaid(big, resources_of(small))

    assert pod_requests(seen) == pod_requests(small)
    assert is_same(resources_of(seen), resources_of(small))


def test_plain_init_containers_are_no_part_of_an_allocation_and_sidecars_are(a_pod):
    init = [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}]

    assert list(resources_of(a_pod(cpu="1", spec={"initContainers": init})).containers) == ["side", "main"]


def test_a_containers_missing_limit_is_its_pods(a_pod):
    level = {"limits": {"cpu": "2", "memory": "1Gi"}}
    resources = resources_of(a_pod(memory="100Mi", spec={"resources": level}))

    assert resources.limits_of("main") == {"cpu": "2", "memory": "100Mi"}


@pytest.mark.parametrize(
    ("after", "is_more"), [({"cpu": 2}, True), ({"cpu": 1}, False), ({"cpu": 1, "memory": 1}, True)]
)
def test_growth_is_more_cpu_or_more_memory(after, is_more):
    assert grows(after, {"cpu": 1}) is is_more


# --- the queue ---


def key(name):
    return WorkerKey(name, 1)


def ordered(ranks):
    queue = ResizeQueue()
    for name in ranks:
        queue.push(key(name), lambda k: ranks[k.uid])
    return [k.uid for k in queue]


def rank(grows=True, priority=0, qos="Burstable", since="2026-01-01T00:00:00Z"):
    return Rank.of(grows=grows, priority=priority, qos=qos, since=since)


def test_kep_1287_07_what_asks_for_no_more_comes_first_then_priority():
    ranks = {"d1": rank(priority=100), "d2": rank(priority=200), "d3": rank(grows=False)}

    assert ordered(ranks) == ["d3", "d2", "d1"]


def test_between_equals_qos_decides_then_who_waited_longest_and_the_unjudged_come_last():
    ranks = {
        "new": rank(since=""),
        "late": rank(since="2026-01-01T00:00:09Z"),
        "early": rank(since="2026-01-01T00:00:01Z"),
        "best": rank(qos="Guaranteed", since="2026-01-01T00:00:09Z"),
    }

    assert ordered(ranks) == ["best", "early", "late", "new"]


def test_kep_1287_6_those_that_ask_for_no_more_are_ordered_among_themselves_by_the_other_rules():
    ranks = {"d1": rank(grows=False, priority=200), "d2": rank(grows=False, priority=100), "d3": rank(grows=False)}

    assert ordered(ranks) == ["d1", "d2", "d3"]


def test_a_resize_that_waits_keeps_its_place_until_it_is_discarded():
    queue = ResizeQueue()
    for name in ("a", "b", "a"):
        queue.push(key(name), lambda _: rank())

    queue.discard(key("a"))
    queue.discard(key("a"))

    assert queue == [key("b")]
    assert key("a") not in queue


def test_an_allocation_survives_its_encoding(a_pod):
    resources = resources_of(a_pod(cpu="1", memory="1Gi"))

    assert msgspec.json.decode(msgspec.json.encode(resources), type=PodResources) == resources


def test_init_containers_that_are_no_sidecars_are_resized_where_the_gate_is_on(a_pod):
    init = [{"name": "setup", "resources": {"requests": {"cpu": "1"}}}, {"name": "side", "restartPolicy": "Always"}]
    pod = a_pod(cpu="1", spec={"initContainers": init})

    without, with_them = resources_of(pod), resources_of(pod, with_init_containers=True)

    assert (["side", "main"], ()) == (list(without.containers), without.passing)
    assert (["setup", "side", "main"], ("setup",)) == (list(with_them.containers), with_them.passing)
    assert ["side", "main"] == list(with_them.lasting), "they never count beside the main containers"


def test_what_was_recorded_by_a_kubelet_with_another_gate_is_completed_or_cut(a_pod):
    pod = a_pod(cpu="1", spec={"initContainers": [{"name": "setup", "resources": {"requests": {"cpu": "2"}}}]})
    without, with_them = resources_of(pod), resources_of(pod, with_init_containers=True)
    recorded = PodResources({"main": without.of("main")})

    assert with_them == align_resources(recorded, with_them)
    assert without == align_resources(with_them, without)
    assert recorded is align_resources(recorded, without)
