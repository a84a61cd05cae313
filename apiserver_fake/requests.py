"""The requests that an API server answered, as upstream's metrics count them: totals, durations, and how many go on.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/metrics/metrics.go`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from services.api.wire import Request
from services.telemetry.metrics import Histogram, Metrics, counter, gauge, histogram

MUTATING: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
METHODS: Final = {"create": "POST", "update": "PUT"}
"""The verbs of calls whose names in metrics are other words, as upstream's: the HTTP method, or LIST or WATCH."""
BOUNDS: Final = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_LABELS: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")


class _Answers:
    """How requests of one kind were answered: how often with which code, and after how long."""

    __slots__ = ("by_code", "took")

    def __init__(self) -> None:
        self.by_code: dict[int, int] = {}
        self.took = Histogram(BOUNDS)


class Requests:
    """Counts requests. `begun`: of those that read, and of those that change something. `version_of`: the version in
    which the kind of a wire name is stored."""

    def __init__(self, version_of: Callable[[str], str]) -> None:
        self.begun = [0, 0]
        self._version_of = version_of
        self._answers: dict[tuple[str, str, str, str, bool], _Answers] = {}

    def ended(self, request: Request, code: int, took_s: float, trace_id: str) -> None:
        """Count the answer to a request; `trace_id`: of a sampled trace, else ""."""
        verb = request.verb
        if request.name or verb == "create":
            scope = "resource"
        else:
            scope = "namespace" if request.namespace else "cluster"
        place = (verb, request.resource, request.subresource, scope, request.dry_run)
        answers = self._answers.get(place)
        if answers is None:
            answers = self._answers[place] = _Answers()
        by_code = answers.by_code
        by_code[code] = by_code.get(code, 0) + 1
        answers.took.observe(took_s, 1, trace_id)

    def metrics(self) -> dict[str, float]:
        """Return counters, gauges and histograms by Prometheus name."""
        return METRICS.of(self)

    def answers(self) -> Iterator[tuple[tuple[str, ...], _Answers]]:
        """Yield the values of `verb` to `component`, in order, with what was counted."""
        for (verb, name, subresource, scope, is_dry_run), answers in sorted(self._answers.items()):
            group, resource = group_resource(name)
            dry_run, version = "All" if is_dry_run else "", self._version_of(name)
            shown = METHODS.get(verb, verb.upper())
            yield (shown, dry_run, group, version, resource, subresource, scope, "apiserver"), answers

    def in_flight(self) -> dict[str, int]:
        """Return how many requests are being answered, by whether they change something."""
        left = list(self.begun)
        for (verb, *_), answers in self._answers.items():
            left[verb in MUTATING] -= sum(answers.by_code.values())
        return dict(zip(("readOnly", "mutating"), left, strict=True))


def group_resource(name: str) -> tuple[str, str]:
    """Return group and resource of `deployments.apps`, as upstream labels have them."""
    resource, _, group = name.partition(".")
    return group, resource


METRICS: Final[Metrics[Requests]] = Metrics(
    counter(
        "apiserver_request_total",
        "Answers sent.",
        lambda own: {
            (*labels, str(code)): count
            for labels, each in own.answers()
            for code, count in sorted(each.by_code.items())
        },
        *_LABELS,
        "code",
    ),
    histogram(
        "apiserver_request_duration_seconds",
        "How long it took to answer, from when a request was read and admitted by priority and fairness.",
        lambda own: {labels: each.took for labels, each in own.answers()},
        *_LABELS,
    ),
    gauge("apiserver_current_inflight_requests", "Requests being answered.", Requests.in_flight, "request_kind"),
)
