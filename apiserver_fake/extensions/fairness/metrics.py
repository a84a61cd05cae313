"""The metrics of priority and fairness, by upstream's names. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/util/flowcontrol/metrics/metrics.go`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from apiserver_fake.extensions.fairness.levels import FlowCounters, Level, PriorityLevels
from services.telemetry.metrics import Metric, Metrics, counter, gauge, histogram

_FLOW: Final = ("priority_level", "flow_schema")
_Made = Callable[..., Metric[PriorityLevels]]


def _flows(
    make: _Made, name: str, text: str, read: Callable[[FlowCounters], Any], *more: str
) -> Metric[PriorityLevels]:
    """Declare what is counted for each flow schema; `more`: another label, and the one value that it has."""

    def values(levels: PriorityLevels) -> Mapping[tuple[str, ...], Any]:
        return {(*key, *more[1:]): read(each) for key, each in sorted(levels.counters.items())}

    return make(f"apiserver_flowcontrol_{name}", text, values, *_FLOW, *more[:1])


def _levels(name: str, text: str, read: Callable[[Level], float], make: _Made = gauge) -> Metric[PriorityLevels]:
    def values(levels: PriorityLevels) -> Mapping[str, float]:
        return {name: read(level) for name, level in sorted(levels.levels.items())}

    return make(f"apiserver_flowcontrol_{name}", text, values, "priority_level")


def _rejection_counts(levels: PriorityLevels) -> Mapping[tuple[str, str, str], float]:
    return {(*key, why): n for key, each in sorted(levels.counters.items()) for why, n in sorted(each.rejected.items())}


METRICS: Final[Metrics[PriorityLevels]] = Metrics(
    counter(
        "apiserver_flowcontrol_rejected_requests_total",
        "Requests that priority and fairness refused.",
        _rejection_counts,
        *_FLOW,
        "reason",
    ),
    _flows(counter, "dispatched_requests_total", "Requests that were executed.", lambda each: each.dispatched),
    _flows(gauge, "current_inqueue_requests", "Requests that wait in queues.", lambda each: each.in_queues),
    _flows(gauge, "current_inqueue_seats", "Seats of the requests that wait.", lambda each: each.seats_in_queues),
    _flows(gauge, "current_executing_requests", "Requests that are executed.", lambda each: each.executing),
    _flows(gauge, "current_executing_seats", "Seats that are occupied.", lambda each: each.seats_executing),
    _flows(
        histogram,
        "request_wait_duration_seconds",
        "How long requests waited.",
        lambda each: each.waited_s,
        "execute",
        "true",
    ),
    _flows(
        histogram,
        "request_execution_seconds",
        "How long requests were executed.",
        lambda each: each.executed_s,
        "type",
        "regular",
    ),
    _flows(
        histogram,
        "request_queue_length_after_enqueue",
        "Length of a queue after a request came into it.",
        lambda each: each.lengths,
    ),
    _flows(histogram, "work_estimated_seats", "Seats that requests were estimated to need.", lambda each: each.seats),
    _levels("nominal_limit_seats", "Nominal concurrency, by shares.", lambda level: level.limits.nominal),
    _levels(
        "lower_limit_seats", "The least concurrency, when all that may be is lent.", lambda level: level.limits.lower
    ),
    _levels("upper_limit_seats", "The most concurrency, with what may be borrowed.", lambda level: level.limits.upper),
    _levels("current_limit_seats", "Concurrency at present.", lambda level: level.current),
    _levels(
        "demand_seats_high_watermark", "Most seats wanted in the last period.", lambda level: level.demand.demand.most
    ),
    _levels("demand_seats_average", "Seats wanted in the last period.", lambda level: level.demand.demand.average),
    _levels("demand_seats_stdev", "Their standard deviation.", lambda level: level.demand.demand.deviation),
    _levels("demand_seats_smoothed", "Smoothed demand for seats.", lambda level: level.demand.smoothed),
    _levels("target_seats", "Seats that a level should have in proportion.", lambda level: level.target),
    _levels("current_r", "Virtual time of a level.", lambda level: level.queues.current_r),
    _levels(
        "request_dispatch_no_accommodation_total",
        "How often the request that was next did not fit.",
        lambda level: level.queues.no_accommodation,
        counter,
    ),
    gauge("apiserver_flowcontrol_seat_fair_frac", "The fair proportion of seats.", lambda levels: levels.fair),
)
