"""What a workload of a scheduler_perf file yields: samples, histograms, thresholds, data items (simulator 7.3)."""

import msgspec
import pytest

from lab.benchmarks.scheduler_perf import data_items, histograms
from lab.benchmarks.scheduler_perf.cases import LabelValues, MetricsCollectorConfig, MetricSelector
from lab.benchmarks.scheduler_perf.collectors import Throughput
from lab.benchmarks.scheduler_perf.data_items import DataItem
from lab.benchmarks.scheduler_perf.pods import Pods, PodState, SeenPod
from lab.benchmarks.scheduler_perf.typed_values import with_text_amounts
from services.api.meta import Key
from services.telemetry.exposition import exposition
from services.telemetry.metrics import Histogram, Metrics, gauge, histogram


def test_throughput_leaves_the_first_sample_out_and_merges_empty_intervals():
    throughput = Throughput(["a"], {"app": "x"})

    def pods(count, at, namespace="a", app="x"):
        for _ in range(count):
            throughput.observe(Key(namespace, "p"), {"app": app, "more": "y"}, at)

    throughput.sample(1.0)  # nothing yet
    pods(7, 1.5)
    pods(50, 1.5, namespace="b")
    pods(50, 1.5, app="other")
    throughput.sample(2.0)  # the first with pods
    pods(10, 2.5)
    throughput.sample(3.0)
    throughput.sample(4.0)  # empty
    throughput.sample(5.0)  # empty
    pods(6, 5.5)
    throughput.sample(6.0)

    assert throughput.samples == [10.0, 2.0, 2.0, 2.0]
    item = throughput.item({"Name": "n"})
    assert item == DataItem(
        {"Average": 4.0, "Perc50": 2.0, "Perc90": 10.0, "Perc95": 10.0, "Perc99": 10.0},
        "pods/s",
        {"Name": "n", "Metric": "SchedulingThroughput"},
    )
    assert throughput.scheduled == 23
    assert Throughput(["a"], {}).item({}) is None


def test_a_threshold_is_added_and_compared_strictly():
    item = DataItem({"Average": 300.0, "Perc99": 10.0}, "pods/s", {"Metric": "SchedulingThroughput", "Name": "n"})
    other = DataItem({"Average": 1.0}, "ms", {"Metric": "other", "Name": "n"})

    (at,) = data_items.compare([item, other], 300, MetricSelector())
    (below,) = data_items.compare([item], 299.9, MetricSelector())
    (lower,) = data_items.compare([item], 11, MetricSelector(data_bucket="Perc99", expect_lower=True))

    assert (at.is_met, below.is_met, lower.is_met) == (False, True, True)
    assert at.ratio == 1.0
    assert item.data == {"Average": 300.0, "Perc99": 10.0, "AverageThreshold": 299.9, "Perc99Threshold": 11}
    assert data_items.compare([item], 0, MetricSelector()) == []
    assert data_items.compare([item], 5, MetricSelector(labels={"result": "scheduled"})) == []


def test_every_item_has_every_label_and_the_file_is_named_as_upstreams():
    items = [DataItem({"A": 1.0}, "s", {"Name": "x"}), DataItem({"A": 2.0}, "s", {"Metric": "m"})]

    document = data_items.document(items)

    assert document["version"] == "v1"
    assert [each["labels"] for each in document["dataItems"]] == [
        {"Metric": "not applicable", "Name": "x"},
        {"Metric": "m", "Name": "not applicable"},
    ]
    assert (
        data_items.file_name("misc", "2026-01-02T03:04:05Z")
        == "BenchmarkPerfScheduling_benchmark_misc_2026-01-02T03:04:05Z.json"
    )
    assert data_items.document([]) == {"version": "v1", "dataItems": []}


BOUNDS = (0.001, 0.002, 0.004)


def scraped(**values):
    """Return the text of a scrape in which each `result` was measured with these seconds, and 3 events are in flight."""
    found = {}
    for result, seconds in values.items():
        found[result] = Histogram(BOUNDS)
        for each in seconds:
            found[result].observe(each)
    # A table of its own name, so that the register of the product's metrics is left alone.
    table = Metrics(
        histogram("scheduler_perf_test_seconds", "For this test.", lambda read: read, "result"),
        gauge("scheduler_inflight_events", "Events kept for pods in flight.", lambda read: 3),
    )
    return exposition(table.of(found), has_process=False)[1].decode()


