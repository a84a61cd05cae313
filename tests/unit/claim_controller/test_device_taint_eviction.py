"""Which pods have to go because of taints on their devices, when, and what rules say of it (dra-core 8)."""

import pytest

from claim_controller.device_taint_eviction.controller import CONTROLLER
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.switches import Switches
from services.reconcile.actions import Delete, Patch, Query, RecordEvent
from tests.unit.claim_controller.conftest import CLAIM, a_claim, a_pod

P = Key("default", "p")
LIVE = Query(Pod, P)
RULES = {"DRADeviceTaintRules": True}


def tolerates(seconds=None, **toleration):
    found = {"key": "ill", "operator": "Exists", "effect": "NoExecute", **toleration}
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


def a_slice(world, *taints, generation=1, name="s", devices=("gpu-0",)):
    """Devices of one pool, all of them with these taints, which were added now."""
    taints = [{"key": taint, "effect": "NoExecute", "timeAdded": world.stamp()} for taint in taints]
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "d.x", "pool": pool, "devices": [{"name": each, "taints": taints} for each in devices]}
    return {"apiVersion": CLAIM, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def a_rule(world, effect="NoExecute", selector=None, generation=1, **status):
    taint = {"key": "ill", "effect": effect, "timeAdded": world.stamp()}
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r", "generation": generation},
        "spec": {"deviceSelector": {} if selector is None else selector, "taint": taint},
        "status": status,
    }


def fire(world, name="p"):
    """Reconcile a pod that is due, with a live read that finds it."""
    asked = world.sync("pod", name)
    assert asked.refresh == (Query(Pod, Key("default", name)),)
    return world.sync("pod", name, live={asked.refresh[0]: world.of(Pod).get(Key("default", name))})


def messages(result):
    return [each.message for each in result.actions if isinstance(each, RecordEvent)]


@pytest.fixture
def used(world_of):
    """A pod that uses gpu-0, with these tolerations in its claim's allocation."""

    def build(*tolerations, node="n1", **switches):
        world = world_of(CONTROLLER, **switches)
        world.put(a_slice(world))
        world.put(a_pod("p", node=node))
        world.put(a_claim(consumers=["p"], tolerations=tolerations))
        return world

    return build


