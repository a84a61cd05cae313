"""A pod's life as a waterfall: the spans that belong to it, and the breakdown of its time to Running. Pure.

The critical path is found by walking back. It begins at the write that made the pod Running, and follows
the cause of each span up to the request that created the pod. A cause is the parent, or the change to
which the span of its reader is linked. Only spans that the pod waited for are on that chain; an Event
written in the meantime is shown, but is not on it. The pieces of the path follow each other without gap
or overlap, so their sum is the start-up latency, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise

from msgspec.structs import replace as replaced

from services.telemetry.spans import OWN_NAMES, RPC_PREFIX, SPAN_NAMES, FinishedSpan, parse_traceparent

HANDOVER_NS = 100_000
"""Pause in nanoseconds before a stage of a span; a shorter one counts as part of the stage."""
ABOVE_MAX = 24
"""Maximum number of levels above the pod's own spans at which causes are shown, such as the reconcile that
created it.
"""

_NAME, _NAMESPACE, _UID = SPAN_NAMES["pod"], SPAN_NAMES["namespace"], SPAN_NAMES["uid"]
_PHASE, _CONTROLLER, _RESOURCE = SPAN_NAMES["phase"], SPAN_NAMES["controller"], OWN_NAMES["resource"]
_FINAL = ("Failed", "Succeeded")


@dataclass(frozen=True)
class PodId:
    """Identity of a pod; several pods may have had the same name, one after the other."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Piece:
    """One stretch of the critical path, in nanoseconds since the epoch: `service: span`, or the transit between
    two spans.

    `span_id`: the span that the time is charged to; empty for transit.
    """

    what: str
    start_ns: int
    end_ns: int
    span_id: str = ""

    @property
    def ms(self) -> float:
        """Duration in milliseconds."""
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True)
class Row:
    """One row of the picture. `is_critical`: whether the pod waited for this span."""

    span: FinishedSpan
    depth: int
    is_critical: bool


@dataclass(frozen=True)
class Waterfall:
    """The rows, parents before their children, and the critical path with its outcome.

    `phase`: the pod's phase at the end of the path; empty when no span has it, and the path ends with the
    last span seen. `later`: number of omitted spans that began after that. `is_connected`: whether every span
    of the chain names the next; otherwise a cause was guessed, because a span is lost or not written yet.
    """

    pod: PodId
    trace_id: str
    rows: list[Row]
    critical_path: list[Piece]
    begin_ns: int
    end_ns: int
    phase: str
    later: int = 0
    is_connected: bool = True

    @property
    def spans(self) -> list[FinishedSpan]:
        """The spans in the order of the rows."""
        return [row.span for row in self.rows]

    @property
    def total_ms(self) -> float:
        """Milliseconds from the request that created the pod to the end of the path."""
        return (self.end_ns - self.begin_ns) / 1e6

    @property
    def is_running(self) -> bool:
        """Whether the path ends where the pod became Running."""
        return self.phase == "Running"


def _pods(spans: Iterable[FinishedSpan]) -> dict[PodId, int]:
    """Return the pods that spans name, and when the first span of each began."""
    first: dict[PodId, int] = {}
    for span in spans:
        attributes = span.attributes
        if (uid := attributes.get(_UID)) and (name := attributes.get(_NAME)):
            pod = PodId(str(attributes.get(_NAMESPACE, "")), str(name), str(uid))
            first[pod] = min(span.start_ns, first.get(pod, span.start_ns))
    return first


def _matching(first: Mapping[PodId, int], pattern: str, namespace: str) -> list[PodId]:
    found = [pod for pod in first if fnmatchcase(pod.name, pattern) and namespace in ("", pod.namespace)]
    return sorted(found, key=lambda pod: (first[pod], pod.namespace, pod.name, pod.uid))


def waterfall(
    spans: Iterable[FinishedSpan] | SpanGraph, pattern: str, namespace: str = "", *, whole: bool = False
) -> Waterfall | None:
    """Return the waterfall of the first pod that matches a glob; None when no span names one.

    A plain name that was used by several pods means the last of them. `spans`: pass their graph when several
    pods are queried; `whole`: keep spans from after the pod was Running.
    """
    graph = spans if isinstance(spans, SpanGraph) else SpanGraph(spans)
    pods = graph.matching(pattern, namespace)
    if not pods:
        return None
    pod = next((p for p in reversed(pods) if p.name == pattern), pods[0])
    return _of_pod(graph, pod, whole=whole)