def test_histograms_count_from_their_beginning_by_the_values_of_labels():
    before, after = scraped(scheduled=[0.0015] * 4), scraped(scheduled=[0.0015] * 4 + [0.003] * 4, error=[0.5])
    config = MetricsCollectorConfig({"scheduler_perf_test_seconds": [LabelValues("result")], "scheduler_none": None})

    found = {
        item.labels["result"]: item
        for item in histograms.items(histograms.families(before), histograms.families(after), config, "n")
    }

    assert set(found) == {"scheduled", "error"}
    scheduled = found["scheduled"]
    assert scheduled.unit == "ms"
    assert scheduled.labels == {"Name": "n", "Metric": "scheduler_perf_test_seconds", "result": "scheduled"}
    assert scheduled.data["Average"] == pytest.approx(3.0)
    assert scheduled.data["Perc50"] == pytest.approx(3.0)  # half of the bucket from 2 to 4 ms
    assert scheduled.data["Perc99"] == pytest.approx(3.98)
    assert found["error"].data["Perc50"] == pytest.approx(4.0)  # above all bounds: the highest


def test_histograms_are_one_without_labels_and_only_the_values_asked_for():
    after = histograms.families(scraped(scheduled=[0.003], error=[0.003]))
    whole = MetricsCollectorConfig({"scheduler_perf_test_seconds": None})
    one = MetricsCollectorConfig({"scheduler_perf_test_seconds": [LabelValues("result", ("error", "unschedulable"))]})

    assert [item.labels for item in histograms.items({}, after, whole, "n")] == [
        {"Name": "n", "Metric": "scheduler_perf_test_seconds"}
    ]
    assert [item.labels["result"] for item in histograms.items({}, after, one, "n")] == ["error"]


def test_a_gauge_is_read_from_a_scrape():
    assert histograms.gauge(scraped(), "scheduler_inflight_events") == 3


def test_pods_are_counted_by_stage_and_labels():
    pods, seen = Pods(), []
    pods.listeners.append(lambda key, labels: seen.append((key.name, dict(labels))))
    one, two = Key("a", "one"), Key("a", "two")

    pods.put(one, PodState({"app": "x"}, "", False))
    pods.put(two, PodState({}, "", True))
    pods.put(one, PodState({"app": "x"}, "n1", True))
    pods.put(one, PodState({"app": "x"}, "n1", True))

    assert seen == [("one", {"app": "x"})]
    assert [pods.count("a", {}, stage) for stage in ("Scheduled", "Attempted")] == [1, 2]
    assert [pods.count("a", {"app": "x"}, stage) for stage in ("Scheduled", "Attempted")] == [1, 1]
    assert pods.waiting("a", {}) == "two"
    assert pods.keys("a", {}) == [one, two]
    pods.drop(one)
    pods.drop(one)
    assert pods.count("a", {}, "Scheduled") == 0
    assert pods.state(one) is None


@pytest.mark.parametrize(
    ("document", "is_attempted"),
    [
        ({}, False),
        ({"spec": {"nodeName": "n"}}, True),
        ({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
    ],
)
def test_a_pod_is_attempted_once_it_has_a_node_or_was_found_to_have_none(document, is_attempted):
    assert msgspec.convert(document, SeenPod).is_attempted is is_attempted


def test_amounts_are_sent_as_texts_and_nodes_offer_their_capacity():
    node = with_text_amounts({"kind": "Node", "status": {"capacity": {"cpu": 4, "memory": "1Gi", "x.io/y": 1.5}}})
    pod = with_text_amounts({"kind": "Pod", "spec": {"containers": [{"resources": {"requests": {"cpu": 9}}}]}})

    assert node["status"]["capacity"] == {"cpu": "4", "memory": "1Gi", "x.io/y": "1.5"}
    assert node["status"]["allocatable"] == node["status"]["capacity"]
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "9"}
    assert with_text_amounts({"kind": "Pod"}) == {"kind": "Pod"}
