"""What one pod costs, in function calls: a guard that no load on the machine can move.

Two simulated runs differ in forty pods of a ReplicaSet; the difference in Python calls, by the component whose file
the function is in, is the cost of a pod from its creation to Running: create, bind, start and status. The same seed
gives the same figure whatever the machine does. A change that raises a ceiling says why in its commit; a change that
lowers a figure by a tenth lowers the ceiling with it.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

ROOT = Path(__file__).parents[3]
FEW, MANY, WARM = 20, 60, 20
CEILINGS = {
    "apiserver_fake": 1221,
    "kubelet": 830,
    "scheduler": 411,
    "services/controllers": 176,
    "services/client": 406,
    "services/reconcile": 152,
    "services/telemetry": 197,
}
SCENARIO = """# The cost of pods
# Some pods start while everything is remembered for the first time; those that count come a minute later.
limit 300s
nodes n1..n5 cpu=64
replicaset warm replicas={warm} cpu=100m
expect within 30s count pods phase=Running == {warm}
wait 60s
replicaset web replicas={replicas} cpu=100m
expect within 30s count pods phase=Running == {all}
wait 60s
"""


def _calls(replicas):
    """Return the calls of a whole run by component."""
    text = SCENARIO.format(warm=WARM, replicas=replicas, all=WARM + replicas)
    scenario = parse_scenario(text, "cost", VERBS)
    files = Counter()

    def count(frame, event, argument):
        if event == "call":
            files[frame.f_code.co_filename] += 1

    sys.setprofile(count)
    try:
        result = simulate(scenario, seed=1)
    finally:
        sys.setprofile(None)
    assert result.passed, (result.error, result.expectations)
    components = Counter()
    for name, calls in files.items():
        path = Path(name)
        if path.is_relative_to(ROOT):
            parts = path.relative_to(ROOT).parts
            components["/".join(parts[:2]) if parts[0] in ("lab", "services") else parts[0]] += calls
    return components


@pytest.fixture(scope="module")
def cost():
    """The calls that one pod more costs, by component."""
    _calls(FEW)  # what is remembered for the life of a process is remembered before anything is counted
    few, many = _calls(FEW), _calls(MANY)
    return {name: (many[name] - few[name]) / (MANY - FEW) for name in CEILINGS}


@pytest.mark.parametrize("component", CEILINGS)
def test_a_pod_from_creation_to_running_costs_no_more_calls_than_before(cost, component):
    assert cost[component] <= CEILINGS[component]


@pytest.mark.parametrize("component", CEILINGS)
def test_a_ceiling_is_within_a_tenth_of_what_a_pod_costs(cost, component):
    assert cost[component] >= 0.9 * CEILINGS[component]
