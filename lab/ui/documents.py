"""JSON documents about recordings and comparisons for the page. Pure.

HTTP, the page in one file and tests use the same functions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from apiserver_fake.rest.tables import columns_of
from lab.experiments.document import DocumentError, read_document
from lab.experiments.page_document import page_document
from lab.experiments.style import GRAPHICS
from lab.experiments.wording import count_text
from lab.recordings.format import SUFFIX
from lab.recordings.reader import Recording
from lab.recordings.recorded_api import RecordedApi, column_documents
from lab.scenarios.decisions.decision import SCHEDULER_EVENTS, Decision
from lab.scenarios.decisions.difference import Compared, Difference, compare
from lab.scenarios.recording_summary import decisions_of, explanation_at, queue_at
from lab.scenarios.traces.document import drawing_document
from lab.scenarios.traces.waterfall import SpanGraph, waterfall
from services.api.errors import NotFound
from services.api.meta import Document
from services.api.switches import REGISTER, Switch
from services.client.discovery import ServedKind
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

PAGES: Final = ("mesh", "cluster", "queue", "trace", "objects", "experiments", "difference", "timeline")
SIGNS: Final = {"pending": "hollow", "running": "solid", "failed": "cross", "succeeded": "tick", "unbound": "stripe"}
"""Signs that mean the same as the colours, by phase or state."""
DIFFERENCES_MAX: Final = 1_000
HISTORY_MAX: Final = 20_000


def palette() -> dict[str, dict[str, str]]:
    """Return the colours and the sign of each phase or state."""
    return {
        name: {"light": colour.light, "dark": colour.dark, "sign": SIGNS[name]} for name, colour in GRAPHICS.items()
    }


def switch_documents() -> list[dict[str, Any]]:
    """Return the register of switches, for the picker of arms."""
    return [_switch(each) for each in REGISTER]


def _switch(switch: Switch) -> dict[str, Any]:
    return {
        "name": switch.name,
        "type": switch.type,
        "default": switch.default,
        "values": list(switch.values),
        "meaning": switch.meaning,
        "source": switch.source,
        "scenario": switch.shown_by,
    }


def run_document(name: str, recording: Recording) -> dict[str, Any]:
    """Return a recording as an element of `/meta`'s runs."""
    meta = recording.meta
    (first, last), (begin_s, end_s) = recording.rv_range, recording.time_range
    return {
        "id": name,
        "file": recording.path.name.removesuffix(SUFFIX),
        "title": meta.title or meta.scenario or name,
        "scenario": meta.scenario,
        "arm": meta.arm,
        "seed": meta.seed,
        "mode": meta.mode,
        "from_rv": first,
        "to_rv": last,
        "t0": round(begin_s, 6),
        "t1": round(end_s, 6),
        "wall_s": meta.clock.wall_s if not meta.clock.is_virtual else 0.0,
        "kind": "recording",
        "switches": list(meta.switches),
        "passed": meta.passed,
        "digest": meta.digest,
        "command": meta.command,
        "not_recorded": list(meta.not_recorded),
        "clock": {"zero_s": meta.clock.zero_s, "wall_s": meta.clock.wall_s, "is_virtual": meta.clock.is_virtual},
    }


