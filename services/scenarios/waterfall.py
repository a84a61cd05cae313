"""An object's life as a waterfall: which spans belong to it, and where the time to Running went. Pure.

Spans of one pod are one connected graph: parents within a trace, links between traces. The critical
path cuts the time from the first request to Running into consecutive pieces, each charged to the
innermost work going on then, or to the wait between two pieces; so its sum is the measured latency.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.telemetry.propagation import parse
from services.telemetry.spans import FinishedSpan

RUNNING = "k8s.pod.phase"
"""Attribute of the span whose write made the pod Running."""


@dataclass(frozen=True)
class Piece:
    """One stretch of the critical path: what was going on, and for how many milliseconds."""

    what: str
    ms: float


@dataclass(frozen=True)
class Waterfall:
    """The spans of one object in order of start, the critical path and its total.

    `is_running`: whether the path ends where the pod became Running, or merely at the last span seen.
    """

    trace_id: str
    spans: list[FinishedSpan]
    critical_path: list[Piece]
    total_ms: float
    is_running: bool


def connected(spans: Sequence[FinishedSpan], pod: str) -> list[FinishedSpan]:
    """Return the spans about the pod, and those they hang from by parents and forward links.

    A trace that started for the pod's owner is followed upwards only, so that siblings stay out.
    """
    by_id = {span.span_id: span for span in spans}
    wanted = {span.span_id: span for span in spans if span.attributes.get("k8s.pod.name") == pod}
    children: dict[str, list[FinishedSpan]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    queue = list(wanted.values())
    while queue:
        span = queue.pop()
        above = [span.parent, *(c.span_id for link in span.links if (c := parse(link)) is not None)]
        for identifier in above:
            found = by_id.get(identifier)
            if found is not None and found.span_id not in wanted:
                wanted[found.span_id] = found
                queue.append(found)
        for child in children.get(span.span_id, ()):
            other = child.attributes.get("k8s.pod.name")
            if child.span_id not in wanted and span.attributes.get("k8s.pod.name") == pod and other in (None, pod):
                wanted[child.span_id] = child
                queue.append(child)
    return sorted(wanted.values(), key=lambda s: (s.start_ns, -s.end_ns, s.span_id))


def waterfall(spans: Iterable[FinishedSpan], pod: str) -> Waterfall | None:
    """Return the pod's waterfall, or None when no span names it."""
    every = list(spans)
    ordered = connected(every, pod)
    own = [span for span in ordered if span.attributes.get("k8s.pod.name") == pod]
    if not own:
        return None
    begin = min(span.start_ns for span in own)
    running = [span.end_ns for span in own if span.attributes.get(RUNNING) == "Running"]
    end = min(running) if running else max(span.end_ns for span in own)
    path = critical_path(ordered, begin, end)
    return Waterfall(_main_trace(own), ordered, path, (end - begin) / 1e6, bool(running))


def _main_trace(own: list[FinishedSpan]) -> str:
    counts: dict[str, int] = {}
    for span in own:
        counts[span.trace_id] = counts.get(span.trace_id, 0) + 1
    return max(counts, key=lambda trace: counts[trace])


def title(span: FinishedSpan) -> str:
    """Return `service: name`."""
    return f"{span.service}: {span.name}"


def critical_path(spans: Sequence[FinishedSpan], begin_ns: int, end_ns: int) -> list[Piece]:
    """Cut [begin, end] into pieces, each charged to the span that started last among those going on.

    Where none is going on the piece is a wait, named after the spans on its two sides.
    """
    edges = sorted({begin_ns, end_ns, *(t for s in spans for t in (s.start_ns, s.end_ns) if begin_ns < t < end_ns)})
    pieces: list[tuple[str, int]] = []
    for left, right in itertools.pairwise(edges):
        active = [s for s in spans if s.start_ns <= left and s.end_ns >= right]
        what = title(max(active, key=lambda s: (s.start_ns, -s.end_ns, s.span_id))) if active else ""
        if pieces and pieces[-1][0] == what:
            pieces[-1] = (what, pieces[-1][1] + right - left)
        else:
            pieces.append((what, right - left))
    named = []
    for number, (what, length) in enumerate(pieces):
        if not what:
            before = pieces[number - 1][0] if number else "the beginning"
            after = pieces[number + 1][0] if number + 1 < len(pieces) else "the end"
            what = f"on the way: {before} → {after}"
        named.append(Piece(what, length / 1e6))
    return named


def bars(fall: Waterfall, width: int = 60) -> list[tuple[str, str, float, float]]:
    """Return `(title, bar, start ms, length ms)` a span, the bar drawn in `width` characters."""
    begin = min(s.start_ns for s in fall.spans)
    whole = max(max(s.end_ns for s in fall.spans) - begin, 1)
    depth: dict[str, int] = {}
    drawn = []
    for span in fall.spans:
        depth[span.span_id] = depth.get(span.parent, -1) + 1
        left = round((span.start_ns - begin) / whole * width)
        length = max(1, round((span.end_ns - span.start_ns) / whole * width))
        bar = (" " * min(left, width - 1) + "█" * length)[:width].ljust(width)
        name = "  " * depth[span.span_id] + title(span)
        drawn.append((name, bar, (span.start_ns - begin) / 1e6, (span.end_ns - span.start_ns) / 1e6))
    return drawn
