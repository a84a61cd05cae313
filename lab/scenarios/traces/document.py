"""A waterfall as JSON, for `keplab trace -o json` and for the live page. Pure."""

import msgspec

from lab.scenarios.traces.waterfall import Waterfall


def document(fall: Waterfall) -> dict[str, object]:
    """Return spans, critical path, and the totals."""
    return {
        "pod": msgspec.to_builtins(fall.pod),
        "trace_id": fall.trace_id,
        "spans": [
            {
                "service": s.service,
                "resource": s.origin,
                "name": s.name,
                "start_ns": s.start_ns,
                "end_ns": s.end_ns,
                "trace_id": s.trace_id,
                "span_id": s.span_id,
                "parent": s.parent,
                "links": s.links,
                "attributes": s.attributes,
                "error": s.error,
            }
            for s in fall.spans
        ],
        "critical_path": [{"what": piece.what, "ms": piece.ms} for piece in fall.critical_path],
        "total_ms": fall.total_ms,
        "phase": fall.phase,
        "is_running": fall.is_running,
        "is_connected": fall.is_connected,
    }


def drawing_document(fall: Waterfall) -> dict[str, object]:
    """Return the same with data for drawing: the span of time, each row's depth, and the times of the pieces (ns)."""
    return {
        **document(fall),
        "begin_ns": fall.begin_ns,
        "end_ns": fall.end_ns,
        "later": fall.later,
        "rows": [{"span_id": row.span.span_id, "depth": row.depth, "critical": row.is_critical} for row in fall.rows],
        "pieces": [
            {"what": piece.what, "start_ns": piece.start_ns, "end_ns": piece.end_ns, "span_id": piece.span_id}
            for piece in fall.critical_path
        ],
    }
