"""Spans are one trace over process borders, and cost nothing without a sink."""

import random

import pytest

from services.telemetry.spans import Context, parse_traceparent
from services.telemetry.traces import FileSpans, MemorySpans, Sampler, Tracer, read_spans


class SteppingClock:
    """A clock that moves one millisecond each time it is asked for the time."""

    def __init__(self):
        self.moments = 0

    def now(self):
        self.moments += 1
        return self.moments / 1000

    def wall(self):
        return 1000.0


def a_tracer(sampler=None, seed=1, sinks=None):
    sink = MemorySpans()
    tracer = Tracer(
        "scheduler", clock=SteppingClock(), random=random.Random(seed), sampler=sampler,
        sinks=[sink] if sinks is None else sinks,
    )  # fmt: skip
    return tracer, sink.spans


def test_a_child_carries_its_parents_trace_over_the_wire():
    tracer, spans = a_tracer()
    parent = tracer.start("bind pod")
    child = tracer.start("sync pod", parent=parent.traceparent, links=[parent.traceparent], pod="web")

    child.end()
    parent.end()

    assert [("sync pod", spans[1].trace_id, spans[1].span_id), ("bind pod", spans[1].trace_id, "")] == [
        (s.name, s.trace_id, s.parent) for s in spans
    ]
    assert {"k8s.pod.name": "web"} == spans[0].attributes
    assert [parent.traceparent] == spans[0].links


def test_a_span_that_ended_twice_is_exported_once_and_keeps_its_error():
    tracer, spans = a_tracer()
    span = tracer.start("reconcile replicaset")

    span.set(attempt=2)
    span.event("conflict", reason="someone wrote first")
    span.end("gave up")
    span.end()

    assert ["gave up"] == [s.error for s in spans]
    assert ["conflict"] == [e.name for e in spans[0].events]
    assert spans[0].start_ns < spans[0].events[0].at_ns < spans[0].end_ns


def test_spans_that_follow_each_other_meet_to_the_nanosecond():
    class CalendarClock:
        """A wall clock whose floats are good to a quarter of a microsecond."""

        elapsed = 0.0

        def now(self):
            return 17.25 + self.elapsed

        def wall(self):
            return 1_700_000_000.123 + self.elapsed

    clock, sink = CalendarClock(), MemorySpans()
    tracer = Tracer("kubelet", clock=clock, random=random.Random(1), sinks=[sink])
    for moment in range(1, 200):
        span = tracer.start("stage")
        clock.elapsed = moment * 0.000_013_7
        span.end()

    assert all(left.end_ns == right.start_ns for left, right in zip(sink.spans, sink.spans[1:], strict=False))


def test_a_wall_clock_that_is_set_moves_later_spans_and_stretches_none():
    class SetClock:
        elapsed = step = 0.0

        def now(self):
            return self.elapsed

        def wall(self):
            return 1000.0 + self.elapsed + self.step

    clock, sink = SetClock(), MemorySpans()
    tracer = Tracer("kubelet", clock=clock, random=random.Random(1), sinks=[sink])
    span = tracer.start("a")
    clock.elapsed, clock.step = 1.0, 3600.0
    span.end()
    tracer.start("b").end()

    assert [10**9, 0] == [s.end_ns - s.start_ns for s in sink.spans]
    assert 3601 * 10**9 == sink.spans[1].start_ns - sink.spans[0].start_ns


def test_one_seed_makes_the_same_ids():
    ids = []
    for _ in range(2):
        tracer, spans = a_tracer(seed=7)
        tracer.start("a").end()
        ids.append((spans[0].trace_id, spans[0].span_id))

    assert ids[0] == ids[1]


def test_an_unsampled_root_keeps_everything_below_it_unsampled():
    tracer, spans = a_tracer(Sampler(0.0))
    below, below_spans = a_tracer(Sampler(1.0))

    root = tracer.start("a")
    child = below.start("b", parent=root.traceparent)
    child.set(x=1)
    child.end()
    root.end()

    assert [] == spans == below_spans
    assert "" == root.trace_id == child.trace_id
    assert child.traceparent.endswith("-00")


def test_a_ratio_keeps_about_that_share():
    tracer, spans = a_tracer(Sampler(0.25))

    for _ in range(2000):
        tracer.start("a").end()

    assert 400 < len(spans) < 600


def test_without_a_sink_a_sampled_parent_is_still_handed_on():
    tracer, _ = a_tracer(sinks=[])
    parent = f"00-{'a' * 32}-{'b' * 16}-01"

    assert parent == tracer.start("a", parent=parent).traceparent


@pytest.mark.parametrize(
    ("environ", "sampler"),
    [
        ({}, Sampler(1.0, True)),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, Sampler(0.0, False)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, Sampler(0.1, True)),
    ],
)
def test_the_standard_variables_choose_the_sampler(environ, sampler):
    assert sampler == Sampler.from_environment(environ)


@pytest.mark.parametrize(
    "environ",
    [{"OTEL_TRACES_SAMPLER": "jaeger"}, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}],
)
def test_a_wrong_sampler_is_refused_by_name(environ):
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER"):
        Sampler.from_environment(environ)


def test_a_traceparent_survives_and_a_broken_one_is_none():
    context = Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)

    assert context == parse_traceparent(context.traceparent)
    for broken in ("", "00-zz", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'g' * 32}-{'b' * 16}-01",
                   f"00-{'a' * 32}-{'b' * 16}-01-more", f"ff-{'a' * 32}-{'b' * 16}-01"):  # fmt: skip
        assert parse_traceparent(broken) is None
    assert parse_traceparent(f"01-{'a' * 32}-{'b' * 16}-01-more") is not None


def test_a_span_file_returns_what_was_put_in_and_forgives_a_torn_end(tmp_path):
    sink = FileSpans(tmp_path / "spans" / "scheduler.jsonl")
    tracer, _ = a_tracer(sinks=[sink])
    tracer.start("a", node="n1").end()
    tracer.flush()
    with sink.path.open("ab") as file:
        file.write(b'{"service":"sch')

    assert ["a"] == [span.name for span in read_spans(sink.path)]
