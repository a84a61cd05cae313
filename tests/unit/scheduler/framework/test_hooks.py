"""Hooks around a plugin's calls: before, instead and after, at each point, and with the plugin otherwise unchanged."""

import asyncio

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.configuration.assembly import make_profiles
from scheduler.configuration.parser import ConfigurationError, read, with_defaults
from scheduler.configuration.plugins import defaults, plugins
from scheduler.cycle.scheduling_cycle import SchedulingCycle
from scheduler.entry import PluginEntry
from scheduler.framework.hooks import HookedPlugin
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, ReservePlugin, ScorePlugin
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler.framework.vectorized import RowPure, VectorFilterPlugin, VectorScorePlugin
from tests.unit.scheduler.conftest import new_handle, plugin_of

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Hooks:
    """Hooks given by name; they remember with what they were called."""

    def __init__(self, **hooks):
        self.calls = []
        for name, answer in hooks.items():
            setattr(self, name, self._hook(name, answer))

    def _hook(self, name, answer):
        def hook(*args):
            self.calls.append((name, args))
            return answer(*args) if callable(answer) else answer

        return hook


def profile(hooks, about="NodeResourcesFit"):
    entry = PluginEntry("Mine", lambda args, handle: hooks, hooks=about)
    configuration = with_defaults(
        read(HEAD + "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}]}}}]"), "default"
    )
    handle = new_handle()
    return make_profiles(configuration, {**plugins(), "Mine": entry}, defaults(handle.switches), handle)[0]


def cycle_of(world, hooks, about="NodeResourcesFit"):
    made = profile(hooks, about)
    runner = Runner(made.plugins, made.points)
    return SchedulingCycle(world.cache, runner, world.queue.nominator, world.cycle.random)


def test_a_before_hook_that_answers_is_asked_instead_of_the_plugin_and_an_after_hook_changes_the_answer(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1"), a.node("n2"), a.node("n3"))
    hooks = Hooks(
        before_filter=lambda state, pod, node: unschedulable("no licence") if node.name == "n3" else None,
        after_filter=lambda state, pod, node, status: SUCCESS if node.name == "n1" else status,
    )
    cycle = cycle_of(world, hooks)

    result = cycle.schedule(PodInfo(a.pod("p", cpu="2")), 0.0)

    assert (result.feasible, set(result.ranking.names)) == (2, {"n1", "n2"}), "n1 is too small, says the plugin alone"
    asked = {(name, args[2].name) for name, args in hooks.calls}
    assert ("before_filter", "n3") in asked
    assert ("after_filter", "n3") not in asked, "the plugin was not asked"


def test_scores_can_be_replaced_and_changed(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    hooks = Hooks(
        before_score=lambda state, pod, node: 100 if node.name == "n1" else None,
        after_score=lambda state, pod, node, score: 0,
    )

    result = cycle_of(world, hooks).schedule(PodInfo(a.pod("p")), 0.0)

    assert result.ranking.scores["NodeResourcesFit"] == {"n1": 100, "n2": 0}


def test_normalized_scores_too(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    hooks = Hooks(after_normalize_score=lambda state, raw, feasible, scores: scores * 0 + 7)

    result = cycle_of(world, hooks, "TaintToleration").schedule(PodInfo(a.pod("p")), 0.0)

    assert result.ranking.scores["TaintToleration"] == {"n1": 7, "n2": 7}


class Everything:
    """A plugin at the points after the choice."""

    name = "Everything"

    def pre_filter(self, state, pod, columns):
        return SUCCESS

    def reserve(self, state, pod, node_name):
        return SUCCESS

    def unreserve(self, state, pod, node_name):
        raise AssertionError("the hook answers")

    def permit(self, state, pod, node_name):
        return SUCCESS, 0.0

    def pre_bind_pre_flight(self, state, pod, node_name):
        return SUCCESS

    async def pre_bind(self, state, pod, node_name, client):
        return SUCCESS


def test_every_point_after_the_choice_has_hooks_and_a_status_takes_the_form_of_the_point():
    wait = Status(Code.WAIT, ("soon",))
    hooks = Hooks(
        before_pre_filter=unschedulable("not now"),
        after_reserve=unschedulable("taken"),
        before_unreserve="nothing",
        before_permit=wait,
        after_pre_bind=lambda state, pod, node, client, status: unschedulable("late"),
    )
    plugin = HookedPlugin(Everything(), hooks)

    assert plugin.pre_filter(None, None, None).status.message == "not now"
    assert plugin.reserve(None, None, "n1").message == "taken"
    assert plugin.unreserve(None, None, "n1") == "nothing"
    assert plugin.permit(None, None, "n1") == (wait, 0.0)
    assert asyncio.run(plugin.pre_bind(None, None, "n1", None)).message == "late"
    assert plugin.pre_bind_pre_flight(None, None, "n1") is SUCCESS
    assert hooks.calls[1] == ("after_reserve", (None, None, "n1", SUCCESS))


def test_a_plugin_with_hooks_serves_the_points_that_it_served_and_is_asked_node_by_node_only_where_it_must():
    fit = plugin_of("NodeResourcesFit")
    filtered, reserved = HookedPlugin(fit, Hooks(after_filter=SUCCESS)), HookedPlugin(fit, Hooks(after_reserve=SUCCESS))

    for each in (filtered, reserved):
        assert isinstance(each, FilterPlugin)
        assert isinstance(each, ScorePlugin)
        assert isinstance(each, PreFilterPlugin) == isinstance(fit, PreFilterPlugin)
        assert not isinstance(each, ReservePlugin), "a hook at a point makes no plugin of that point"
    assert not isinstance(filtered, VectorFilterPlugin)
    assert not isinstance(filtered, RowPure)
    assert isinstance(filtered, VectorScorePlugin) == isinstance(fit, VectorScorePlugin)
    assert isinstance(reserved, VectorFilterPlugin) == isinstance(fit, VectorFilterPlugin)
    assert isinstance(reserved, RowPure) == isinstance(fit, RowPure)


@pytest.mark.parametrize(
    ("hooks", "about", "text"),
    [
        (Hooks(after_filter=SUCCESS), "Absent", '"Mine": it has hooks of Absent, which does not run'),
        (Hooks(), "NodeName", '"Mine": it has no hook, such as before_filter'),
    ],
)
def test_hooks_that_cannot_work_stop_the_start(hooks, about, text):
    with pytest.raises(ConfigurationError) as refused:
        profile(hooks, about)

    assert text in str(refused.value)