def _of_pod(graph: SpanGraph, pod: PodId, *, whole: bool) -> Waterfall:
    own = graph.own[pod.uid]
    last, phase = _last(own)
    chain = causes(graph, own, last, pod.uid)
    begin, end = chain[-1].start_ns, last.end_ns
    shown = _related_spans(graph, own, pod.uid)
    for span in chain:
        shown.setdefault(span.span_id, span)
    path = critical_path(graph, chain, begin, end)
    critical = {span.span_id for span in chain} | {piece.span_id for piece in path}
    # A stage that took no time has no piece; the pod went through it all the same.
    critical |= {s.span_id for c in chain for s in graph.stages(c) if s.start_ns == s.end_ns and s.end_ns <= end}
    kept = [s for s in shown.values() if whole or not phase or s.start_ns < end or s.span_id in critical]
    return Waterfall(
        pod=pod,
        trace_id=last.trace_id,
        rows=[Row(span, depth, span.span_id in critical) for span, depth in _tree(kept)],
        critical_path=path,
        begin_ns=begin,
        end_ns=max(begin, end),
        phase=phase,
        later=len(shown) - len(kept),
        is_connected=_creates(chain[-1], pod.uid, request=True)
        and all(graph.cause(span) is cause for span, cause in pairwise(chain)),
    )


def _last(own: Sequence[FinishedSpan]) -> tuple[FinishedSpan, str]:
    """Return the span whose write made the pod Running; else the one that ended it; else the last that is known."""
    by_end = sorted(own, key=lambda s: (s.end_ns, s.start_ns, s.span_id))
    for phases in (("Running",), _FINAL):
        for span in by_end:
            if span.attributes.get(_PHASE) in phases:
                return span, str(span.attributes[_PHASE])
    return by_end[-1], ""


class SpanGraph:
    """Graph of spans with their relations.

    A request is one span here, that of the server. The client's span, which covers the same time plus
    transit, is replaced by its own parent. A webhook or an extender has no known span of its own; for a
    request to one, the client's span is shown.
    """

    def __init__(self, spans: Iterable[FinishedSpan]) -> None:
        every = list(spans)
        served = {span.parent for span in every if span.kind == "server"}
        callers = {
            span.span_id: span.parent
            for span in every
            if span.kind == "client" and (span.span_id in served or span.name.startswith(RPC_PREFIX))
        }
        self.by_id = {
            span.span_id: replaced(span, parent=callers[span.parent]) if span.parent in callers else span
            for span in every
            if span.span_id not in callers
        }
        self.children: dict[str, list[FinishedSpan]] = {}
        self.own: dict[object, list[FinishedSpan]] = {}
        """The spans of each pod, by its uid."""
        for span in self.by_id.values():
            self.children.setdefault(span.parent, []).append(span)
            self.own.setdefault(span.attributes.get(_UID), []).append(span)

    @cached_property
    def pods(self) -> dict[PodId, int]:
        """Pods named in spans, with the start of the first span of each."""
        return _pods(self.by_id.values())

    def matching(self, pattern: str, namespace: str = "") -> list[PodId]:
        """Return the pods whose name matches the glob, in the order of their first spans."""
        return _matching(self.pods, pattern, namespace)

    def linked_spans(self, span: FinishedSpan) -> Iterator[FinishedSpan]:
        """Yield the known spans that this one links to."""
        for link in span.links:
            context = parse_traceparent(link)
            if context is not None and (found := self.by_id.get(context.span_id)) is not None:
                yield found

    def stages(self, span: FinishedSpan) -> list[FinishedSpan]:
        """Return the span's children in its own process: the stages of its work."""
        process, children = (span.service, span.instance), self.children.get(span.span_id, ())
        return [child for child in children if (child.service, child.instance) == process]

    def cause(self, span: FinishedSpan) -> FinishedSpan | None:
        """Return the cause of this span: its parent, or else the first span it links to; None if neither is known."""
        return self.by_id.get(span.parent) or next(self.linked_spans(span), None)


