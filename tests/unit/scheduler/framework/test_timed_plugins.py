"""One attempt in ten is timed, and decisions are the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.result import ScheduleResult
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.status import unresolvable, unschedulable
from scheduler.framework.timing import PluginTimes, Turns, status_of
from services.api.kinds.node import Taint


class Stopwatch:
    """Time that goes on by a millisecond with every look at it."""

    def __init__(self):
        self.time, self.plugins, self.points = 0.0, [], []

    def now(self):
        self.time += 0.001
        return self.time

    def plugin(self, plugin, point, status, took_s):
        self.plugins.append((point, plugin, status))

    def point(self, point, status, profile, took_s):
        self.points.append((point, status, took_s))


def _decisions(cluster, a, observed):
    """Sixty pods of five templates, one after the other; with `observed` every third goes through the twin."""
    taints = (Taint(key="t", effect="PreferNoSchedule"),)
    world = cluster().nodes(*(a.node(f"n{i}", cpu="8", taints=taints if i % 3 else ()) for i in range(6)))
    plain = world.cycle
    twin = replace(plain, runner=world.runner.with_observer(PluginTimes(Stopwatch(), "default-scheduler")))
    chance, found = random.Random(1), []
    for i in range(60):
        pod = PodInfo(a.pod(f"p{i}", cpu=chance.choice(["100m", "500m", "1", "2", "9"])))
        result = (twin if observed and i % 3 == 0 else plain).schedule(pod, 0.0)
        if isinstance(result, ScheduleResult):
            world.cache.assume(pod, result.node_name, result.state)
            found.append(result.node_name)
        else:
            found.append(result.diagnosis.message)
    return found


def test_an_observed_runner_decides_as_its_twin_and_shares_its_memory(cluster, a):
    assert _decisions(cluster, a, observed=True) == _decisions(cluster, a, observed=False)


def test_points_and_plugins_are_timed_under_upstreams_labels(cluster, a):
    world, watch = cluster().nodes(a.node("n1"), a.node("n2")), Stopwatch()
    cycle = replace(world.cycle, runner=world.runner.with_observer(PluginTimes(watch, "default-scheduler")))

    cycle.schedule(PodInfo(a.pod("fits", cpu="1")), 0.0)
    cycle.schedule(PodInfo(a.pod("big", cpu="9")), 0.0)

    assert ("Filter", "NodeResourcesFit", "Success") in watch.plugins
    assert ("PostFilter", "DefaultPreemption", "Unschedulable") in watch.plugins
    assert [point for point, _, _ in watch.points] == [
        "PreFilter",
        "Filter",
        "PreScore",
        "Score",
        "PreFilter",
        "Filter",
        "PostFilter",
    ]
    assert all(took_s > 0 for _, _, took_s in watch.points)


def test_every_tenth_turn_counts_from_the_first():
    turns = Turns()

    assert [i for i in range(25) if turns.is_next()] == [0, 10, 20]


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (unschedulable("no"), "Unschedulable"),
        (PreFilterResult(unresolvable("no")), "UnschedulableAndUnresolvable"),
        ((unschedulable("no"), 5.0), "Unschedulable"),
        (None, "Success"),
    ],
)
def test_whatever_a_plugin_answers_has_a_status(answer, label):
    assert status_of(answer) == label
