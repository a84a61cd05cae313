"""What is wrong with a node, and what pods may have of it. Time is a plain number."""

import pytest

from kubelet.node.definition import NodeDefinition
from kubelet.node.health import RUNTIME_DOWN, NodeHealth, parse_node_faults, pleg_stuck
from kubelet.node.status import NodeReport
from kubelet.runtime.script import NETWORK_DOWN, StartFault

PLEG_STUCK = pleg_stuck(180.0)


def health(text, since_s=0.0):
    return NodeHealth(parse_node_faults(text).ailments, since_s)


def report_of(definition):
    return NodeReport(definition, session="s", address="1.1.1.1", port=0)


def test_clauses_of_parts_and_of_stages_stand_side_by_side():
    faults = parse_node_faults("network down for 30s; mount fails")

    assert faults.all_starts == (StartFault("mount"), StartFault("network", for_s=30.0))


@pytest.mark.parametrize(
    "text", ["runtime up", "network down 5s", "pleg stuck for ever", "gpu down", "events broken 6 times"]
)
def test_a_clause_that_is_neither_is_refused(text):
    with pytest.raises(ValueError, match=r"want|duration"):
        parse_node_faults(text)


@pytest.mark.parametrize(
    ("text", "at_s", "reasons", "holds_back"),
    [
        ("runtime down for 60s", 59.0, (RUNTIME_DOWN,), True),
        ("runtime down for 60s", 60.0, (), False),
        ("network down", 1.0, (NETWORK_DOWN,), False),
        ("pleg stuck", 179.0, (), False),
        ("pleg stuck", 180.0, (PLEG_STUCK,), True),
        ("network down; runtime down", 0.0, (RUNTIME_DOWN, NETWORK_DOWN), True),
    ],
)
def test_what_stands_against_a_node_being_ready(text, at_s, reasons, holds_back):
    assert (health(text).reasons(at_s), health(text).holds_back(at_s)) == (reasons, holds_back)


def test_health_knows_when_it_changes_by_itself():
    found = health("pleg stuck for 10m", since_s=100.0)

    assert [found.next_s(t) for t in (100.0, 280.0, 700.0)] == [280.0, 700.0, None]


def test_a_node_that_is_not_ready_for_two_reasons_says_both(a_node):
    report = report_of(a_node())
    report.reasons = (RUNTIME_DOWN, PLEG_STUCK)

    ready = report.status(0.0)["conditions"][-1]

    assert (ready["status"], ready["reason"]) == ("False", "KubeletNotReady")
    assert ready["message"] == f"[{RUNTIME_DOWN}, {PLEG_STUCK}]"


def test_every_transition_of_a_node_condition_is_recorded_once(a_node):
    report = report_of(a_node())
    report.status(0.0)
    first, report.news = [reason for reason, _ in report.news], []
    report.pressures = ("MemoryPressure",)
    report.status(10.0)
    report.status(20.0)

    assert first == [
        "Starting",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ]
    assert report.news == [("NodeHasInsufficientMemory", "Node n1 status is now: NodeHasInsufficientMemory")]


@pytest.mark.parametrize(
    ("fields", "allocatable"),
    [
        ({}, {"cpu": "4", "memory": "8Gi"}),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "250m", "memory": "1Gi"}}, {"cpu": "3250m", "memory": "7Gi"}),
        ({"eviction": {"hard": {"memory.available": "1Gi", "nodefs.available": "10%"}}}, {"memory": "7Gi", "ephemeral-storage": "90Gi"}),
        ({"systemReserved": {"memory": "512Mi"}, "eviction": {"hard": {"memory.available": "512Mi"}}}, {"memory": "7Gi"}),
        ({"reservedSystemCpus": "0", "kubeReserved": {"cpu": "2500m"}}, {"cpu": "3"}),
    ],
)  # fmt: skip
def test_pods_may_have_what_is_not_reserved_and_lies_above_thresholds_that_are_said(a_node, fields, allocatable):
    node = a_node(cpu="4", memory="8Gi", **fields)

    assert {name: node.allocatable()[name] for name in allocatable} == allocatable
    assert (node.capacity()["cpu"], node.capacity()["memory"]) == ("4", "8Gi")


def test_what_cannot_be_reserved_is_refused(a_node):
    with pytest.raises(ValueError, match="kubeReserved: 'gpu', want one of cpu, memory, ephemeral-storage"):
        a_node(kubeReserved={"gpu": "1"})


def test_a_condition_that_was_given_without_a_time_gets_one_and_turns_nothing():
    report = report_of(NodeDefinition(name="n1"))
    report.observe("Ready", "True", "")
    report.observe("DiskPressure", "False", "2020-01-01T00:00:00Z")

    first, later = (
        {c["type"]: c["lastTransitionTime"] for c in report.status(at)["conditions"]} for at in (60.0, 90.0)
    )

    assert (first["Ready"], later["Ready"]) == ("1970-01-01T00:01:00Z", "1970-01-01T00:01:00Z")
    assert first["DiskPressure"] == "2020-01-01T00:00:00Z"
    assert "NodeReady" not in [reason for reason, _ in report.news]
