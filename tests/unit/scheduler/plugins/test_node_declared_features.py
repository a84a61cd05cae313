"""NodeDeclaredFeatures: which events wake a pod that was rejected, and who runs the plugin at all."""

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.configuration.plugins import defaults
from scheduler.framework.events import NODE, UNSCHEDULED_POD, Action
from scheduler.framework.status import SKIP, SUCCESS
from services.api.kinds.pod import Container, ContainerRestartRule
from services.api.release import RELEASES
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle, plugin_of

RESTART_ALL = "RestartAllContainersOnContainerExits"
RULED = Container(restart_policy_rules=(ContainerRestartRule(action="RestartAllContainers"),))


def ruled(a, **parts):
    pod = a.pod(**parts)
    return replace(pod, spec=replace(pod.spec, containers=(RULED,)))


@pytest.mark.parametrize(("release", "is_on"), [*zip(RELEASES, (False, False, True, True), strict=True)])
def test_the_default_profile_has_it_since_1_36(release, is_on):
    assert is_on == ("NodeDeclaredFeatures" in dict(defaults(Switches.parse([f"emulate.version={release}"]))))


def test_it_skips_pods_that_need_nothing(a):
    plugin = plugin_of("NodeDeclaredFeatures")

    assert SKIP is plugin.pre_filter(None, PodInfo(a.pod()), None)
    assert SUCCESS is plugin.pre_filter(None, PodInfo(ruled(a)), None)
    assert SKIP is plugin.pre_filter(None, PodInfo(ruled(a, node="n1")), None), "it waits for more of its node"


def test_pods_that_need_the_same_are_signed_alike(a):
    plugin = plugin_of("NodeDeclaredFeatures")

    assert (RESTART_ALL,) == plugin.row_signature(PodInfo(ruled(a)))
    assert () == plugin.row_signature(PodInfo(a.pod()))


def test_a_scheduler_of_before_the_feature_needs_nothing(a):
    plugin = plugin_of("NodeDeclaredFeatures", new_handle(Switches({"emulate.version": "1.34"})))

    assert SKIP is plugin.pre_filter(None, PodInfo(ruled(a)), None)


@pytest.mark.parametrize(("old", "new", "hint"), [
    (None, (), "Queue"),
    ((), (RESTART_ALL,), "Queue"),
    ((RESTART_ALL,), ("Anything",), "Queue"),
    ((RESTART_ALL,), (RESTART_ALL,), "QueueSkip"),
])  # fmt: skip
def test_a_node_wakes_pods_when_it_comes_or_declares_something_else(a, old, new, hint):
    node, _ = plugin_of("NodeDeclaredFeatures").events_to_register()

    assert (NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE) == (node.event.resource, node.event.action)
    before = None if old is None else a.node("n1", features=old)
    assert hint == node.hint(PodInfo(ruled(a)), before, a.node("n1", features=new))


def test_a_pod_is_woken_by_its_own_update_that_changes_what_it_needs(a):
    _, own = plugin_of("NodeDeclaredFeatures").events_to_register()
    needs, plain = ruled(a), a.pod()

    assert (UNSCHEDULED_POD, Action.UPDATE) == (own.event.resource, own.event.action)
    assert "Queue" == own.hint(PodInfo(needs), needs, plain)
    assert "QueueSkip" == own.hint(PodInfo(needs), needs, needs)
    assert "QueueSkip" == own.hint(PodInfo(ruled(a, name="other")), needs, plain)


def test_explain_names_what_a_node_lacks(a, cluster):
    plugin = plugin_of("NodeDeclaredFeatures")
    world = cluster().nodes(a.node("n1"), a.node("n2", features=(RESTART_ALL,)))
    found = {info.name: plugin.lacks(PodInfo(ruled(a)), info) for info in world.cache.nodes.values()}

    assert {"n1": (RESTART_ALL,), "n2": ()} == found


def test_the_event_of_a_changed_list_wakes_the_pod(a, cluster):
    world = cluster().nodes(node := a.node("n1"))
    world.handlers.on_pod(None, ruled(a), 0.0)
    assert "p!" == world.attempt(0.0)

    world.handlers.on_node(node, a.node("n1", features=("Anything",)), 5.0)
    assert "p!" == world.attempt(10.0), "upstream does not look whether the new list is enough"

    world.handlers.on_node(a.node("n1", features=("Anything",)), a.node("n1", features=(RESTART_ALL,)), 30.0)
    assert "p->n1" == world.attempt(60.0)
