"""What one pod costs where many are, in function calls: a guard against costs that grow with nodes or stored pods.

Beside `test_cost_of_a_pod`, which has 5 nodes and 60 pods and cannot see what grows. Pods come, run and end in two
equal halves; a function that is called more for a pod of the second half is linear in the stored pods, one that is
called more at 200 nodes than at 20 is linear in the nodes. Loops inside one call are not seen. What nodes do by
themselves is measured before the first pod and taken off.
"""

import asyncio
import cProfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

ROOT = Path(__file__).parents[3]
CALLBACK = asyncio.Handle._run.__code__
PODS_A_BATCH, LIFE_S = 100, 5
FEW, MANY = (20, 30), (200, 300)
"""Nodes, and pods of each half, of the two cases."""
MARKS = ("wait 10.5s", "wait 1.5s", "wait 1.6s", "wait 1.7s")
CEILINGS = {"calls": 9_590, "callbacks": 190}
"""Calls and callbacks a pod of the second half in the larger case, lab included. One that is a tenth too high fails, too."""
GROWTH_MAX, MORE_MAX = 1.25, 16.0
"""Ratio and number by which a pod's calls of one function may exceed those of the smaller case; both make growth."""


def scenario_text(nodes, half):
    """Return a scenario of two halves of pods that run and end; its waits of odd lengths mark its phases."""
    lines = ["limit 600s", f"nodes n1..n{nodes} cpu=64", "wait 15s", "wait 10.5s", "wait 1.5s"]
    for which in (1, 2):
        for number in range(half):
            lines.append(f'pod p{which}-{number} cpu=100m run="exit 0 after {LIFE_S}s" restart=Never')
            lines += ["wait 1s"] if number % PODS_A_BATCH == PODS_A_BATCH - 1 else []
        lines += [f"expect within 60s count pods phase=Succeeded == {which * half}", "wait 10s", f"wait 1.{5 + which}s"]
    return "\n".join(lines) + "\n"


@dataclass
class Phase:
    """The calls of each function until a moment of the mesh's time."""

    at_s: float
    calls: Counter[CodeType]


def phases_of(nodes, half):
    """Return the counts when the idle phase begins, when it ends, and after either half, with its wait; calls count between them."""
    profile, phases = cProfile.Profile(builtins=False), {}

    def look(observer, line):
        if line in MARKS and line not in phases:
            counts = {entry.code: entry.callcount for entry in profile.getstats()}
            phases[line] = Phase(observer.now_s, Counter(counts))
            if len(phases) == 1:
                profile.enable()
            elif len(phases) == len(MARKS):
                profile.disable()

    text = scenario_text(nodes, half)
    try:
        result = simulate(parse_scenario(text, "load", VERBS), seed=1, progress=look)
    finally:
        profile.disable()
    assert result.passed, (result.error, result.expectations)
    return [phases[mark] for mark in MARKS]


@dataclass
class Cost:
    """Calls of one pod by function, in the first half and in the second."""

    first: dict[str, float]
    second: dict[str, float]
    callbacks: float


def cost_of(nodes, half):
    """Return the cost of a pod, without what the nodes do by themselves meanwhile."""
    idle, begun, middle, end = phases_of(nodes, half)
    idle_per_s = _difference(idle, begun, {}, begun.at_s - idle.at_s)
    first, second = (_difference(*both, idle_per_s, half) for both in ((begun, middle), (middle, end)))
    return Cost(_by_name(first), _by_name(second), second[CALLBACK])


def _difference(before, after, idle_per_s, divisor):
    span_s = after.at_s - before.at_s
    return {
        code: (count - before.calls[code] - idle_per_s.get(code, 0.0) * span_s) / divisor
        for code, count in after.calls.items()
    }


def _by_name(calls):
    names = Counter()
    for code, count in calls.items():
        path = Path(code.co_filename)
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        names[f"{name} {code.co_qualname}"] += count
    return names


def growing(small, large):
    """Return the functions that a pod of the larger case calls more often, with both counts."""
    return {
        name: (round(small.get(name, 0.0), 1), round(calls, 1))
        for name, calls in large.items()
        if calls > GROWTH_MAX * small.get(name, 0.0) and calls > small.get(name, 0.0) + MORE_MAX
    }


@pytest.fixture(scope="module")
def cost():
    """The cost of a pod in the large case and in the small one."""
    phases_of(2, 10)  # what is remembered for the life of a process is remembered before anything is counted
    return {"large": cost_of(*MANY), "small": cost_of(*FEW)}


def test_no_function_is_called_for_a_pod_more_often_the_more_pods_are_stored(cost):
    assert growing(cost["large"].first, cost["large"].second) == {}


def test_no_function_is_called_for_a_pod_more_often_the_more_nodes_there_are(cost):
    assert growing(cost["small"].second, cost["large"].second) == {}


def test_a_pod_costs_no_more_calls_and_callbacks_than_before_and_no_ceiling_is_too_high(cost):
    seen = {"calls": sum(cost["large"].second.values()), "callbacks": cost["large"].callbacks}

    assert {name: seen[name] for name in CEILINGS if not 0.9 * CEILINGS[name] <= seen[name] <= CEILINGS[name]} == {}


def test_growth_is_seen_where_a_pod_calls_a_function_once_for_every_node():
    small, large = {"flat": 90.0, "walks": 20.0, "rare": 1.0}, {"flat": 95.0, "walks": 200.0, "rare": 9.0}

    assert growing(small, large) == {"walks": (20.0, 200.0)}
