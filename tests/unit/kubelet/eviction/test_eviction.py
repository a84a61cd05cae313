"""Node-pressure eviction: what is used, when it is too much, who leaves and what is said (kubelet 7)."""

import pytest

from kubelet.effects import NODE_KEY, Outbox, RecordNodeEvent, ReportNode, SetTimer
from kubelet.eviction.manager import NodePressure, PodUse, Pressure, container_use
from kubelet.eviction.signals import Eviction, capacities, thresholds
from kubelet.node.definition import NodeDefinition
from kubelet.runtime.usage import NODE_RESOURCES, used_amounts
from kubelet.view import worker_key
from services.api.metrics.usage import parse_curves, value_at
from tests.unit.kubelet.pod.test_pod import Life

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

    assert used_amounts(pod, "main", 1.0) == {"memory": GI, "pids": 7}
    assert used_amounts(pod, "side", 1.0) == {"pids": 3}


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


def test_what_is_left_is_the_capacity_less_what_the_node_and_its_pods_use(a_pod):
    watch = pressure({"memory.available": "1Gi"})

    assert not watch.look(0, {"memory": GI}, [use(a_pod(), memory=2 * GI)]).has_turned, (
        "exactly as much as must be left"
    )
    assert not watch.look(1, {}, [use(a_pod(), memory=3 * GI)]).has_turned
    assert watch.look(2, {"memory": GI}, [use(a_pod(), memory=GI), use(a_pod("q"), memory=GI + 1)]).has_turned


def test_a_disk_full_of_images_costs_unused_images_and_no_pod(a_pod):
    watch, uses = pressure({"imagefs.available": "15%"}), [use(a_pod(), **{"ephemeral-storage": 90 * GI})]

    look = watch.look(0.0, {"imagefs": 90 * GI}, uses)

    assert (look.is_of_images, look.victim, look.reclaims) == (True, None, "ephemeral-storage")
    assert watch.conditions == ("DiskPressure",)


def test_a_disk_full_of_what_pods_write_costs_a_pod_and_no_image(a_pod):
    look = pressure({"nodefs.available": "10%"}).look(0.0, {}, [use(a_pod(), **{"ephemeral-storage": 95 * GI})])

    assert (look.is_of_images, look.victim.key.uid) == (False, "uid-p")


@pytest.mark.parametrize(
    ("resource", "signal", "condition", "low"),
    [
        ("memory", "memory.available", "MemoryPressure", "memory"),
        ("ephemeral-storage", "nodefs.available", "DiskPressure", "ephemeral-storage"),
        ("inodes", "nodefs.inodesFree", "DiskPressure", "inodes"),
        ("pids", "pid.available", "PIDPressure", "pids"),
    ],
)
def test_each_signal_has_its_condition_and_the_resource_that_is_low(a_pod, resource, signal, condition, low):
    watch = pressure({signal: "10%"})

    look = watch.look(0.0, {resource: CAPACITY[resource]}, [use(a_pod())])

    assert (look.reclaims, look.victim.signal, watch.conditions) == (low, signal, (condition,))
    assert look.victim.message.startswith(f"The node was low on resource: {low}. ")


def test_memory_comes_before_all_else_and_the_pod_leaves_for_it(a_pod):
    watch = pressure({"pid.available": "10%", "memory.available": "100Mi"})

    look = watch.look(0.0, {"pids": 32768, "memory": 4 * GI}, [use(a_pod())])

    assert (look.reclaims, watch.conditions) == ("memory", ("MemoryPressure", "PIDPressure"))


