"""One runner: all of a profile's plugins, or a part of them, and plugins that a pod does not concern."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.framework.arrangement import Enabled
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.runner import Runner
from scheduler.framework.status import SKIP, SUCCESS, Code, error_status, unschedulable


class Watcher:
    """Serves many points and notes the calls; asks the profile's filters."""

    name = "Watcher"

    def __init__(self, relevance: Any = SUCCESS) -> None:
        self.relevance, self.calls, self.filters = relevance, [], None

    def use_filters(self, filters: Runner) -> None:
        self.filters = filters

    def is_relevant_for_pod(self, state: CycleState, pod: PodInfo) -> Any:
        return self.relevance

    def filter(self, state: CycleState, pod: PodInfo, node: Any) -> Any:
        self.calls.append("filter")
        return unschedulable("watched")

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Any, diagnosis: Any) -> PostFilterResult:
        self.calls.append("post_filter")
        return PostFilterResult(unschedulable("no help"))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        self.calls.append("reserve")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.calls.append("unreserve")


def _profile(cluster, a, plugin):
    world = cluster().nodes(a.node("n1"))
    return world, [*world.runner.profile, Enabled(plugin)]


def test_a_part_of_a_runner_runs_its_plugins_alone_and_leaves_them_the_filters_of_the_whole(cluster, a):
    plugin = Watcher()
    world, profile = _profile(cluster, a, plugin)
    whole = Runner(profile)
    part = whole.only(lambda each: each is plugin)
    state, pod = CycleState(), PodInfo(a.pod("p", cpu="100"))

    status = part.filter_node(state, pod, world.cache.nodes["n1"])

    assert (status.plugin, status.reasons) == ("Watcher", ("watched",))
    assert part.registrations().keys() == {"Watcher"}
    assert plugin.filters is whole


@pytest.mark.parametrize(("relevance", "calls"), [(SUCCESS, ["filter", "reserve", "unreserve"]), (SKIP, [])])
def test_a_plugin_that_a_pod_does_not_concern_is_asked_at_no_point(cluster, a, relevance, calls):
    plugin = Watcher(relevance)
    world, profile = _profile(cluster, a, plugin)
    runner = Runner(profile, asks_relevance=True)
    state, pod = CycleState(), PodInfo(a.pod("p"))

    runner.filter(state, pod, world.cache.columns)
    runner.reserve(state, pod, "n1")
    runner.unreserve(state, pod, "n1")

    assert plugin.calls == calls


def test_when_no_postfilter_plugin_concerns_the_pod_its_nomination_stays(cluster, a):
    plugin = Watcher(SKIP)
    world = cluster().nodes(a.node("n1"))
    runner = Runner(
        [*(e for e in world.runner.profile if not hasattr(e.plugin, "post_filter")), Enabled(plugin)],
        asks_relevance=True,
    )
    state, pod, columns = CycleState(), PodInfo(a.pod("p", cpu="100")), world.cache.columns

    diagnosis = runner.diagnose(state, pod, columns, runner.filter(state, pod, columns))
    result = runner.post_filter(state, pod, columns, diagnosis)

    assert (result.status.code, result.nominated_node, plugin.calls) == (Code.UNSCHEDULABLE, None, [])


class Failing:
    """Answers alike at every point."""

    name = "Failing"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def filter(self, state: CycleState, pod: PodInfo, node: Any) -> Any:
        return self.answer

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self.answer

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Any, float]:
        return self.answer, 0.0

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Any:
        return self.answer

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("point", "text"),
    [
        ("filter", 'running "Failing" filter plugin: broken'),
        ("reserve", 'running Reserve plugin "Failing": broken'),
        ("permit", 'running Permit plugin "Failing": broken'),
        ("preBind", 'running PreBind plugin "Failing": broken'),
        ("bind", 'running Bind plugin "Failing": broken'),
    ],
)
def test_an_error_says_which_plugin_failed_where_and_a_rejection_speaks_for_itself(cluster, a, point, text):
    world, pod = cluster().nodes(a.node("n1")), PodInfo(a.pod("p"))

    def at_point(answer: Any) -> Any:
        runner, state = Runner([Enabled(Failing(answer))]), CycleState()
        match point:
            case "filter":
                return runner.filter_node(state, pod, world.cache.nodes["n1"])
            case "permit":
                return runner.permit(state, pod, "n1")[0]
            case "preBind":
                return asyncio.run(runner.pre_bind(state, pod, "n1", None))
        return getattr(runner, point)(state, pod, "n1")

    error, rejection = at_point(error_status("broken")), at_point(unschedulable("not now"))

    assert (error.code, error.message, error.plugin) == (Code.ERROR, text, "Failing")
    assert (rejection.code, rejection.message, rejection.plugin) == (Code.UNSCHEDULABLE, "not now", "Failing")


def test_statuses_have_upstreams_numbers():
    names = ["SUCCESS", "ERROR", "UNSCHEDULABLE", "UNSCHEDULABLE_AND_UNRESOLVABLE", "WAIT", "SKIP", "PENDING"]

    assert [(code.name, int(code)) for code in Code] == [(name, number) for number, name in enumerate(names)]
