"""What one node costs until it is Ready, in calls of the API server and in Python calls: a guard that no load on the
machine can move.

Two simulated runs differ in twenty nodes; the difference is the cost of a node until eight seconds after the start,
when no Lease is renewed yet. Hosts of more than twenty nodes spread their renewals, so both runs have more.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

from apiserver_fake.server import ApiServer
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

ROOT = Path(__file__).parents[3]
FEW, MANY = 25, 45
SCENARIO = """# The cost of nodes
limit 100s
nodes n1..n{nodes} cpu=64
expect within 8s count nodes status.conditions[Ready].status=True == {nodes}
wait 4s
"""
REQUESTS = {
    ("create", "nodetokens"): 1,
    ("create", "nodes"): 1,
    ("create", "leases.coordination.k8s.io"): 1,
    ("patch", "nodes/status"): 1,
    # Starting, three of sufficient resources, NodeReady; and RegisteredNode, of the node lifecycle controller.
    ("create", "events"): 6,
}
CEILINGS = {"apiserver_fake": 911, "kubelet": 546, "services/client": 230, "services/api": 465, "services/runtime": 36}


def _measured(nodes):
    """Return the Python calls of a whole run by component, and the API server's calls."""
    scenario = parse_scenario(SCENARIO.format(nodes=nodes), "cost", VERBS)
    files, requests = Counter(), Counter()

    def count(frame, event, argument):
        if event != "call":
            return
        files[frame.f_code.co_filename] += 1
        if frame.f_code is ApiServer.start.__code__:
            request = frame.f_locals["request"]
            path = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
            requests[request.verb, path] += 1

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
    return components, requests


@pytest.fixture(scope="module")
def cost():
    """What one node more costs: Python calls by component, and calls of the API server."""
    _measured(FEW)  # what is remembered for the life of a process is remembered before anything is counted
    (few, asked_few), (many, asked_many) = _measured(FEW), _measured(MANY)
    components = {name: (many[name] - few[name]) / (MANY - FEW) for name in CEILINGS}
    return components, {key: (asked_many[key] - asked_few[key]) / (MANY - FEW) for key in asked_many}


def test_a_node_is_registered_with_these_calls_of_the_api_server(cost):
    _, requests = cost
    assert REQUESTS == {key: number for key, number in requests.items() if number}


@pytest.mark.parametrize("component", CEILINGS)
def test_a_node_costs_no_more_calls_than_before(cost, component):
    components, _ = cost
    assert components[component] <= CEILINGS[component], components


@pytest.mark.parametrize("component", CEILINGS)
def test_a_ceiling_is_within_a_tenth_of_what_a_node_costs(cost, component):
    components, _ = cost
    assert components[component] >= 0.9 * CEILINGS[component], components