def history(recording: Recording) -> dict[str, list[float]]:
    """Return the commit times and numbers of versions, thinned to what a time line can show."""
    pairs = [(round(each.t, 6), each.rv) for each in recording.versions() if each.group_end]
    step = max(1, len(pairs) // HISTORY_MAX)
    kept = pairs[::step]
    if pairs and kept[-1] != pairs[-1]:
        kept.append(pairs[-1])
    return {"t": [t for t, _ in kept], "rv": [float(rv) for _, rv in kept]}


# -- objects ---------------------------------------------------------------------------------------------


def kind_documents(kinds: Iterable[ServedKind]) -> list[dict[str, Any]]:
    """Return kinds as the page lists them."""
    return [
        {
            "name": kind.title,
            "kind": kind.kind,
            "singular": kind.singular,
            "short_names": list(kind.short_names),
            "namespaced": kind.is_namespaced,
            "has_past": kind.has_past,
        }
        for kind in kinds
    ]


def recorded_kinds(recording: Recording) -> list[dict[str, Any]]:
    """Return the kinds that have a version in the recording."""
    return kind_documents(RecordedApi(recording).kinds())


def rows(
    recording: Recording, kind_name: str, namespace: str, words: str, rv: int, limit: int, after: str
) -> dict[str, Any]:
    """Return rows of a kind at a version (0: the last), with the columns of `kubectl get`.

    `after`: the key that the last answer ended with. Raises: NotFound.
    """
    api = RecordedApi(recording)
    kind, stop = api.kind_named(kind_name), recording.stop_at(rv) if rv else recording.rv_range[1]
    resource, wanted, wall_s = api.resource(kind.title), words.lower().split(), api.wall_at(stop)
    table: list[dict[str, Any]] = []
    more = ""
    for version in api.versions_at(kind, stop, namespace):
        if after and f"{version.ns}/{version.name}" <= after:
            continue
        if len(table) >= limit:
            more = f"{table[-1]['ns']}/{table[-1]['name']}"
            break
        body = api.body(version)
        row: dict[str, Any] = {
            "ns": version.ns,
            "name": version.name,
            "uid": version.uid,
            "rv": version.rv,
            "cells": api.cells(resource, version, body, wall_s),
            "recorded": body is not None,
        }
        if all(word in " ".join((row["ns"], *map(str, row["cells"]))).lower() for word in wanted):
            table.append(row)
    return {
        "kind": kind.title,
        "namespaced": kind.is_namespaced,
        "columns": column_documents(columns_of(resource)),
        "rows": table,
        "rv": stop,
        "continue": more,
        "recorded": all(row["recorded"] for row in table),
    }


def one(recording: Recording, kind_name: str, namespace: str, name: str, rv: int) -> Document:
    """Return an object as it was at a version (0: the last). Raises: NotFound; Expired when its body is not
    recorded."""
    api = RecordedApi(recording)
    return api.object_at(api.kind_named(kind_name), namespace, name, rv or recording.rv_range[1])


def versions(recording: Recording, kind_name: str, namespace: str, name: str) -> dict[str, Any]:
    """Return an object's versions, oldest first, and which of their bodies are recorded.

    Raises: NotFound, if there is no such kind.
    """
    api = RecordedApi(recording)
    return {
        "items": [
            {
                "rv": version.rv,
                "type": version.type,
                "t": round(version.t, 6),
                "time": api.time(version),
                "uid": version.uid,
                "writer": version.identity,
                "verb": version.verb,
                "subresource": version.subresource,
                "request_id": version.req_id,
                "trace_id": version.trace_id,
                "changed": [],
                "recorded": api.is_recorded(version),
                "facts": version.facts,
            }
            for version in api.versions_of(api.kind_named(kind_name), namespace, name)
        ],
        "window_start": recording.rv_range[0],
    }


# -- why -------------------------------------------------------------------------------------------------


def explain(recording: Recording, namespace: str, name: str, rv: int) -> dict[str, Any]:
    """Return why a pod was where it was at a version (0: the last), from the recorded decisions.

    `left_out` in the result says what is not known of the past. Raises: NotFound.
    """
    stop = rv or recording.rv_range[1]
    known = f"{namespace}/{name}"
    own = [each for each in decisions_of(recording) if each.name == known]
    explanation = explanation_at(recording, namespace, name, stop, own)
    if explanation is None:
        raise NotFound(f"the recording has no pod {known} at version {stop}")
    del explanation["would_fit_if"], explanation["wakes_on"]
    return {**explanation, "decisions": [each for each in own if each.event in SCHEDULER_EVENTS], "is_past": True}


def queue(recording: Recording, rv: int) -> dict[str, Any]:
    """Return the pods in each pool of the scheduling queue at a version (0: the last), as far as moves are recorded."""
    return {**queue_at(recording, rv or recording.rv_range[1]), "is_past": True}


def mesh(lines: Iterable[Line]) -> dict[str, Any]:
    """Return the processes that wrote the event log, each with its number of restarts."""
    lives: dict[str, set[str]] = {}
    for line in lines:
        lives.setdefault(line.comp, set()).add(line.inc)
    processes = [
        {"name": name, "pid": 0, "ready": True, "state": "Recorded", "restarts": len(found) - 1, "fault": None}
        for name, found in sorted(lives.items())
    ]
    return {"processes": processes, "links": [], "faults": [], "conditions": [], "error": ""}


def trace(
    spans: Iterable[FinishedSpan] | SpanGraph, namespace: str, name: str, *, whole: bool = False
) -> dict[str, Any]:
    """Return a pod's spans and critical path, as `keplab trace -o json` prints them, with depths. Raises: NotFound."""
    pod_waterfall = waterfall(spans, name, namespace, whole=whole)
    if pod_waterfall is None:
        raise NotFound(f"no span names pod {namespace}/{name}")
    return drawing_document(pod_waterfall)


# -- differences -----------------------------------------------------------------------------------------


def difference(first: Sequence[Decision], second: Sequence[Decision], *, with_times: bool = False) -> dict[str, Any]:
    """Return how the second run decided differently: the first difference, and the others in order of time."""
    differences: Compared = compare(first, second, with_times=with_times)
    return {
        "counts": {"a": differences.counts[0], "b": differences.counts[1]},
        "same": differences.same,
        "last_same": differences.last_same,
        "first": _difference(differences.differences[0]) if differences.differences else None,
        "difference_count": len(differences.differences),
        "differences": [_difference(each) for each in differences.differences[:DIFFERENCES_MAX]],
        "reordered": {"a": differences.reordered.first, "b": differences.reordered.second}
        if differences.reordered
        else None,
        "text": "" if differences.differences else f"no difference in {count_text(differences.counts[0], 'decision')}",
    }


def _difference(each: Difference) -> dict[str, Any]:
    one, other = each.first, each.second
    fields = [name for name in ("event", "outcome", "node") if getattr(one, name, None) != getattr(other, name, None)]
    return {"role": each.role, "at_s": each.at_s, "a": one, "b": other, "fields": fields}


# -- comparisons -----------------------------------------------------------------------------------------


def comparison(text: bytes, name: str) -> dict[str, Any]:
    """Return the page's document of a comparison. `text`: the comparison's document; `name`: its name in errors.

    Raises: NotFound, if the text is no comparison.
    """
    try:
        return page_document(read_document(text, name))
    except DocumentError as error:
        raise NotFound(str(error)) from None
