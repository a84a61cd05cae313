from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.controllers.podgc.controller import CONTROLLER
from services.reconcile.actions import Delete, Patch, Query

GONE = Query(Node, Key("", "n1"))
P = Query(Pod, Key("default", "p"))


def deleted(result):
    return [a.key.name for a in result.actions if isinstance(a, Delete)]


def test_controllers_15_an_orphan_is_failed_and_deleted_after_forty_seconds_and_a_live_look(world_of, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", node="n1"))

    assert world.reconcile() == world.reconcile(after_s=20.0)
    asked = world.reconcile(after_s=20.0)
    result = world.reconcile(live={GONE: None, P: world.of(Pod).get(P.key)})

    assert asked.refresh == (GONE, P)
    patch, delete = result.actions
    assert isinstance(patch, Patch)
    assert patch.patch["status"]["phase"] == "Failed"
    assert patch.patch["status"]["conditions"][0]["reason"] == "DeletionByPodGC"
    assert (delete.uid, delete.grace_period_s) == ("uid-p", 0)


def test_an_orphan_rebound_within_the_caches_lag_survives_the_recheck_and_dies_without_it(world_of, a_pod):
    outcomes = []
    for recheck in (True, False):
        world = world_of(CONTROLLER, podgc__recheck=recheck)
        world.put(a_pod("p", node="n1"))
        world.reconcile()
        old = world.of(Pod).get(P.key)
        moved = Pod(metadata=old.metadata, spec=type(old.spec)(node_name="n2"), status=old.status)
        outcomes.append(deleted(world.reconcile(after_s=40.0, live={GONE: None, P: moved})))

    assert outcomes == [[], ["p"]]


def test_a_node_that_lives_keeps_its_pods(world_of, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", node="n1"))
    world.reconcile()

    result = world.reconcile(after_s=40.0, live={GONE: Node(), P: world.of(Pod).get(P.key)})

    assert result.actions == ()


def test_controllers_13_ended_pods_above_three_go_evicted_first_then_the_oldest(world_of, a_pod):
    world = world_of(CONTROLLER, podgc__threshold=3)
    for i in range(5):
        world.put(a_pod(f"p{i}", phase="Failed", creationTimestamp=f"2026-01-0{i + 1}T00:00:00Z"))
    world.put(a_pod("evicted", phase="Failed", creationTimestamp="2026-02-01T00:00:00Z", status={"reason": "Evicted"}))

    assert deleted(world.reconcile()) == ["evicted", "p0", "p1"]


def test_a_terminating_pod_without_node_is_removed_and_one_out_of_service_too(world_of, a_pod):
    world = world_of(CONTROLLER)
    world.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
               "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}})  # fmt: skip
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put(a_pod("unbound", phase="Pending", **ending))
    world.put(a_pod("stuck", node="n1", **ending))
    world.put(a_pod("pending", phase="Pending"))

    assert deleted(world.reconcile()) == ["stuck", "unbound"]
