"""What links and processes do a second, from the counters that each process serves."""

import pytest

from lab.ui.rates import Rates, Sample, quantile_ms, read_leads

NAMES = {
    "sent": 'keplab_rpc_messages_total{direction="sent"}',
    "received": 'keplab_rpc_messages_total{direction="received"}',
    "bytes": 'keplab_rpc_bytes_total{direction="sent"}',
    "errors": 'keplab_rpc_errors_total{reason="unknown"}',
    "fast": 'keplab_rpc_duration_seconds_bucket{le="0.01"}',
    "all": 'keplab_rpc_duration_seconds_bucket{le="0.1"}',
    "every": 'keplab_rpc_duration_seconds_bucket{le="+Inf"}',
    "cpu": "process_cpu_seconds_total",
    "memory": "process_resident_memory_bytes",
    "active": 'scheduler_pending_pods{queue="active"}',
}


def sample(at_s, **values):
    given = {"memory": 1e8, "every": values.get("all", 0), **values}
    return Sample(at_s, {name: float(given.get(word, 0)) for word, name in NAMES.items()})


def test_who_leads_is_read_from_the_metrics():
    assert True is read_leads('# HELP x\nleader_election_master_status{name="s"} 1.0\n')
    assert False is read_leads("leader_election_master_status 0.0")
    assert read_leads("a 1.0") is None


def test_the_rates_of_a_link_are_those_of_the_window():
    rates = Rates()
    rates.add("scheduler", sample(100.0, sent=10, received=5, bytes=1000, fast=0, all=0, cpu=1.0))
    rates.add("scheduler", sample(104.0, sent=50, received=25, bytes=9000, fast=50, all=100, cpu=3.0, errors=2))

    assert {
        "from": "scheduler", "to": "apiserver", "messages_s": 15.0, "sent_s": 10.0, "received_s": 5.0, "bytes_s": 2000.0,
        "p50_ms": 10.0, "p99_ms": 98.2, "errors_s": 0.5,
    } == rates.link("scheduler", "apiserver")  # fmt: skip
    assert {"cpu": 0.5, "rss_bytes": 1e8, "nodes": None, "nodes_ready": None} == rates.process("scheduler")


def test_samples_older_than_ten_seconds_do_not_count():
    rates = Rates()
    for at_s, sent in ((0.0, 0), (5.0, 1000), (16.0, 1110)):
        rates.add("controllers", sample(at_s, sent=sent))

    assert 10.0 == rates.link("controllers", "apiserver")["sent_s"]


def test_a_new_life_begins_at_nothing():
    rates = Rates()
    rates.add("scheduler", sample(0.0, sent=1000, cpu=50.0))
    rates.add("scheduler", sample(1.0, sent=3, cpu=0.5))

    assert 0.0 == rates.link("scheduler", "apiserver")["sent_s"]


def test_an_api_server_has_no_link_and_an_unknown_process_no_rates():
    rates = Rates()
    rates.add("apiserver", sample(0.0))

    assert rates.link("apiserver", "apiserver") is None
    unknown = {"cpu": None, "rss_bytes": None, "nodes": None, "nodes_ready": None}
    assert unknown == rates.process("kubelet/h0")
    rates.add("kubelet/h0", Sample(1.0, {"keplab_kubelet_nodes": 1667.0, "keplab_kubelet_nodes_ready": 1666.0}))
    assert {**unknown, "nodes": 1667.0, "nodes_ready": 1666.0} == rates.process("kubelet/h0")


def test_the_pools_are_those_of_the_scheduler_that_has_most():
    rates = Rates()
    assert rates.pools() is None
    rates.add("scheduler-1", sample(0.0, active=7))
    rates.add("scheduler-2", sample(0.0, active=0))

    assert {"active": 7} == rates.pools()


@pytest.mark.parametrize(
    ("buckets", "share", "ms"),
    [
        ([], 0.5, None),
        ([(0.1, 0), (float("inf"), 0)], 0.5, None),
        ([(0.1, 10), (float("inf"), 10)], 0.5, 50.0),
        ([(0.1, 0), (float("inf"), 10)], 0.5, 100.0),
        ([(0.1, 10), (0.2, 20), (float("inf"), 20)], 0.99, 198.0),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(buckets, share, ms):
    assert ms == quantile_ms(buckets, share)
