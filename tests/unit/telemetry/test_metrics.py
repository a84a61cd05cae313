"""Metrics are text that Prometheus reads."""

import pytest

from services.telemetry.metrics import Histogram, Metrics, counter, gauge, histogram, render


def test_families_are_described_once_and_keep_their_samples_together():
    phases = Metrics(counter("pods_total", "Pods.", lambda pods: pods, "phase"))
    depth = Metrics(gauge("queue_depth", "Keys.", float))
    waits = Histogram((0.1,))
    waits.observe(0.05)
    wait = Metrics(histogram("wait_seconds", "Waits.", lambda each: each))

    text = render(phases.of({"Running": 3}) | depth.of(2.5) | wait.of(waits) | phases.of({"Failed": 1})).decode()

    assert (
        "# HELP pods_total Pods.\n"
        "# TYPE pods_total counter\n"
        'pods_total{phase="Running"} 3\n'
        'pods_total{phase="Failed"} 1\n'
        "# HELP queue_depth Keys.\n"
        "# TYPE queue_depth gauge\n"
        "queue_depth 2.5\n"
        "# HELP wait_seconds Waits.\n"
        "# TYPE wait_seconds histogram\n"
        'wait_seconds_bucket{le="0.1"} 1\n'
        'wait_seconds_bucket{le="+Inf"} 1\n'
        "wait_seconds_sum 0.05\n"
        "wait_seconds_count 1\n"
    ) == text


class Webhook:
    def __init__(self):
        self.seconds = Histogram((1.0, 2.0))
        self.calls = {("create", "done"): 3, ('"odd"', "error"): 1}
        self.in_flight = 4


def test_a_table_reads_the_counters_of_an_object_under_declared_names():
    table = Metrics(
        gauge("webhook_in_flight", "Calls without an answer.", lambda webhook: webhook.in_flight),
        counter("webhook_calls_total", "Calls by verb and result.", lambda webhook: webhook.calls, "verb", "result"),
        histogram("webhook_call_seconds", "Time a call took.", lambda webhook: webhook.seconds),
        labels=("name",),
    )
    webhook = Webhook()
    webhook.seconds.observe(1.5)

    assert table.of(webhook, "h1") == {
        'webhook_in_flight{name="h1"}': 4,
        'webhook_calls_total{name="h1",verb="create",result="done"}': 3,
        'webhook_calls_total{name="h1",verb="\\"odd\\"",result="error"}': 1,
        'webhook_call_seconds_bucket{name="h1",le="1"}': 0,
        'webhook_call_seconds_bucket{name="h1",le="2"}': 1,
        'webhook_call_seconds_bucket{name="h1",le="+Inf"}': 1,
        'webhook_call_seconds_sum{name="h1"}': 1.5,
        'webhook_call_seconds_count{name="h1"}': 1,
    }


def test_a_declared_type_wins_over_the_name():
    table = Metrics(counter("nodes_lost", "Counted, though its name does not say so.", lambda nodes: nodes))

    assert b"# TYPE nodes_lost counter\nnodes_lost 7\n" in render(table.of(7.0))


def test_a_name_has_one_type_and_one_help():
    Metrics(gauge("leases_held", "Leases.", float))

    with pytest.raises(ValueError, match="leases_held"):
        Metrics(gauge("leases_held", "Other leases.", float))
    Metrics(gauge("leases_held", "Leases.", float))


def test_a_large_resource_version_is_written_in_full():
    assert render({"keplab_store_resource_version": 12345678.0}).endswith(b"keplab_store_resource_version 12345678\n")


def test_a_histogram_keeps_the_newest_traced_value_of_each_bucket():
    held, other = Histogram((1.0,)), Histogram((1.0,))
    held.observe(0.5, 1, "a" * 32)
    held.observe(0.7, 1, "b" * 32)
    held.observe(0.6)
    other.observe(3.0, 2, "c" * 32)

    held.add(other)

    assert [held.exemplar(bucket) for bucket in range(2)] == [(0.7, "b" * 32), (3.0, "c" * 32)]
    assert (list(held.buckets()), held.sum, held.count) == ([("1", 3), ("+Inf", 5)], 7.8, 5)
