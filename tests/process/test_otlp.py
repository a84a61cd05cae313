"""Spans reach an OTLP collector when there is one, and cost nothing but themselves when there is none (FM-X6)."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

from services.runtime.real import RealClock
from services.telemetry.traces import EXPORT_DEADLINE_S, QUEUE_MAX, Tracer, sinks_from_environment

WAIT_MAX_S = 20.0


class Collector(service.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self):
        self.spans = []
        self.resources = []
        self.hurts = ""
        self.healed = threading.Event()

    def Export(self, request, context):  # noqa: N802
        if self.hurts == "slow":
            self.healed.wait(2 * EXPORT_DEADLINE_S)
        if self.hurts == "refuses":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not now")
        if self.hurts == "is full":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
        for resource in request.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return pb.ExportTraceServiceResponse()


@pytest.fixture
def collector():
    """A collector and the port it listens on."""
    keeper, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(keeper, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield keeper, port
    server.stop(None)


def a_tracer(monkeypatch, port):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    sinks = sinks_from_environment(environ, service="scheduler", instance="scheduler", spans_dir="", incarnation="1")
    return Tracer("scheduler", clock=RealClock(), random=random.Random(1), sinks=sinks)


def test_a_collector_gets_the_whole_span(monkeypatch, collector):
    keeper, port = collector
    tracer = a_tracer(monkeypatch, port)
    parent = tracer.start("schedule pod", pod="web")
    child = tracer.start("bind pod", parent=parent.traceparent, links=[parent.traceparent])
    child.event("conflict")
    child.end("gave up")
    parent.end()
    tracer.close()

    deadline = time.monotonic() + WAIT_MAX_S
    while len(keeper.spans) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    by_name = {span.name: span for span in keeper.spans}
    bind, schedule = by_name["bind pod"], by_name["schedule pod"]
    assert "scheduler" == keeper.resources[0]["service.name"]
    assert (schedule.trace_id, schedule.span_id) == (bind.trace_id, bind.parent_span_id)
    assert [schedule.span_id] == [link.span_id for link in bind.links]
    assert ["conflict"] == [event.name for event in bind.events]
    assert "gave up" == bind.status.message
    assert ["k8s.pod.name"] == [a.key for a in schedule.attributes]
    assert 0 == tracer.metrics()["keplab_spans_dropped_total"]


def test_a_missing_collector_drops_and_counts_and_never_makes_anybody_wait(monkeypatch):
    tracer = a_tracer(monkeypatch, 1)
    began = time.monotonic()
    for _ in range(3 * QUEUE_MAX):
        tracer.start("schedule pod").end()
    took_s = time.monotonic() - began
    began = time.monotonic()
    tracer.close()

    assert 1.0 > took_s
    assert 3.0 > time.monotonic() - began
    assert QUEUE_MAX <= tracer.metrics()["keplab_spans_dropped_total"]


@pytest.mark.parametrize("hurts", ["slow", "refuses", "is full"])
def test_as_42_a_collector_that_hurts_costs_spans_that_are_counted_and_is_used_again(monkeypatch, collector, hurts):
    """No queue above L-TR's 2,048, nothing raised or awaited where spans end."""
    keeper, port = collector
    tracer = a_tracer(monkeypatch, port)
    (sink,) = tracer._sinks
    keeper.hurts = hurts
    waiting = 0
    for _ in range(3 * QUEUE_MAX):
        tracer.start("schedule pod").end()
        waiting = max(waiting, sink._taken - sink._exporter.handed)
    assert QUEUE_MAX >= waiting
    assert tracer.metrics()["keplab_spans_dropped_total"] > 0
    assert [] == keeper.spans

    keeper.hurts = ""
    keeper.healed.set()
    deadline = time.monotonic() + WAIT_MAX_S
    while not any(span.name == "after" for span in keeper.spans):
        assert time.monotonic() < deadline, "tracing did not go on"
        tracer.start("after").end()
        time.sleep(0.1)
    tracer.close()
    assert 3 * QUEUE_MAX > len([span for span in keeper.spans if span.name == "schedule pod"])