def test_kubernetes_own_thresholds_count_where_none_are_configured():
    chosen = thresholds(Eviction(), CAPACITY)

    assert {each.signal.name: each.least for each in chosen} == {
        "memory.available": 100 * MI,
        "nodefs.available": 10 * GI,
        "nodefs.inodesFree": CAPACITY["inodes"] // 20,
        "imagefs.available": 15 * GI,
    }
    assert thresholds(Eviction(hard={}), CAPACITY) == ()
    assert (CAPACITY["inodes"], CAPACITY["pids"], CAPACITY["imagefs"]) == (100 * GI // 16384, 32768, 100 * GI)


def test_a_hard_threshold_leaves_a_pod_one_second_and_a_soft_one_no_more_than_the_pod_allows(a_pod):
    uses = [use(a_pod(spec={"terminationGracePeriodSeconds": 7}), memory=4 * GI)]
    soft = pressure({}, {"memory.available": "1Gi"}, {"memory.available": 0}, max_pod_grace_period=20)

    assert pressure().look(0.0, {}, uses).victim.grace_s == 1.0
    assert soft.look(0.0, {}, uses).victim.grace_s == 7.0


def test_who_leaves_first_among_equals_is_the_first_by_name(a_pod):
    uses = [use(a_pod(name), memory=2 * GI) for name in ("b", "a")]

    assert short(uses).key.uid == "uid-a"


def test_the_message_names_every_container_that_uses_more_than_it_asked_for(a_pod):
    spec = {
        "initContainers": [{"name": "side", "resources": {"requests": {"memory": "1Gi"}}, "restartPolicy": "Always"}]
    }
    pod = a_pod(memory="1Gi", spec=spec)
    containers = tuple(
        container_use(pod, name, {"memory": amount}) for name, amount in (("main", GI), ("side", 2 * GI), ("debug", MI))
    )

    message = pressure().look(0.0, {"memory": 4 * GI}, [PodUse(worker_key(pod), pod, containers)]).victim.message

    assert message.endswith(
        "available: 0. Container side was using 2Gi, request is 1Gi, has larger consumption of memory. "
        "Container debug was using 1Mi, request is 0, has larger consumption of memory. "
    )


def test_a_pod_that_does_not_end_delays_the_next_eviction_by_thirty_seconds_at_most(a_pod):
    watch, uses = pressure(), [use(a_pod("a"), memory=2 * GI), use(a_pod("b"), memory=2 * GI)]
    watch.look(0, {}, uses)

    assert watch.look(29.9, {}, uses).victim is None
    assert watch.look(30, {}, uses).victim.key.uid == "uid-a"


def test_the_condition_turns_back_only_when_the_last_crossing_is_five_minutes_old():
    watch = pressure(pressure_transition_period=0)

    assert watch.look(0, {"memory": 4 * GI}, []).has_turned
    assert not watch.look(10, {"memory": 4 * GI}, []).has_turned, "no period: as long as it is crossed"
    assert watch.look(20, {}, []).has_turned


# --- when a node looks ---


class Looking:
    """A node that looks for pressure; its timers are fired by hand."""

    def __init__(self, own="", hard=None, workers=()):
        self.out = Outbox()
        hard = {"memory.available": "100Mi"} if hard is None else hard
        self.node = NodePressure(parse_curves(own) if own else {}, CAPACITY, Eviction(hard=hard), self.out)
        self.workers = {life.worker.key: life.worker for life in workers}

    def look(self, now):
        return next(iter(self.node.look(self.workers, now)), None)

    def effects(self, kind):
        return [each for each in self.out.effects if isinstance(each, kind)]

    @property
    def timers(self):
        return [each.at_s for each in self.effects(SetTimer) if (each.what, each.key) == ("pressure", NODE_KEY)]


def using(a_pod, usage, name="p", **notes):
    return a_pod(name, metadata={"annotations": {"keplab.dev/usage": usage, **notes}})


def test_a_node_looks_every_ten_seconds_from_its_start_when_its_own_use_is_described():
    described, plain = Looking("memory 1Gi"), Looking()

    for node in (described, plain):
        node.node.begin(5.0)
        node.node.begin(7.0)

    assert (described.timers, described.node.is_looking) == ([15.0], True)
    assert (plain.timers, plain.node.is_looking) == ([], False)
    described.look(15.0)
    assert described.timers == [15.0, 25.0]


def test_the_nodes_own_use_is_counted_from_the_start_of_the_kubelet():
    node = Looking("memory 1Gi; memory 2Gi at 30s")

    before = node.node.own_use(500.0)
    node.node.begin(100.0)

    assert [before, node.node.own_use(129.0), node.node.own_use(130.0)] == [{"memory": n * GI} for n in (1, 1, 2)]


@pytest.mark.parametrize(
    ("notes", "looks"),
    [({}, False), ({"note": "x"}, False), ({"keplab.dev/usage": "pids 3"}, True), ({"keplab.dev/usage.main": "pids 3"}, True),
     ({"keplab.dev/memory": "1Gi"}, True), ({"keplab.dev/memory.main": "1Gi"}, True)],
)  # fmt: skip
def test_a_node_looks_as_soon_as_a_pod_says_what_it_uses(a_pod, notes, looks):
    node = Looking()

    for now in (1.0, 2.0):
        node.node.pod_updated(a_pod(metadata={"annotations": notes}), now)

    assert node.timers == ([11.0] if looks else [])


def test_a_node_whose_images_alone_are_too_many_looks_and_asks_for_their_deletion():
    node = Looking(hard={"imagefs.available": "15%"})

    node.node.images_changed(85 * GI, 1.0)
    few = list(node.timers)
    node.node.images_changed(85 * GI + 1, 2.0)
    node.look(12.0)

    assert (few, node.timers[0]) == ([], 12.0)
    assert node.node.wants_images_gone
    node.node.images_changed(GI, 13.0)
    node.look(22.0)
    assert not node.node.wants_images_gone


def test_a_node_that_turns_short_reports_the_condition_once_and_records_each_attempt_to_reclaim(a_pod):
    node = Looking("memory 4Gi; memory 0 at 15s")
    node.node.begin(0.0)

    found = [
        (node.look(now), len(node.effects(ReportNode)), len(node.effects(RecordNodeEvent))) for now in (0.0, 10.0, 20.0)
    ]

    assert [reports for _, reports, _ in found] == [1, 1, 1]
    assert [events for _, _, events in found] == [1, 2, 2]
    assert node.effects(ReportNode)[0].pressures == ("MemoryPressure",)
    event = node.effects(RecordNodeEvent)[0]
    assert (event.reason, event.message, event.type) == (
        "EvictionThresholdMet", "Attempting to reclaim memory", "Warning",
    )  # fmt: skip
    assert node.node.refuses(a_pod()).reason == "Evicted"
    node.look(310.0)
    assert node.effects(ReportNode)[1].pressures == ()
    assert node.node.refuses(a_pod()) is None


def test_a_node_stops_looking_when_nothing_is_described_and_no_condition_is_left(a_pod):
    life = Life(using(a_pod, "memory 5Gi")).run(5)
    node = Looking(workers=[life])

    assert node.look(10.0).key == life.worker.key
    node.workers.clear()
    node.look(20.0)
    is_looking = node.node.is_looking
    node.look(310.0)

    assert (is_looking, node.node.is_looking) == (True, False), "the condition still holds, then it does not"
    assert node.timers == [20.0, 30.0]


def test_a_pod_that_has_ended_uses_nothing_and_is_not_looked_for(a_pod):
    life = Life(using(a_pod, "memory 5Gi")).run(5)
    life.take(life.worker.terminate(5, 0, "deleted"))
    life.run(60)
    node = Looking(workers=[life])

    assert node.look(60.0) is None
    assert not node.node.is_looking


def test_a_container_uses_what_its_curve_says_since_it_started_and_else_what_its_memory_annotation_says(a_pod):
    grown = Life(using(a_pod, "memory 1Gi; memory 5Gi at 30s", "grown"), now=100.0).run(110)
    plain = Life(using(a_pod, "pids 3", "plain", **{"keplab.dev/memory": "5Gi"})).run(5)

    assert Looking(workers=[grown]).look(129.0) is None
    assert Looking(workers=[grown]).look(130.0).key.uid == "uid-grown"
    assert Looking(workers=[plain]).look(5.0).key.uid == "uid-plain"


def test_a_container_that_does_not_run_uses_nothing(a_pod):
    life = Life(using(a_pod, "memory 5Gi", **{"keplab.dev/run": "pull 60s"})).run(5)

    assert Looking(workers=[life]).look(5.0) is None


@pytest.mark.parametrize(
    ("eviction", "error"),
    [
        (
            Eviction(hard={"memory.available": "x%"}),
            "eviction threshold memory.available<x%: want a quantity or a share",
        ),
        (Eviction(hard={"memory.free": "1"}), "eviction signal 'memory.free': want one of memory.available, "),
        (Eviction(soft={"pid.available": "5%"}), "soft eviction threshold pid.available: want a grace period too"),
    ],
)
def test_a_threshold_that_cannot_be_names_its_signal(eviction, error):
    with pytest.raises(ValueError, match=f"^{error}"):
        thresholds(eviction, CAPACITY)


# --- limits of local storage ---


def limited(a_pod, usage, *limits, name="p", volumes=(), **spec):
    containers = [
        {"name": f"c{n}", "image": "img", "resources": {"limits": {"ephemeral-storage": limit}} if limit else {}}
        for n, limit in enumerate(limits)
    ]
    notes = usage if isinstance(usage, dict) else {"keplab.dev/usage.c0": usage}
    return a_pod(name, containers=containers, metadata={"annotations": notes}, spec={"volumes": list(volumes), **spec})


def empty_dir(name="data", **source):
    return {"name": name, "emptyDir": source}


def eviction_of(pod, now=30.0):
    """Who leaves at that time, and why, of a node on which nothing is short."""
    victim = Looking(workers=[Life(pod).run(1)]).look(now)
    return None if victim is None else (victim.message, victim.signal, victim.grace_s, victim.is_disruption)


def test_a_pod_that_writes_more_than_its_containers_may_together_is_evicted_without_pressure(a_pod):
    message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "

    assert eviction_of(limited(a_pod, "ephemeral-storage 2Gi at 20s", "1Gi")) == (
        message,
        "ephemeralpodfs.limit",
        1.0,
        False,
    )


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (("1Gi", "512Mi"), "1536Mi"),
        (("1G", "500M"), "1500M"),
        (("1073741824", None), "1073741824"),
        (("1024Mi", None), "1Gi"),
    ],
)
def test_the_total_is_spelt_as_quantities_are(a_pod, limits, said):
    assert eviction_of(limited(a_pod, "ephemeral-storage 9Gi", *limits))[0].endswith(f"containers {said}. ")


