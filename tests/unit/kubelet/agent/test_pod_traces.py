"""The trace of a pod that starts: one span for its sync, and one below it for what the kubelet is busy with."""

import random
from types import SimpleNamespace

import pytest

from kubelet.agent.pod_traces import PodTraces
from kubelet.view import worker_key
from services.telemetry.traces import MemorySpans, Tracer


class Node:
    def __init__(self, pod, sinks=True):
        self.spans, self.pod, self.key = MemorySpans(), pod, worker_key(pod)
        clock = SimpleNamespace(now=lambda: 0.0, wall=lambda: 1e9)
        tracer = Tracer("kubelet", clock=clock, random=random.Random(1), sinks=(self.spans,) if sinks else ())
        self.cause = tracer.start("bind")
        self.traces = PodTraces(tracer, "n1")

    def begin(self):
        self.traces.begin(self.key, self.pod, self.cause.traceparent)
        return self

    def reach(self, *stages, reason=""):
        for stage in stages:
            self.traces.stage(self.key, stage, reason)
        return self

    @property
    def names(self):
        return [span.name for span in self.spans.spans]


@pytest.fixture
def node(a_pod):
    return Node(a_pod())


def test_each_stage_of_a_start_is_a_span_below_that_of_the_sync(node):
    node.begin().reach("admitted", "worker", "mount", "sandbox", "image main", "create main", "running")
    node.traces.end(node.key, "")

    assert node.names == [
        "start worker",
        "mount volumes",
        "create sandbox",
        "start containers",
        "write status",
        "sync pod",
    ]
    sync = node.spans.spans[-1]
    assert {span.parent for span in node.spans.spans[:-1]} == {sync.span_id}
    assert (sync.trace_id, sync.attributes["k8s.pod.name"], sync.attributes["k8s.node.name"]) == (
        node.cause.trace_id,
        "p",
        "n1",
    )


def test_a_stage_that_is_reached_again_begins_no_other_span(node):
    node.begin().reach("mount", "claims", "mount")
    node.traces.end(node.key, "")

    assert node.names == ["create sandbox", "sync pod"]


def test_a_rejection_has_its_reason_and_the_sync_its_error(node):
    node.begin().reach("rejected", reason="OutOfcpu")
    node.traces.end(node.key, "OutOfcpu")

    rejected, sync = node.spans.spans
    assert (rejected.name, rejected.attributes["keplab.reason"]) == ("reject pod", "OutOfcpu")
    assert (rejected.error, sync.error) == ("", "OutOfcpu")


def test_while_a_sync_goes_on_calls_belong_to_its_stage(node):
    assert (node.traces.trace_id(node.key), node.traces.traceparent(node.key)) == ("", "")
    assert node.traces.stage_traceparent(node.key) == ""

    node.begin()
    whole = node.traces.traceparent(node.key)
    early = node.traces.stage_traceparent(node.key)
    node.reach("admitted")

    assert node.traces.trace_id(node.key) == node.cause.trace_id
    assert (early, node.traces.traceparent(node.key)) == (whole, whole)
    assert node.traces.stage_traceparent(node.key) not in ("", whole)
    node.traces.end(node.key, "")
    assert node.traces.traceparent(node.key) == ""


def test_without_a_sync_there_is_nothing_to_trace(node):
    node.reach("admitted")
    node.traces.end(node.key, "")

    assert node.names == []


def test_where_nothing_is_recorded_the_stages_cost_nothing(a_pod):
    node = Node(a_pod(), sinks=False).begin().reach("admitted", "worker")

    assert node.traces.trace_id(node.key) == ""
    assert node.traces.stage_traceparent(node.key) == node.traces.traceparent(node.key)
