"""What reads traces by convention: the edges of a service graph, and the names that the conventions know."""

import importlib
from collections import Counter
from pathlib import Path

from opentelemetry import semconv
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from services.telemetry.otlp import ConvertingExporter, Deferred

PAIRS = {"CLIENT": "SERVER", "PRODUCER": "CONSUMER"}
"""The service graph connector's: the kind of an edge's span, and that of its child in the other service."""


class Kept(SpanExporter):
    """Keeps what it is given."""

    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans
        return SpanExportResult.SUCCESS


def exported(spans, server="127.0.0.1:7443"):
    """Return spans as they leave over OTLP, each from its process."""
    processes = {}
    for span in spans:
        processes.setdefault((span.service, span.instance), []).append(Deferred(span))
    kept = Kept()
    for (service, instance), values in processes.items():
        exporter = ConvertingExporter(kept, service, instance, "" if service == "apiserver" else server)
        assert exporter.export(values) is SpanExportResult.SUCCESS
    return kept.spans


def edges(spans):
    """Return {(from, to, kind): how often}; `spans`: (service, kind, id, parent's id)."""
    waiting = {span_id: (service, kind) for service, kind, span_id, _ in spans if kind in PAIRS}
    found = Counter()
    for service, kind, _, parent in spans:
        if parent in waiting and PAIRS[waiting[parent][1]] == kind:
            found[waiting[parent][0], service, waiting[parent][1]] += 1
    return found


def known_attributes():
    """Return every attribute that the conventions name."""
    (root,) = map(Path, semconv.__path__)
    found = set()
    for path in sorted(root.rglob("*_attributes.py")):
        parts = path.relative_to(root).with_suffix("").parts
        values = vars(importlib.import_module(".".join(("opentelemetry.semconv", *parts))))
        found |= {value for name, value in values.items() if name.isupper() and isinstance(value, str)}
    return found


def violations(name, kind, attributes, known):
    """Return what a span has that the conventions do not, or lacks that they require."""
    found = [key for key in attributes if key not in known and not key.startswith("keplab.")]
    required = []
    if "rpc.system.name" in attributes:
        required += ["rpc.method", "rpc.response.status_code"]
        required += ["server.address"] if kind == "CLIENT" else []
    if "http.route" in attributes:
        required += ["http.request.method", "http.response.status_code"]
    if kind in ("PRODUCER", "CONSUMER"):
        required += ["messaging.system", "messaging.operation.name", "messaging.operation.type"]
    return [f"{name}: {what}" for what in (*found, *(key for key in required if key not in attributes))]