def _related_spans(graph: SpanGraph, own: Sequence[FinishedSpan], uid: str) -> dict[str, FinishedSpan]:
    """Return the pod's spans, what they did, and what they were done for.

    Upwards the way ends at the first span about another pod: a pod that replaces a failed one would
    otherwise bring all its forerunners along. Downwards it ends at controllers, who answer to many.
    """
    shown = {span.span_id: span for span in own}
    climbed: set[str] = set()
    above = [(span, 0) for span in own]
    while above:
        span, distance = above.pop()
        if span.span_id in climbed:
            continue
        climbed.add(span.span_id)
        parent = graph.by_id.get(span.parent)
        for cause in graph.linked_spans(span) if parent is None else (parent, *graph.linked_spans(span)):
            is_foreign = _names_another(cause, uid)
            if cause is not parent and distance and is_foreign:
                continue  # a reconcile that creates one pod was caused by changes of many
            shown.setdefault(cause.span_id, cause)
            if not is_foreign and distance < ABOVE_MAX:
                above.append((cause, distance + 1))
    below = list(own)
    while below:
        for child in graph.children.get(below.pop().span_id, ()):
            is_ours = not _names_another(child, uid) and _CONTROLLER not in child.attributes
            if is_ours and child.span_id not in shown:
                shown[child.span_id] = child
                below.append(child)
    return shown


def _names_another(span: FinishedSpan, uid: str) -> bool:
    return span.attributes.get(_UID, uid) != uid


def causes(graph: SpanGraph, own: Sequence[FinishedSpan], last: FinishedSpan, uid: str) -> list[FinishedSpan]:
    """Return the chain of spans that `last` waited for: `last` first, the request that created the pod at the
    end.

    The chain may break: at a reader that listed instead of watching, at a span that was never written, or at
    a cause about another pod. It then continues at the pod's span that ended last before.
    """
    chain, seen = [last], {last.span_id}
    while True:
        span = chain[-1]
        is_creation = _creates(span, uid)
        if not is_creation and "http.route" in span.attributes:
            return chain
        cause = graph.cause(span)
        if is_creation:
            if cause is not None and "http.route" in cause.attributes and cause.span_id not in seen:
                chain.append(cause)
            return chain
        if cause is None or cause.span_id in seen or not _is_about(graph, cause, uid):
            cause = max(
                (s for s in own if s.span_id not in seen and s.start_ns < span.start_ns),
                key=lambda s: (min(s.end_ns, span.start_ns), s.start_ns, s.span_id),
                default=None,
            )
        if cause is None:
            return chain
        chain.append(cause)
        seen.add(cause.span_id)


def _creates(span: FinishedSpan, uid: str, *, request: bool = False) -> bool:
    """Whether this is the call that created the pod; or, when asked for, the request that became that call."""
    attributes = span.attributes
    if request and "http.route" in attributes:
        return True
    return span.name.endswith("/Create") and attributes.get(_RESOURCE) == "pods" and attributes.get(_UID) == uid


def _is_about(graph: SpanGraph, span: FinishedSpan, uid: str) -> bool:
    """Whether the span is the pod's own, or a stage of one that is."""
    seen: set[str] = set()
    above: FinishedSpan | None = span
    while above is not None and above.span_id not in seen:
        if _CONTROLLER in above.attributes or _names_another(above, uid):
            return False
        if _UID in above.attributes:
            return True
        seen.add(above.span_id)
        above = graph.by_id.get(above.parent)
    return False


def title(span: FinishedSpan) -> str:
    """Return `service: name`."""
    return f"{span.service}: {span.name}"


def label(span: FinishedSpan) -> str:
    """Return a short title with the most useful details: the kind, the node, the result."""
    attributes = span.attributes
    resource = attributes.get(_RESOURCE, "")
    notes = [
        f"{resource}" if resource not in ("", "pods") else "",
        f"on {attributes['k8s.node.name']}" if "k8s.node.name" in attributes else "",
        str(attributes.get("keplab.reason", "")),
        f"attempt {attributes['keplab.attempt']}" if attributes.get("keplab.attempt", 1) != 1 else "",
        f"→ {attributes[_PHASE]}" if attributes.get(_PHASE, "Pending") != "Pending" else "",
        str(attributes.get(SPAN_NAMES["key"], "")),
    ]
    return " ".join([f"{span.service}: {span.name.removeprefix(RPC_PREFIX)}", *filter(None, notes)])


