import pytest

from services.api.kinds.lease import Lease
from services.api.kinds.node import Node
from services.api.meta import Key
from services.controllers.node_lifecycle.controller import _LEASES, CONTROLLER
from services.reconcile.actions import Patch, RecordEvent

KINDS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def a_node(name, ready="True", taints=(), labels=None, **spec):
    conditions = [
        {"type": kind, "status": ready if kind == "Ready" or ready == "Unknown" else "False", "lastHeartbeatTime": "t"}
        for kind in KINDS
    ]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), **spec}, "status": {"conditions": conditions}}  # fmt: skip


def a_lease(name, renewed):
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"renewTime": renewed}}  # fmt: skip


def scan(world, after_s=5.0, *, reachable=True):
    """Scan as the manager does: answer what is asked live from the caches, unless the server is out of reach."""
    result = world.reconcile(after_s=after_s)
    if result.refresh and reachable:
        listed = {_LEASES: tuple(world.of(Lease).all())}
        live = {q: world.of(Node).get(q.key) for q in result.refresh if q is not _LEASES}
        return world.reconcile(listed=listed, live=live)
    return result


def patches(result, resource="nodes", subresource="status"):
    return [
        a for a in result.actions if isinstance(a, Patch) and (a.resource, a.subresource) == (resource, subresource)
    ]


def taint_names(result):
    return [
        (p.key.name, [t["key"].rpartition("/")[2] for t in p.patch["spec"]["taints"] or ()])
        for p in patches(result, subresource="")
    ]


def test_kubelet_2_a_node_silent_for_more_than_fifty_seconds_is_unknown_and_its_pods_not_ready(world_of, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_node("n1"))
    world.put(a_node("n2"))
    world.put(a_lease("n1", "1"))
    world.put(a_pod("p", node="n1"))
    world.put(a_pod("gone", node="n2"))
    scan(world)
    found = None
    for i in range(1, 12):
        world.put(a_lease("n2", str(i)))
        result = scan(world)
        if patches(result):
            found = found or (i * 5, result)

    seconds, result = found
    assert seconds == 55
    (patch,) = patches(result)
    assert patch.key.name == "n1"
    assert [c["status"] for c in patch.patch["status"]["conditions"]] == ["Unknown"] * 4
    (marked,) = patches(result, "pods")
    (said,) = marked.patch["status"]["conditions"]
    assert sorted(said) == ["lastTransitionTime", "status", "type"]  # reason and message stay the kubelet's
    assert (marked.key.name, marked.uid, bool(marked.resource_version)) == ("p", "uid-p", True)
    assert [(a.kind, a.type, a.reason, a.message) for a in result.actions if isinstance(a, RecordEvent)] == [
        ("Node", "Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady"),
        ("Pod", "Warning", "NodeNotReady", "Node is not ready"),
    ]


def test_nodes_that_come_and_go_are_reported_once(world_of):
    world = world_of(CONTROLLER)
    world.put(a_node("n1"))

    def reported():
        return [(a.uid, a.reason, a.message) for a in scan(world).actions if isinstance(a, RecordEvent)]

    came, stayed = reported(), reported()
    world.drop("Node", "n1", namespace="")
    gone = reported()

    uid = came[0][0]
    assert came == [(uid, "RegisteredNode", "Node n1 event: Registered Node n1 in Controller")]
    assert stayed == []
    assert gone == [(uid, "RemovingNode", "Node n1 event: Removing Node n1 from Controller")]


@pytest.mark.parametrize("elsewhere", ["", "n2"])
def test_an_unbound_pod_is_not_marked_not_ready_when_its_former_node_fell_silent_unbinding_8(
    world_of, a_pod, elsewhere
):
    world = world_of(CONTROLLER)
    world.put(a_node("n1"))
    world.put(a_node("n2"))
    world.put(a_pod("left", node="n1"))
    scan(world)
    world.put(a_pod("left", node=elsewhere))
    marked = []
    for i in range(1, 14):
        world.put(a_lease("n2", str(i)))
        marked += patches(scan(world), "pods")

    assert marked == []


