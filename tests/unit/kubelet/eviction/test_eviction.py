"""Node-pressure eviction: what is used, when it is too much, who leaves and what is said (kubelet 7)."""

import pytest

from kubelet.eviction.manager import PodUse, Pressure, container_use
from kubelet.eviction.signals import Eviction, capacities
from kubelet.node.definition import NodeDefinition
from kubelet.runtime.usage import used
from kubelet.view import worker_key
from services.api.metrics.usage import parse_curves, value_at

MI, GI = 1 << 20, 1 << 30
CAPACITY = capacities("4Gi", "100Gi")


def pressure(hard=None, soft=None, grace=None, **settings):
    hard = {"memory.available": "100Mi"} if hard is None else hard
    return Pressure(Eviction(hard=hard, soft=soft or {}, soft_grace_period=grace or {}, **settings), CAPACITY)


def use(pod, **amounts):
    return PodUse(worker_key(pod), pod, (container_use(pod, "main", amounts),))


def short(pod_uses):
    """Look at a node whose own use leaves nothing."""
    return pressure().look(0.0, {"memory": 4 * GI}, pod_uses).victim


def test_a_curve_jumps_grows_and_stays():
    curve = parse_curves("memory 100Mi; memory 200Mi at 10s; memory 400Mi by 20s")["memory"]

    assert [value_at(curve, t) // MI for t in (0, 9.9, 10, 15, 20, 999)] == [100, 100, 200, 300, 400, 400]


@pytest.mark.parametrize("text", ["memory", "memory much", "water 1Gi", "memory 1Gi at soon", "memory 1; memory 2"])
def test_a_clause_that_cannot_be_read_is_named(text):
    with pytest.raises(ValueError, match="usage"):
        parse_curves(text)


def test_a_container_uses_what_its_own_annotation_says_before_its_pods(a_pod):
    notes = {"keplab.dev/usage": "memory 1Gi; pids 7", "keplab.dev/usage.side": "pids 3"}
    pod = a_pod(metadata={"annotations": notes})

    assert used(pod, "main", 1.0) == {"memory": GI, "pids": 7}
    assert used(pod, "side", 1.0) == {"pids": 3}


def test_those_who_use_more_than_they_asked_for_leave_first_then_the_least_important_then_the_greediest(a_pod):
    modest = use(a_pod("modest", memory="2Gi", spec={"priority": -5}), memory=GI)
    greedy = use(a_pod("greedy", memory="1Gi"), memory=GI + 300 * MI)
    greedier = use(a_pod("greedier", memory="100Mi"), memory=500 * MI)
    important = use(a_pod("important", spec={"priority": 10}), memory=GI)
    order = []
    left = [modest, greedy, greedier, important]
    while left:
        key = short(left).key
        order.append(key.uid)
        left = [p for p in left if p.key != key]

    assert order == ["uid-greedier", "uid-greedy", "uid-important", "uid-modest"]


def test_processes_are_ranked_by_priority_then_by_number(a_pod):
    uses = [use(a_pod("many", spec={"priority": 1}), pids=900), use(a_pod("few"), pids=2), use(a_pod("some"), pids=9)]
    look = pressure({"pid.available": "10%"}).look(0.0, {"pids": 32000}, uses)

    assert look.victim.key.uid == "uid-some"
    assert look.reclaims == "pids"


def test_critical_pods_are_never_evicted(a_pod):
    critical = use(a_pod("critical", spec={"priority": 2_000_000_000}), memory=GI)

    assert short([critical]) is None


def test_the_message_names_threshold_rest_and_the_containers_that_use_too_much(a_pod):
    victim = pressure().look(
        0.0, {"memory": 3 * GI}, [use(a_pod(memory="1Gi"), memory=GI - MI), use(a_pod("q"), memory=MI)]
    )

    assert victim.victim.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 0. "
        "Container main was using 1Mi, request is 0, has larger consumption of memory. "
    )
    assert victim.victim.signal == "memory.available"


def test_a_share_is_said_in_bytes(a_pod):
    look = pressure({"nodefs.available": "10%"}).look(0.0, {"ephemeral-storage": 95 * GI}, [use(a_pod())])

    assert f"Threshold quantity: {10 * GI}, available: 5Gi. " in look.victim.message


def test_one_pod_is_evicted_a_round_and_no_other_until_it_has_ended(a_pod):
    watch, uses = pressure(), [use(a_pod("a"), memory=2 * GI), use(a_pod("b"), memory=2 * GI)]

    assert watch.look(0, {}, uses).victim.key.uid == "uid-a"
    assert watch.look(10, {}, uses).victim is None
    assert watch.look(20, {"memory": 4 * GI}, uses[1:]).victim.key.uid == "uid-b"
    assert watch.look(40, {}, uses).victim is None
    assert watch.look(50, {}, uses).victim.key.uid == "uid-a"


def test_a_condition_lasts_for_five_minutes_after_relief():
    watch = pressure()

    assert watch.look(0, {"memory": 4 * GI}, []).has_turned
    assert watch.conditions == ("MemoryPressure",)
    assert not watch.look(299, {}, []).has_turned
    assert watch.look(300, {}, []).has_turned
    assert watch.conditions == ()


def test_a_soft_threshold_evicts_only_after_its_grace_period_and_more_gently(a_pod):
    watch = pressure({}, {"memory.available": "1Gi"}, {"memory.available": 60}, max_pod_grace_period=20)
    uses = [use(a_pod(), memory=3 * GI + MI)]

    assert watch.look(0, {}, uses).victim is None
    assert watch.conditions == ("MemoryPressure",)
    assert watch.look(30, {"memory": -GI}, uses).victim is None  # relief: the period begins anew
    assert watch.look(60, {}, uses).victim is None
    assert watch.look(120, {}, uses).victim.grace_s == 20


def test_under_memory_pressure_only_best_effort_pods_without_the_toleration_are_refused(a_pod):
    watch = pressure()
    watch.look(0, {"memory": 4 * GI}, [])
    toleration = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}

    assert watch.refuses(a_pod()).message == "The node had condition: [MemoryPressure]. "
    assert watch.refuses(a_pod()).reason == "Evicted"
    assert watch.refuses(a_pod(memory="1Mi")) is None
    assert watch.refuses(a_pod(spec={"tolerations": [toleration]})) is None
    assert watch.refuses(a_pod(spec={"priority": 2_000_000_000})) is None


def test_other_pressures_refuse_all_but_critical_pods(a_pod):
    watch = pressure({"nodefs.available": "10%"})
    watch.look(0, {"ephemeral-storage": 99 * GI}, [])

    assert watch.refuses(a_pod(memory="1Mi")).message == "The node had condition: [DiskPressure]. "
    assert watch.refuses(a_pod(spec={"priority": 2_000_000_000})) is None


@pytest.mark.parametrize(
    "eviction",
    [{"hard": {"memory.free": "1"}}, {"hard": {"memory.available": "x%"}}, {"soft": {"memory.available": "1Gi"}}],
)
def test_a_node_with_thresholds_that_cannot_be_is_refused(eviction):
    with pytest.raises(ValueError, match="node n"):
        NodeDefinition.parse({"name": "n", "eviction": eviction})