def critical_path(graph: SpanGraph, chain: Sequence[FinishedSpan], begin_ns: int, end_ns: int) -> list[Piece]:
    """Cut [begin, end] into pieces, walking back along `chain` (the last span first).

    A span is charged for the time until the span that it caused began, or until it ended. The time between
    two spans is transit. If a span has stages in its own process, these are named instead of it.
    """
    on_chain = {span.span_id for span in chain}
    back: list[Piece] = []
    cursor, after = end_ns, ""
    for span in chain:
        if span.start_ns >= cursor or cursor <= begin_ns:
            # A skewed clock, or nothing is left: this span has no time of its own here.
            after = after if cursor <= begin_ns else title(span)
            continue
        until = min(span.end_ns, cursor)
        low = max(span.start_ns, begin_ns)
        if until < cursor:
            back.append(Piece(f"on the way: {title(span)} → {after}", max(until, begin_ns), cursor))
        if until > low:
            back.extend(_stages(graph, span, low, until, on_chain))
        cursor, after = min(low, cursor), title(span)
    pieces: list[Piece] = []
    for piece in reversed(back):
        if pieces and (pieces[-1].what, pieces[-1].span_id) == (piece.what, piece.span_id):
            pieces[-1] = replace(piece, start_ns=pieces[-1].start_ns)
        else:
            pieces.append(piece)
    return pieces


def _stages(graph: SpanGraph, span: FinishedSpan, low: int, high: int, left_out: set[str]) -> list[Piece]:
    """Return [low, high] of a span cut by its stages, latest first; what no stage explains is its own."""
    stages = [s for s in graph.stages(span) if s.span_id not in left_out and s.start_ns < s.end_ns]
    inner = left_out | {span.span_id}
    back: list[Piece] = []
    cursor = high
    while cursor > low:
        going = [s for s in stages if s.start_ns < cursor and s.end_ns > low]
        stage = max(going, key=lambda s: (min(s.end_ns, cursor), s.start_ns, s.span_id), default=None)
        if stage is None:
            back.append(_between(span, back, low, cursor))
            break
        until, start = min(stage.end_ns, cursor), max(stage.start_ns, low)
        if until < cursor:
            back.append(_between(span, back, until, cursor))
        back.extend(_stages(graph, stage, start, until, inner))
        cursor = start
        stages.remove(stage)
    return back


def _between(span: FinishedSpan, back: Sequence[Piece], start: int, end: int) -> Piece:
    """Charge time between stages to the span, or to the stage that follows when it is only the hand-over."""
    if back and end - start < HANDOVER_NS:
        return replace(back[-1], start_ns=start, end_ns=end)
    return Piece(title(span), start, end, span.span_id)


def _tree(spans: Sequence[FinishedSpan]) -> list[tuple[FinishedSpan, int]]:
    """Return the spans with their depth: each below its parent or what it is linked to, in order of start."""
    ordered = sorted(spans, key=lambda s: (s.start_ns, s.end_ns, s.span_id))
    graph = SpanGraph(ordered)
    below: dict[str, list[FinishedSpan]] = {}
    roots: list[FinishedSpan] = []
    for span in ordered:
        cause = graph.cause(span)
        (roots if cause is None else below.setdefault(cause.span_id, [])).append(span)
    rows: list[tuple[FinishedSpan, int]] = []
    seen: set[str] = set()
    # Roots first; what only a circle of causes holds together is shown all the same.
    for root in [*roots, *ordered]:
        stack = [(root, 0)]
        while stack:
            span, depth = stack.pop()
            if span.span_id not in seen:
                seen.add(span.span_id)
                rows.append((span, depth))
                stack.extend((child, depth + 1) for child in reversed(below.get(span.span_id, [])))
    return rows


def bar(span: FinishedSpan, begin_ns: int, end_ns: int, width: int, mark: str) -> str:
    """Return a line of `width` characters in which the span's part of [begin, end] is drawn.

    An arrow at a side shows that the span continues before the beginning or after the end.
    """
    whole = max(end_ns - begin_ns, 1)
    if span.end_ns < begin_ns:
        return "◂".ljust(width)
    if span.start_ns > end_ns:
        return "▸".rjust(width)
    left = min(width - 1, max(0, (span.start_ns - begin_ns) * width // whole))
    right = min(width, max(left + 1, -(-(span.end_ns - begin_ns) * width // whole)))
    return " " * left + mark * (right - left) + " " * (width - right)
