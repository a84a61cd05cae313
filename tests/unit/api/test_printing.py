"""What `kubectl get` prints of times and services, at the borders between one form and the next."""

import pytest

from services.api.printing import cells
from services.api.resources import resources
from services.api.times import duration

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (8 * HOUR + MINUTE, "8h"),
        (48 * HOUR - 1, "47h"),
        (48 * HOUR, "2d"),
        (49 * HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (730 * DAY - 1, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY - 1, "7y364d"),
        (8 * 365 * DAY, "8y"),
    ],
)
def test_a_duration_is_printed_as_apimachinery_does(seconds, text):
    assert duration(seconds) == text


def row(**spec):
    return cells(resources()["services"].columns, {"metadata": {"name": "web"}, "spec": spec}, 0.0)


def test_a_service_prints_node_ports_and_protocols():
    ports = [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP", "nodePort": 0}]

    printed = row(type="NodePort", clusterIP="10.96.0.10", ports=ports, externalIPs=["192.0.2.1"], selector={"a": "b"})

    assert printed == ["web", "NodePort", "10.96.0.10", "192.0.2.1", "80:30080/TCP,53/UDP", "<unknown>", "a=b"]


def test_a_service_without_address_ports_or_selector_prints_none():
    assert row(ports=[], externalIPs=[]) == ["web", "ClusterIP", "<none>", "<none>", "<none>", "<unknown>", "<none>"]


def titled(resource, spec, status=None):
    """Return what is printed of an object named `a` under its titles."""
    columns = resources()[resource].columns
    document = {"metadata": {"name": "a"}, "spec": spec, "status": status or {}}
    return dict(zip((each.name for each in columns), cells(columns, document, 0.0), strict=True))


QUEUES = {"queues": 64, "handSize": 6, "queueLengthLimit": 50}


@pytest.mark.parametrize(
    ("spec", "type_", "printed"),
    [
        (
            {"limited": {"nominalConcurrencyShares": 30, "limitResponse": {"type": "Queue", "queuing": QUEUES}}},
            "Limited",
            (30, 64, 6, 50),
        ),
        (
            {"limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}},
            "Limited",
            (0, "<none>", "<none>", "<none>"),
        ),
        ({"exempt": {"nominalConcurrencyShares": 5}}, "Exempt", (5, "<none>", "<none>", "<none>")),
    ],
)
def test_a_priority_level_prints_its_shares_and_queues_if_it_has_some(spec, type_, printed):
    titles = ("NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit")

    assert titled("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", {"type": type_, **spec}) == {
        "Name": "a", "Type": type_, **dict(zip(titles, printed, strict=True)), "Age": "<unknown>",
    }  # fmt: skip


@pytest.mark.parametrize(("dangling", "missing"), [("False", "False"), ("True", "True"), ("", "?")])
def test_a_flow_schema_prints_its_level_and_whether_that_is_missing(dangling, missing):
    conditions = [{"type": "Dangling", "status": dangling}] if dangling else []
    spec = {"priorityLevelConfiguration": {"name": "system"}, "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"}}  # fmt: skip

    assert titled("flowschemas.flowcontrol.apiserver.k8s.io", spec, {"conditions": conditions}) == {
        "Name": "a", "PriorityLevel": "system", "MatchingPrecedence": 500, "DistinguisherMethod": "ByUser",
        "Age": "<unknown>", "MissingPL": missing,
    }  # fmt: skip
