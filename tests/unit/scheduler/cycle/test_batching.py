"""Opportunistic batching: who takes the next best node, what ends a list, and that the answer is a full cycle's."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.result import ScheduleResult
from scheduler.framework.arrangement import Enabled
from scheduler.framework.status import SUCCESS
from scheduler.wiring import core_of
from services.api.switches import Switches
from tests.unit.scheduler.conftest import Worlds, new_handle

a = Worlds()


class Asked:
    """A filter that counts the nodes it is asked about; it signs every pod alike."""

    name = "Asked"

    def __init__(self) -> None:
        self.nodes = 0

    def filter(self, state: Any, pod: PodInfo, node: Any) -> Any:
        self.nodes += 1
        return SUCCESS

    def sign(self, pod: PodInfo) -> Any:
        return ()


class Silent:
    """A filter that says nothing of how it judges."""

    name = "Silent"

    def filter(self, state: Any, pod: PodInfo, node: Any) -> Any:
        return SUCCESS


class Scene:
    """The core alone; `place` runs one cycle and assumes its choice."""

    def __init__(self, monkeypatch: Any = None, extra: Any = None, **switches: Any) -> None:
        assigned = Switches({name.replace("__", "."): value for name, value in switches.items()})
        self.handle = new_handle(assigned)
        if extra is not None:
            monkeypatch.setattr("scheduler.wiring.default_profile", _with(extra))
        self.core = core_of(self.handle)
        self.cycle = self.core.profiles._by_name["default-scheduler"].cycle
        self.cache = self.core.cache

    def nodes(self, count: int, **node: Any) -> Scene:
        for i in range(count):
            self.cache.set_node(a.node(f"n{i}", **node))
        return self

    def place(self, pod: Any, now: float = 0.0) -> str:
        info = PodInfo(pod)
        result = self.cycle.schedule(info, now)
        if not isinstance(result, ScheduleResult):
            return ""
        self.cache.assume(info, result.node_name, result.state)
        return result.node_name

    @property
    def hints(self) -> int:
        return self.cycle.batching.attempts.get("hint_used", 0)

    @property
    def flushed(self) -> Counter[str]:
        return Counter(self.cycle.batching.flushed)


def _with(extra: Any) -> Any:
    from scheduler.configuration.plugins import default_profile

    return lambda handle: [*default_profile(handle), Enabled(extra, 0)]


def test_queue_20_one_per_node_pods_use_hints_and_ask_two_nodes_at_most(monkeypatch):
    asked = Asked()
    scene = Scene(monkeypatch, asked).nodes(100)
    counts = []
    for i, now in enumerate((0.0, 0.01, 0.02, 0.62)):
        before = asked.nodes
        assert scene.place(a.pod(f"p{i}", port=8080), now)
        counts.append(asked.nodes - before)

    assert counts[0] == 100
    assert counts[1] <= 2
    assert counts[2] <= 2
    assert counts[3] == 97
    assert (scene.hints, scene.flushed["expired"]) == (2, 1)


def test_a_filter_that_does_not_sign_keeps_pods_from_being_batched(monkeypatch):
    scene = Scene(monkeypatch, Silent()).nodes(3)
    for i in range(3):
        scene.place(a.pod(f"p{i}", port=8080))

    assert scene.hints == 0


def test_without_the_gate_there_is_no_batch():
    assert Scene(OpportunisticBatching=False).cycle.batching is None


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"port": 9090}, "pod_incompatible"),
        ({"port": 8080, "labels": {"app": "other"}}, "pod_incompatible"),
        ({"port": 8080, "cpu": "1"}, "pod_incompatible"),
        ({"port": 8080, "nominated": "n2"}, "pod_nominated"),
    ],
)
def test_a_pod_of_another_kind_ends_the_batch(second, reason):
    scene = Scene().nodes(4)
    scene.place(a.pod("p1", port=8080))
    scene.place(a.pod("p2", **second))

    assert (scene.hints, scene.flushed[reason]) == (0, 1)


def test_while_the_last_node_takes_one_more_a_full_cycle_decides_and_the_kind_is_kept_less_often():
    scene = Scene().nodes(4)
    for i in range(14):
        scene.place(a.pod(f"p{i}", cpu="100m"))

    assert (scene.hints, scene.flushed["node_not_full"]) == (0, 4)


def test_so_it_does_where_a_plugin_beyond_the_template_is_asked(monkeypatch):
    scene = Scene(monkeypatch, Asked()).nodes(4)
    for i in range(2):
        scene.place(a.pod(f"p{i}", cpu="1"))

    assert (scene.hints, scene.flushed["node_not_full"]) == (0, 1)


def test_a_changed_node_ends_the_batch_unless_only_its_age_counts():
    def run(**switches: Any) -> Scene:
        scene = Scene(**switches).nodes(4)
        scene.place(a.pod("p1", cpu="4"))
        scene.cache.add_pod(PodInfo(a.pod("other", cpu="1")), "n3" if scene.cache.node_of("p1") != "n3" else "n2")
        scene.place(a.pod("p2", cpu="4"))
        return scene

    assert (run().hints, run().flushed["node_changed"]) == (0, 1)
    assert run(batching__validity="age").hints + run(batching__validity="age").flushed["hint_not_feasible"] == 1


@given(
    st.lists(st.tuples(st.sampled_from(["2", "3", "4"]), st.sampled_from([0, 80, 81])), min_size=1, max_size=12),
    st.integers(2, 9),
    st.integers(0, 3),
)
def test_with_and_without_batching_every_pod_goes_to_the_same_node(kinds, nodes, seed):
    def places(*, batching: bool) -> list[str]:
        scene = Scene(OpportunisticBatching=batching)
        chance = random.Random(seed)
        for i in range(nodes):
            scene.cache.set_node(a.node(f"n{i}", cpu=str(chance.choice((3, 4, 8)))))
        pods = [(cpu, port, i, n) for i, (cpu, port) in enumerate(kinds) for n in range(3)]
        return [scene.place(a.pod(f"p{i}-{n}", cpu=cpu, port=port)) for cpu, port, i, n in pods]

    assert places(batching=False) == places(batching=True)