def test_fm_w4_a_controller_that_could_not_read_live_gives_everyone_a_full_grace_period(world_of):
    world = world_of(CONTROLLER)
    world.put(a_node("n1"))
    scan(world)
    for _ in range(12):
        assert patches(scan(world, reachable=False)) == []  # cut off: nothing received, nothing said

    afterwards = [bool(patches(scan(world))) for _ in range(12)]

    assert afterwards.index(True) == 11  # 55 s after the first answer


def test_a_lease_renewed_live_but_not_yet_in_the_cache_counts_as_life(world_of):
    world = world_of(CONTROLLER)
    world.put(a_node("n1"))
    world.put(a_lease("n1", "1"))
    scan(world)
    world.reconcile(after_s=60.0)
    renewed = Lease(
        metadata=world.of(Lease).all()[0].metadata, spec=type(world.of(Lease).all()[0].spec)(renew_time="2")
    )

    assert patches(world.reconcile(listed={_LEASES: (renewed,)})) == []


def test_conditions_and_unschedulable_become_no_schedule_taints_and_foreign_ones_stay(world_of):
    world = world_of(CONTROLLER)
    foreign = {"key": "mine", "effect": "NoSchedule"}
    stale = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    assert world.put(a_node("n1", "False", taints=(foreign, stale), unschedulable=True)) == [Key("", "n1")]

    (found,) = taint_names(world.reconcile("n1", namespace=""))

    assert found == ("n1", ["mine", "not-ready", "unschedulable"])


def test_kubelet_3_one_of_ten_is_tainted_at_once_and_the_second_ten_seconds_later(world_of):
    world = world_of(CONTROLLER)
    for i in range(10):
        world.put(a_node(f"n{i}"))
    scan(world)
    world.put(a_node("n0", "Unknown"))
    world.put(a_node("n1", "Unknown"))

    first = scan(world)
    world.put(a_node("n0", "Unknown", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]))
    second, third = scan(world), scan(world)

    assert [name for name, _ in taint_names(first)] == ["n0"]
    assert taint_names(second) == []
    assert [name for name, _ in taint_names(third)] == ["n1"]


def test_kubelet_3_when_all_of_the_only_zone_are_down_no_execute_taints_are_removed(world_of):
    world = world_of(CONTROLLER)
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    world.put(a_node("n0"))
    world.put(a_node("n1", "Unknown", taints=[taint]))
    scan(world)
    world.put(a_node("n0", "Unknown"))

    assert taint_names(scan(world)) == [("n1", [])]
    assert [taint_names(scan(world)) for _ in range(3)] == [[("n1", [])]] * 3  # until it is seen


def test_swapping_the_two_no_execute_taints_and_removing_them_waits_for_no_queue(world_of):
    world = world_of(CONTROLLER)
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    for i in range(6):
        world.put(a_node(f"n{i}"))
    world.put(a_node("a", "False", taints=[taint]))
    world.put(a_node("b", "True", taints=[taint]))

    assert taint_names(scan(world)) == [("a", ["not-ready"]), ("b", [])]


@pytest.mark.parametrize(("nodes", "down", "tainted_in_100_s"), [(60, 40, 2), (40, 30, 0), (60, 2, 2)])
def test_a_zone_half_down_is_evicted_slowly_or_not_at_all(world_of, nodes, down, tainted_in_100_s):
    world = world_of(CONTROLLER)
    for i in range(nodes):
        world.put(a_node(f"n{i}", "Unknown" if i < down else "True"))
    tainted = 0
    for _ in range(21):
        for name, _ in taint_names(scan(world)):
            tainted += 1
            taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
            world.put(a_node(name, "Unknown", taints=[taint]))

    assert tainted == tainted_in_100_s
