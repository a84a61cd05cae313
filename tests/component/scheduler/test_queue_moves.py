"""`sched.moved`: every move of a pod between pools of the scheduling queue is a line, with what moved it and whose hint."""

from itertools import pairwise

import pytest

from lab.scenarios.run import simulate
from lab.scenarios.script.verbs import read_scenario

SCENARIO = """
limit 60s
nodes n1 cpu=2
pod big cpu=2 node=n1
expect within 10s count pods phase=Running == 1
pod waiting cpu=1
expect within 5s count events reason=FailedScheduling involvedObject.name=waiting == 1
pod gated cpu=10m gates=example.com/wait
wait 1s
delete pod/big grace=1
expect within 20s each pods name=waiting phase == Running
"""


def moves(*words):
    """Return the moves of each pod by name, and the run's result."""
    found = {}

    def take(line):
        if line.ev == "sched.moved":
            found.setdefault(line.obj["name"], []).append(line.data)

    result = simulate(read_scenario("\n".join((*words, SCENARIO)), "moves"), on_line=take)
    assert result.passed, result
    return found, result


@pytest.fixture(scope="module")
def switched_on():
    return moves("set telemetry.queue_moves=on")


def test_a_pod_goes_from_pool_to_pool(switched_on):
    found, _ = switched_on
    pools = [(each["from"], each["to"]) for each in found["waiting"]]

    assert pools[0] == ("", "active")
    assert all(before[1] == after[0] for before, after in pairwise(pools))
    assert pools[-1] == ("in_flight", "")
    assert ("active", "in_flight") in pools
    assert ("in_flight", "unschedulable") in pools


def test_a_line_says_what_moved_the_pod_and_whose_hint(switched_on):
    found, _ = switched_on
    by_step = {(each["from"], each["to"]): each for each in found["waiting"]}

    assert by_step["in_flight", "unschedulable"]["by"] == "NodeResourcesFit"
    woken = next(each for each in found["waiting"] if each["from"] == "unschedulable")
    assert (woken["by"], woken["hint"]) == ("AssignedPodDelete", "NodeResourcesFit")
    assert by_step["in_flight", ""]["by"] == "Bind"
    assert [(each["to"], each["by"], each["hint"]) for each in found["gated"]] == [("gated", "SchedulingGates", "")]


def test_off_there_are_no_such_lines_and_the_queue_is_measured_all_the_same(switched_on):
    found, off = moves()
    _, on = switched_on

    assert found == {}
    assert off.measures["queue_gated_s"] == on.measures["queue_gated_s"] > 0.0
    assert off.measures == on.measures
    assert off.lines < on.lines