def test_a_container_over_its_own_limit_is_named_where_the_pod_keeps_to_the_total(a_pod):
    message = 'Container c0 exceeded its local ephemeral storage limit "1Gi". '
    pod = limited(a_pod, "ephemeral-storage 2Gi", "1Gi", "5Gi")

    assert eviction_of(pod) == (message, "ephemeralcontainerfs.limit", 1.0, False)


def test_an_empty_dir_over_its_limit_is_named_first(a_pod):
    pod = limited(a_pod, "emptydir/data 2Gi by 20s", "1Gi", volumes=[empty_dir("other"), empty_dir(sizeLimit="1Gi")])

    assert eviction_of(pod, 10.0) is None
    assert eviction_of(pod, 30.0) == (
        'Usage of EmptyDir volume "data" exceeds the limit "1Gi". ',
        "emptydirfs.limit",
        1.0,
        False,
    )


def test_what_is_in_an_empty_dir_counts_for_the_pod_also_when_who_wrote_it_has_ended(a_pod):
    notes = {"keplab.dev/run.c0": "exit 0 after 5s", "keplab.dev/usage.c0": "emptydir/data 2Gi"}
    pod = limited(a_pod, notes, "512Mi", "512Mi", volumes=[empty_dir()], restartPolicy="OnFailure")
    life = Life(pod).run(20)

    victim = Looking(workers=[life]).look(20.0)

    assert victim.message == "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "


