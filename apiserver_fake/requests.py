"""Counters of the requests that an API server answered, as upstream's metrics: totals, durations, requests
in flight.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/metrics/metrics.go`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from services.api.errors import UNREADABLE
from services.api.identity import Identity
from services.api.unbind import may_be_sent
from services.api.wire import Request, Response
from services.telemetry.metrics import Histogram, Metrics, Samples, counter, gauge, histogram

T = TypeVar("T")

MUTATING: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
METHODS: Final = {
    **{verb: verb.upper() for verb in ("get", "list", "watch", "patch", "delete", "deletecollection", "connect")},
    "create": "POST",
    "update": "PUT",
}
"""Label values for verbs in metrics, as upstream's: the HTTP method, or LIST, WATCH or CONNECT."""
OTHER: Final = "other"
"""Label value for any other verb in metrics, as upstream's."""
UNEXPECTED: Final = "unexpected"
"""Label value for kind and subresource of requests that are counted together. Source: KEP-2305, whose
allowlists of label values replace every other value by it.
"""
COUNTED_MAX, TIMED_MAX = 4_000, 400
"""Limits of the sorts of requests that have their own totals, and their own histogram, which is 26 lines."""
BOUNDS: Final = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_LABELS: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")


class _Sort(NamedTuple):
    """The labels that requests counted together share; `resource`: a wire name."""

    verb: str
    resource: str
    subresource: str
    scope: str
    is_dry_run: bool


class _Answers:
    """Answers to requests of one sort: the count by code, and the histogram of durations."""

    __slots__ = ("by_code", "took")

    def __init__(self, took: Histogram) -> None:
        self.by_code: dict[int, int] = {}
        self.took = took


class Requests:
    """Counts requests. `begun`: the number of reads, and of mutating requests, that have begun.

    `version_of`: returns the stored version of the kind with a wire name. The first sorts of requests are counted
    individually, any further ones by verb and scope.
    """

    def __init__(self, version_of: Callable[[str], str]) -> None:
        self.begun = [0, 0]
        self._answered = [0, 0]
        self._version_of = version_of
        self._answers: dict[_Sort, _Answers] = {}
        self._took: dict[_Sort, Histogram] = {}

    def on_ended(self, request: Request, code: int, took_s: float, trace_id: str) -> None:
        """Count the answer to a request; `trace_id`: that of a sampled trace, else ""."""
        verb = request.verb
        if request.name or verb == "create":
            scope = "resource"
        else:
            scope = "namespace" if request.namespace else "cluster"
        sort = _Sort(verb, request.resource, request.subresource, scope, request.dry_run)
        answers = self._answers.get(sort) or self._first(sort)
        by_code = answers.by_code
        by_code[code] = by_code.get(code, 0) + 1
        answers.took.observe(took_s, 1, trace_id)
        self._answered[verb in MUTATING] += 1

    def _first(self, sort: _Sort) -> _Answers:
        """Return where a sort of request is counted of which none was before."""
        if sort.verb not in METHODS:
            sort = sort._replace(verb=OTHER)
        together = sort._replace(resource=UNEXPECTED, subresource=UNEXPECTED)
        if sort not in self._answers and len(self._answers) >= COUNTED_MAX:
            sort = together
        if (answers := self._answers.get(sort)) is None:
            timed = sort if len(self._took) < TIMED_MAX else together
            answers = self._answers[sort] = _Answers(self._took.setdefault(timed, Histogram(BOUNDS)))
        return answers

    def metrics(self) -> Samples:
        """Return counters, gauges and histograms by Prometheus name."""
        return METRICS.of(self)

    def totals(self) -> dict[tuple[str, ...], float]:
        """Return the number of answers by label values: `verb` to `component`, then `code`, in order."""
        return {
            (*labels, str(code)): count
            for labels, answers in self._with_labels(self._answers)
            for code, count in sorted(answers.by_code.items())
        }

    def durations(self) -> dict[tuple[str, ...], Histogram]:
        """Return the histograms of durations by label values: `verb` to `component`, in order."""
        return dict(self._with_labels(self._took))

    def _with_labels(self, by_sort: Mapping[_Sort, T]) -> Iterator[tuple[tuple[str, ...], T]]:
        kinds = {name: (*group_resource(name), self._version_of(name)) for name in {sort.resource for sort in by_sort}}
        kinds[UNEXPECTED] = (UNEXPECTED, UNEXPECTED, UNEXPECTED)
        for sort in sorted(by_sort):
            group, resource, version = kinds[sort.resource]
            verb, dry_run = METHODS.get(sort.verb, sort.verb), "All" if sort.is_dry_run else ""
            labels = (verb, dry_run, group, version, resource, sort.subresource, sort.scope, "apiserver")
            yield labels, by_sort[sort]

    def in_flight(self) -> dict[str, int]:
        """Return the number of requests in flight, by whether they mutate."""
        left = [begun - answered for begun, answered in zip(self.begun, self._answered, strict=True)]
        return dict(zip(("readOnly", "mutating"), left, strict=True))


STALE_WRITES: Final = ("StaleBinding", "Forbidden")
"""Reasons for refusing a node's pod status: it is of an earlier binding, or the pod belongs to another node."""


class PodWrites:
    """Counts unbinds by reason, and statuses that a node may not write any more (kubelet-unbinding 10)."""

    def __init__(self) -> None:
        self.unbinds: dict[tuple[str, ...], float] = {}
        """By reason and code."""
        self.stale_statuses: dict[str, float] = {}
        """By why they are refused."""

    def count(self, identity: Identity, request: Request, response: Response) -> None:
        """Count the answer to a write of a subresource of a pod."""
        if request.subresource == "unbind":
            unbind = (_reason_of(request.body), str(response.code))
            self.unbinds[unbind] = self.unbinds.get(unbind, 0) + 1
        elif request.subresource == "status" and identity.node and response.code in (403, 409):
            why = response.error().reason
            if why in STALE_WRITES:
                self.stale_statuses[why] = self.stale_statuses.get(why, 0) + 1


class _Reason(msgspec.Struct):
    reason: str = ""


def _reason_of(body: bytes) -> str:
    """Return the reason in the body of an unbind, "other" for one that no caller may give: a metric's label."""
    try:
        reason = msgspec.json.decode(body, type=_Reason).reason
    except UNREADABLE:
        return "other"
    return reason if may_be_sent(reason) else "other"


def group_resource(name: str) -> tuple[str, str]:
    """Return group and resource of a wire name such as `deployments.apps`, as upstream's labels."""
    resource, _, group = name.partition(".")
    return group, resource


METRICS: Final[Metrics[Requests]] = Metrics(
    counter("apiserver_request_total", "Answers sent.", Requests.totals, *_LABELS, "code"),
    histogram(
        "apiserver_request_duration_seconds",
        "How long it took to answer, from when a request was read and admitted by priority and fairness.",
        Requests.durations,
        *_LABELS,
    ),
    gauge("apiserver_current_inflight_requests", "Requests being answered.", Requests.in_flight, "request_kind"),
)
