"""The page of traces: where the time of pods went, from their spans. Pure.

`traces_document` is the data of the page (lab/ui/static/js/pages/trace.js draws it); `plain_traces` is
its first trace as HTML for viewers without scripts.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from lab.experiments.static_html import list_html, table_html
from lab.experiments.wording import count_text
from lab.scenarios.traces.document import drawing_document
from lab.scenarios.traces.waterfall import SpanGraph, Waterfall, label, waterfall

SCHEMA: Final = "keplab.traces"
PODS_MAX: Final = 200


class TracePage(NamedTuple):
    """Content of a page of traces.

    `falls`: waterfalls of pods with different names, the page opens with the first; `left`: number of pods
    that are omitted; `where`: names and texts; `command`: the command that repeats the page.
    """

    falls: Sequence[Waterfall]
    left: int = 0
    where: Sequence[tuple[str, str]] = ()
    command: str = ""


def traces_of(
    graph: SpanGraph, pattern: str, namespace: str = "", *, whole: bool = False
) -> tuple[list[Waterfall], int]:
    """Return the waterfalls of the pods that match a glob, that of `waterfall` first, and the number of omitted
    pods.

    Of several pods with one name it is the last, except that the first waterfall stays the one of
    `waterfall`.
    """
    first = waterfall(graph, pattern, namespace, whole=whole)
    if first is None:
        return [], 0
    named = graph.matching(pattern, namespace)
    others = dict.fromkeys((pod.namespace, pod.name) for pod in named)
    others.pop((first.pod.namespace, first.pod.name), None)
    waterfalls = [waterfall(graph, name, ns, whole=whole) for ns, name in list(others)[: PODS_MAX - 1]]
    falls = [first, *(fall for fall in waterfalls if fall is not None)]
    return falls, 1 + len(others) - len(falls)


def traces_document(page: TracePage) -> dict[str, Any]:
    """Return the data of the page, without the traces themselves (`documents`)."""
    return {
        "schema": SCHEMA,
        "title": heading(page.falls[0]),
        "pods": [{"ns": fall.pod.namespace, "name": fall.pod.name} for fall in page.falls],
        "left": _left_out_text(page),
        "where": list(page.where),
        "command": page.command,
    }


def documents(page: TracePage) -> dict[str, dict[str, object]]:
    """Return the trace of each pod, by the key with which the page requests it."""
    return {f"trace/{fall.pod.namespace}/{fall.pod.name}": drawing_document(fall) for fall in page.falls}


def plain_traces(page: TracePage) -> str:
    """Return the first trace as HTML without style and script: its critical path and its spans."""
    return "".join(_plain(page, page.falls[0]))


def heading(fall: Waterfall) -> str:
    """Return one line with the pod and the time it took."""
    end = fall.phase or "not Running, last span"
    return f"pod {fall.pod.name}: {end} after {fall.total_ms:.3f} ms"


def _plain(page: TracePage, fall: Waterfall) -> Iterator[str]:
    pod, total = fall.pod, fall.total_ms or 1.0
    yield f"<h1>{escape(heading(fall))}</h1>"
    yield f"<p>{escape(f'{pod.namespace}/{pod.name}, uid {pod.uid}, trace {fall.trace_id}.')}</p>"
    path = [[piece.what, f"{piece.ms:.3f}", f"{100 * piece.ms / total:.1f} %"] for piece in fall.critical_path]
    yield table_html("Critical path", ["piece", "ms", "share"], [*path, ["total", f"{fall.total_ms:.3f}", "100.0 %"]])
    spans = [
        [
            f"{'· ' * row.depth}{label(row.span)}",
            f"{(row.span.start_ns - fall.begin_ns) / 1e6:.3f}",
            f"{(row.span.end_ns - row.span.start_ns) / 1e6:.3f}",
            "yes" if row.is_critical else "",
            row.span.error,
        ]
        for row in fall.rows
    ]
    yield table_html("Spans", ["span", "from ms", "took ms", "critical", "error"], spans)
    notes = [
        *(
            [f"{count_text(fall.later, 'span')} began later and {'is' if fall.later == 1 else 'are'} left out."]
            if fall.later
            else []
        ),
        *([] if fall.is_connected else ["A cause was guessed: a span is lost or not written yet."]),
        *([_left_out_text(page)] if page.left else []),
        *([f"With scripts this page shows {len(page.falls)} pods."] if page.falls[1:] else []),
    ]
    yield "".join(f"<p>{escape(note)}</p>" for note in notes)
    yield f"<h2>Where this comes from</h2>{list_html([f'{name}: {what}' for name, what in page.where])}"
    yield f"<pre>{escape(page.command)}</pre>" if page.command else ""


def _left_out_text(page: TracePage) -> str:
    if not page.left:
        return ""
    return f"{count_text(page.left, 'more pod is', 'more pods are')} left out."
