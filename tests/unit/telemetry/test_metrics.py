"""Metrics are declared beside what they are read from."""

import pytest

from services.telemetry.metrics import Histogram, Metrics, counter, gauge, histogram


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


def test_a_name_has_one_type_and_one_help():
    Metrics(gauge("leases_held", "Leases.", float))

    with pytest.raises(ValueError, match="leases_held"):
        Metrics(gauge("leases_held", "Other leases.", float))
    Metrics(gauge("leases_held", "Leases.", float))


def test_a_histogram_keeps_the_newest_traced_value_of_each_bucket():
    held, other = Histogram((1.0,)), Histogram((1.0,))
    held.observe(0.5, 1, "a" * 32)
    held.observe(0.7, 1, "b" * 32)
    held.observe(0.6)
    other.observe(3.0, 2, "c" * 32)

    held.add(other)

    assert [held.exemplar(bucket) for bucket in range(2)] == [(0.7, "b" * 32), (3.0, "c" * 32)]
    assert (list(held.buckets()), held.sum, held.count) == ([("1", 3), ("+Inf", 5)], 7.8, 5)