def test_a_pod_on_a_tainted_device_is_deleted_with_the_condition_that_jobs_read(used):
    world = used()
    keys = world.put(a_slice(world, "ill"))

    result = fire(world)

    assert keys == [Key("default", "pod/p")]
    assert messages(result) == ["Marking for deletion"]
    condition = next(each for each in result.actions if isinstance(each, Patch)).patch["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"
    assert [each.uid for each in result.actions if isinstance(each, Delete)] == ["uid-p"]


@pytest.mark.parametrize(
    ("tolerations", "wait_s"),
    [
        ((tolerates(),), None),
        ((tolerates(20),), 20.0),
        ((tolerates(20), tolerates(5)), 5.0),
        ((tolerates(20), tolerates()), None),
        ((tolerates(20, effect=""),), 20.0),
        ((tolerates(20, key="other"),), 0.0),
        ((tolerates(20, effect="NoSchedule"),), 0.0),
        ((tolerates(-1),), 0.0),
        ((tolerates(20, operator="Equal", value="x"),), 0.0),
        ((tolerates(20, key=""),), 20.0),
    ],
)
def test_the_deadline_is_the_taints_time_and_the_fewest_seconds_of_the_copied_tolerations(used, tolerations, wait_s):
    world = used(*tolerations)
    world.put(a_slice(world, "ill"))

    result = world.sync("pod", "p")

    if wait_s is None:
        assert (result.actions, result.requeue_after_s, result.refresh) == ((), None, ())
    elif wait_s:
        assert result.requeue_after_s == pytest.approx(wait_s, abs=1e-6)
    else:
        assert result.refresh == (LIVE,)


def test_the_earliest_of_several_taints_counts(used):
    world = used(tolerates(60), tolerates(30, key="bad"))
    world.put(a_slice(world, "ill", "bad"))

    assert world.sync("pod", "p").requeue_after_s == pytest.approx(30.0, abs=1e-6)


def test_dra_core_12_a_taint_that_is_gone_in_time_calls_the_deletion_off(used):
    world = used(tolerates(20))
    world.put(a_slice(world, "ill"))
    world.sync("pod", "p")

    keys = world.put(a_slice(world))
    result = world.sync("pod", "p", after_s=10.0)

    assert keys == [Key("default", "pod/p")]
    assert (messages(result), len(result.actions)) == (["Cancelling deletion"], 1)
    assert world.sync("pod", "p", after_s=20.0).actions == ()


@pytest.mark.parametrize("pod", [{"node": ""}, {"phase": "Succeeded"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
def test_a_pod_without_a_node_or_one_that_has_ended_or_goes_is_left_alone(world_of, pod):
    world = world_of(CONTROLLER)
    world.put(a_slice(world, "ill"))
    world.put(a_pod("p", **pod))
    world.put(a_claim(consumers=["p"]))

    assert world.sync("pod", "p").refresh == ()


def test_a_pod_that_is_not_on_the_claims_list_is_left_alone(world_of):
    world = world_of(CONTROLLER)
    world.put(a_slice(world, "ill"))
    world.put(a_pod("p"))
    world.put(a_claim(consumers=["other"]))

    assert world.sync("pod", "p").refresh == ()


def test_kep_5194_12_pods_of_a_workload_are_found_by_the_claims_name(world_of):
    world = world_of(CONTROLLER)
    world.put(a_slice(world))
    for number in range(50):
        world.put(a_pod(f"p{number}"))
    for number in range(5):
        world.put(a_pod(f"pending{number}", node=""))
    world.put(a_claim(consumers=[("batch", "jobs", "work")]))

    keys = world.put(a_slice(world, "ill"))

    due = [key.name for key in keys if world.sync(*key.name.split("/")).refresh]
    assert due == [f"pod/p{number}" for number in range(50)]


@pytest.mark.parametrize(("consumers", "looked_at"), [
    (["p0", "p1", "p2", "p3"], ["p3"]),
    (["p0", "p2"], ["p1"]),
    (["p0", "p1", "p2", ("batch", "jobs", "work")], ["p0", "p1", "p2", "p3"]),
])  # fmt: skip
def test_only_pods_that_came_on_a_claims_list_or_left_it_are_looked_at_again(world_of, consumers, looked_at):
    world = world_of(CONTROLLER)
    for number in range(4):
        world.put(a_pod(f"p{number}"))
    world.put(a_claim(consumers=["p0", "p1", "p2"]))

    keys = world.put(a_claim(consumers=consumers))

    assert sorted(key.name for key in keys) == [f"pod/{name}" for name in looked_at]


def test_a_listed_pod_that_is_not_there_does_not_shield_the_others(world_of):
    world = world_of(CONTROLLER)
    world.put(a_slice(world))
    world.put(a_pod("p"))
    world.put(a_claim(consumers=["vanished", "p"]))

    assert Key("default", "pod/p") in world.put(a_slice(world, "ill"))


def test_slices_of_an_older_generation_do_not_count(used):
    world = used()
    world.put(a_slice(world, generation=2, name="newer"))
    keys = world.put(a_slice(world, "ill", generation=1))

    assert keys == []
    assert world.sync("pod", "p").refresh == ()


def test_controllers_12_a_pod_that_left_its_node_is_not_deleted(used):
    world = used()
    world.put(a_slice(world, "ill"))
    world.sync("pod", "p")
    before = world.of(Pod).get(P)
    world.put(a_pod("p", node=""))
    left = world.of(Pod).get(P)
    cancelled = world.sync("pod", "p")

    assert (before.spec.node_name, left.spec.node_name) == ("n1", "")
    assert messages(cancelled) == ["Cancelling deletion"]


def test_a_live_read_that_finds_the_pod_on_another_node_stops_the_deletion(used):
    world = used()
    world.put(a_slice(world, "ill"))
    world.sync("pod", "p")
    elsewhere = used(node="n2").of(Pod).get(P)

    assert world.sync("pod", "p", live={LIVE: elsewhere}).actions == ()
    assert world.sync("pod", "p", live={LIVE: None}).actions == ()


def test_the_deletion_is_counted_once_with_its_delay(used):
    world = used()
    world.put(a_slice(world, "ill"))
    fire(world)
    fire(world)
    world.put(a_pod("p", deletionTimestamp="2026-01-01T00:00:00Z"))

    world.sync("pod", "p", after_s=2.0)
    world.sync("pod", "p")

    found = world.controller.metrics()
    assert found["device_taint_eviction_controller_pod_deletions_total"] == 1
    assert found["device_taint_eviction_controller_pod_deletion_duration_seconds_sum"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("selector", "is_due"),
    [
        ({}, True),
        ({"driver": "d.x"}, True),
        ({"driver": "d.x", "pool": "n1", "device": "gpu-0"}, True),
        ({"driver": "d.y"}, False),
        ({"device": "gpu-1"}, False),
    ],
)
def test_a_rule_taints_the_devices_that_all_its_fields_select(used, selector, is_due):
    world = used(**RULES)
    keys = world.put(a_rule(world, selector=selector))

    assert Key("", "rule/r") in keys
    assert bool(world.sync("pod", "p").refresh) is is_due


def test_without_the_gate_rules_are_not_even_read(used):
    assert len(used().controller.watches) + 1 == len(used(**RULES).controller.watches)
    assert not CONTROLLER.is_wanted(Switches({"DRADeviceTaints": False}))


def said(result):
    (patch,) = result.actions
    (condition,) = patch.patch["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


def test_a_rule_says_how_many_pods_have_to_go_and_how_many_have_gone(used):
    world = used(**RULES)
    world.put(a_pod("q", namespace="other"))
    world.put(a_claim(consumers=["q"], namespace="other"))
    world.put(a_rule(world))

    pending = world.sync("rule", "r", namespace="")
    world.drop("Pod", "q", namespace="other")
    fire(world)
    world.put(a_pod("p", deletionTimestamp="2026-01-01T00:00:00Z"))
    world.sync("pod", "p")
    done = world.sync("rule", "r", namespace="")

    assert said(pending) == ("True", "PodsPendingEviction", "2 pods need to be evicted in 2 different namespaces.")
    assert said(done) == ("False", "Completed", "1 pod evicted since starting the controller.")


def test_a_rule_without_pods_has_not_started_and_one_that_keeps_pods_off_evicts_none(used):
    world = used(tolerates(), **RULES)
    world.put(a_rule(world))
    idle = world.sync("rule", "r", namespace="")
    world.put(a_rule(world, effect="NoSchedule"))
    other = world.sync("rule", "r", namespace="")

    assert said(idle) == ("False", "NotStarted", "")
    assert said(other) == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")


def test_a_rule_of_effect_none_says_once_what_it_would_do(used):
    world = used(**RULES)
    world.put(a_rule(world, effect="None"))
    result = world.sync("rule", "r", namespace="")
    condition = result.actions[0].patch["status"]["conditions"][0]
    world.put(a_rule(world, effect="None", conditions=[condition]))

    assert said(result) == (
        "False",
        "NoEffect",
        (
            "1 published device selected. 1 allocated device selected. "
            "1 pod would be evicted in 1 namespace if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        ),
    )
    assert world.sync("pod", "p").refresh == ()
    assert world.sync("rule", "r", namespace="", after_s=60.0).actions == ()


def test_a_condition_that_has_just_changed_waits_ten_seconds_unless_the_rule_changed(used):
    world = used(tolerates(20), **RULES)
    world.put(a_rule(world))
    condition = world.sync("rule", "r", namespace="").actions[0].patch["status"]["conditions"][0]
    world.put(a_rule(world, conditions=[{**condition, "message": "another"}]))

    early = world.sync("rule", "r", namespace="", after_s=4.0)
    late = world.sync("rule", "r", namespace="", after_s=6.0)
    world.put(a_rule(world, generation=2, conditions=[condition]))
    changed = world.sync("rule", "r", namespace="")

    assert (early.actions, early.requeue_after_s) == ((), pytest.approx(6.0, abs=1e-6))
    assert len(late.actions) == len(changed.actions) == 1
