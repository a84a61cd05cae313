import pytest

from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.controllers.taint_eviction.controller import CONTROLLER
from services.reconcile.actions import Delete, Patch, Query, RecordEvent

P = Key("default", "p")
TOLERATIONS = [
    {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
]


def a_node(name, *taints):
    taints = [{"key": t, "effect": "NoExecute"} for t in taints]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}


def live(world, **changes):
    return {Query(Pod, P): world.of(Pod).get(P)}


def deletes(result):
    return [a for a in result.actions if isinstance(a, Delete)]


@pytest.fixture
def tainted(world_of, a_pod):
    def build(faithful=False):
        world = world_of(CONTROLLER, tainteviction__faithful=faithful)
        world.put(a_node("n1", "a"))
        world.put(a_node("n2"))
        assert world.put(a_pod("p", node="n1", spec={"tolerations": TOLERATIONS})) == [P]
        return world

    return build


def test_controllers_16_a_toleration_of_sixty_seconds_deletes_at_sixty_with_its_reason(tainted):
    world = tainted()

    started = world.reconcile("p")
    early = world.reconcile("p", after_s=59.0)
    asked = world.reconcile("p", after_s=1.0)
    fired = world.reconcile("p", live=live(world))

    assert (started.requeue_after_s, early.requeue_after_s) == (60.0, 1.0)
    assert asked.refresh == (Query(Pod, P),)
    assert deletes(fired)[0].uid == "uid-p"
    condition = next(a for a in fired.actions if isinstance(a, Patch)).patch["status"]["conditions"][0]
    assert condition["reason"] == "DeletionByTaintManager"


@pytest.mark.parametrize(("faithful", "left_s"), [(True, 50.0), (False, 30.0)])
def test_controllers_16_a_second_taint_at_ten_seconds_shortens_the_wait_only_unfaithfully(tainted, faithful, left_s):
    world = tainted(faithful)
    world.reconcile("p")

    assert world.put(a_node("n1", "a", "b")) == [P]

    assert world.reconcile("p", after_s=10.0).requeue_after_s == left_s


@pytest.mark.parametrize("faithful", [True, False])
def test_controllers_16_an_untolerated_second_taint_deletes_at_once_in_both(tainted, faithful):
    world = tainted(faithful)
    world.reconcile("p")
    world.put(a_node("n1", "a", "c"))

    assert world.reconcile("p", after_s=10.0).refresh
    assert len(deletes(world.reconcile("p", live=live(world)))) == 1


def test_controllers_17_an_unbind_voids_the_timer_and_the_pod_survives_elsewhere(tainted, a_pod):
    world = tainted()
    world.reconcile("p")

    assert world.put(a_pod("p", spec={"tolerations": TOLERATIONS})) == [P]
    cancelled = world.reconcile("p", after_s=5.0)
    world.put(a_pod("p", node="n2", spec={"tolerations": TOLERATIONS}))
    later = world.reconcile("p", after_s=60.0, live=live(world))

    assert [a.message for a in cancelled.actions if isinstance(a, RecordEvent)] == [
        "Cancelling deletion of Pod default/p"
    ]
    assert later.actions == ()


def test_controllers_17_faithfully_the_unbound_pod_is_deleted_where_it_runs_now(tainted, a_pod):
    world = tainted(faithful=True)
    world.reconcile("p")
    world.put(a_pod("p", spec={"tolerations": TOLERATIONS}))
    world.reconcile("p", after_s=5.0)
    world.put(a_pod("p", node="n2", spec={"tolerations": TOLERATIONS}))

    fired = world.reconcile("p", after_s=60.0, live=live(world))

    assert [a.uid for a in deletes(fired)] == [""]


def test_a_pod_that_was_unbound_after_the_cache_saw_it_is_left_alone(tainted, a_pod):
    world = tainted()
    world.reconcile("p")
    stale = live(world)
    elsewhere = {q: type(v)(metadata=v.metadata, status=v.status) for q, v in stale.items()}  # live: no node

    assert world.reconcile("p", after_s=60.0, live=elsewhere).actions == ()


def test_removing_the_taint_cancels_the_timer(tainted):
    world = tainted()
    world.reconcile("p")
    world.put(a_node("n1"))

    assert "Cancelling" in world.reconcile("p", after_s=10.0).actions[0].message
    assert world.reconcile("p", after_s=60.0).actions == ()


def test_deletions_are_counted_when_they_are_seen(tainted):
    world = tainted()
    world.reconcile("p")
    world.reconcile("p", live=live(world), after_s=60.0)
    world.drop("Pod", "p")
    world.reconcile("p", after_s=2.0)
    found = world.controller.metrics()

    assert found["taint_eviction_controller_pod_deletions_total"] == 1
    assert found["taint_eviction_controller_pod_deletion_duration_seconds_sum"] == pytest.approx(2.0)