@pytest.mark.parametrize(
    ("usage", "limits", "volumes", "spec"),
    [
        ("ephemeral-storage 1Gi", ("1Gi",), (), {}),
        ("ephemeral-storage 9Gi", (None,), (), {}),
        ("emptydir/data 2Gi", (None,), (empty_dir(),), {}),
        ("emptydir/data 2Gi", (None,), (empty_dir(sizeLimit="0"),), {}),
        ("emptydir/data 2Gi", (None,), (empty_dir(sizeLimit="1Gi", medium="Memory"),), {}),
        ("emptydir/none 2Gi", ("1Gi",), (), {}),
        ("ephemeral-storage 9Gi", ("1Gi",), (), {"priority": 2_000_000_000}),
    ],
)
def test_who_keeps_to_the_limits_has_none_or_is_critical_stays(a_pod, usage, limits, volumes, spec):
    assert eviction_of(limited(a_pod, usage, *limits, volumes=volumes, **spec)) is None


def test_all_pods_over_a_limit_leave_in_one_round_and_no_other_with_them(a_pod):
    over = [Life(limited(a_pod, "ephemeral-storage 2Gi", "1Gi", name=name)).run(1) for name in ("a", "b")]
    greedy = Life(using(a_pod, "memory 4Gi", name="c")).run(1)
    node = Looking(workers=[*over, greedy])

    first = node.node.look(node.workers, 10.0)
    while_they_end = node.node.look(node.workers, 20.0)

    assert [victim.key.uid for victim in first] == ["uid-a", "uid-b"]
    assert while_they_end == ()


def test_what_is_in_an_empty_dir_is_missing_on_the_nodes_disk(a_pod):
    pod = limited(a_pod, "emptydir/data 95Gi", None, volumes=[empty_dir()])
    node = Looking(hard={"nodefs.available": "10%"}, workers=[Life(pod).run(1)])

    assert node.look(10.0).signal == "nodefs.available"


def test_a_volume_is_no_resource_of_a_node():
    with pytest.raises(ValueError, match="emptydir/data"):
        parse_curves("emptydir/data 1Gi", NODE_RESOURCES)
