"""What the page is given as JSON, of recordings and comparisons. Pure.

HTTP, the page in one file and tests use the same functions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from apiserver_fake.rest.tables import cells_of, columns_of
from lab.experiments.document import DocumentError, read_document
from lab.experiments.shown import page_document
from lab.experiments.style import GRAPHICS
from lab.experiments.words import counted
from lab.recordings.format import DELETED, SUFFIX, Version
from lab.recordings.reader import Recording
from lab.scenarios.decisions.decision import SCHEDULER_EVENTS, Decision
from lab.scenarios.decisions.difference import Compared, Difference, compare
from lab.scenarios.recorded import decisions_of, explained, queue_at
from lab.scenarios.traces.document import drawn
from lab.scenarios.traces.waterfall import SpanGraph, waterfall
from services.api.errors import Expired, NotFound
from services.api.meta import Column, Document, Resource
from services.api.resources import resources
from services.api.switches import REGISTER, Switch
from services.api.times import format_micro_time
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

PAGES: Final = ("mesh", "cluster", "queue", "trace", "objects", "experiments", "difference", "timeline")
SIGNS: Final = {"pending": "hollow", "running": "solid", "failed": "cross", "succeeded": "tick", "unbound": "stripe"}
"""What says the same as a colour, by phase or state."""
NOT_RECORDED: Final = "body not recorded"
DIFFERENCES_MAX: Final = 1_000
HISTORY_MAX: Final = 20_000


def palette() -> dict[str, dict[str, str]]:
    """Return colours and sign of each phase or state."""
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
    """Return when which version was committed, thinned to what a time line can show."""
    pairs = [(round(each.t, 6), each.rv) for each in recording.versions() if each.group_end]
    step = max(1, len(pairs) // HISTORY_MAX)
    kept = pairs[::step]
    if pairs and kept[-1] != pairs[-1]:
        kept.append(pairs[-1])
    return {"t": [t for t, _ in kept], "rv": [float(rv) for _, rv in kept]}


# -- objects ---------------------------------------------------------------------------------------------


def kind_documents(recording: Recording) -> list[dict[str, Any]]:
    """Return the kinds of which the recording has a version."""
    found = []
    for name in recording.resources:
        known = resources().get(name)
        found.append(
            {
                "name": name,
                "kind": known.kind if known is not None else name,
                "singular": known.singular if known is not None else "",
                "short_names": list(known.short_names) if known is not None else [],
                "namespaced": known.namespaced if known is not None else True,
                "has_past": True,
            }
        )
    return found


def resource_named(recording: Recording, name: str) -> str:
    """Return the wire name of the kind that is meant, by any of its names. Raises: NotFound."""
    plain, _, group = name.lower().partition(".")
    for title in (*recording.resources, *resources()):
        known = resources().get(title)
        names = {title.partition(".")[0]}
        if known is not None:
            names |= {known.plural, known.singular, known.kind.lower(), *known.short_names}
        if title == name or (plain in names and (not group or title.partition(".")[2].startswith(group))):
            return title
    raise NotFound(f"the recording has no resource type {name!r}")


def rows(
    recording: Recording, resource: str, namespace: str, words: str, rv: int, limit: int, after: str
) -> dict[str, Any]:
    """Return rows of a kind as they were at a version (0: the last): the columns of `kubectl get`. `after`: the key
    that the last answer ended with."""
    stop = recording.stop_at(rv) if rv else recording.rv_range[1]
    known = resources().get(resource)
    columns = columns_of(known) if known is not None else columns_of(Resource(plural=resource))
    wanted, now_s = words.lower().split(), _wall_at(recording, stop)
    state = recording.state_at(stop)
    keys = sorted(key for key in state if key[0] == resource and namespace in ("", key[1]))
    shown: list[dict[str, Any]] = []
    more = ""
    for key in keys:
        text = f"{key[1]}/{key[2]}"
        if after and text <= after:
            continue
        if len(shown) >= limit:
            more = f"{shown[-1]['ns']}/{shown[-1]['name']}"
            break
        row = _row(recording, columns, state[key], now_s)
        if all(word in " ".join((row["ns"], *map(str, row["cells"]))).lower() for word in wanted):
            shown.append(row)
    return {
        "kind": resource,
        "namespaced": known.namespaced if known is not None else True,
        "columns": [{"name": each.name, "type": each.type, "priority": each.priority} for each in columns],
        "rows": shown,
        "rv": stop,
        "continue": more,
        "recorded": all(row["recorded"] for row in shown),
    }


def _row(recording: Recording, columns: Sequence[Column], version: Version, now_s: float) -> dict[str, Any]:
    body = recording.body(version.sha)
    if body is not None:
        cells = cells_of(tuple(columns), msgspec.json.decode(body), now_s)
    else:
        cells = [version.name if column.format == "name" else NOT_RECORDED for column in columns]
    return {
        "ns": version.ns,
        "name": version.name,
        "uid": version.uid,
        "rv": version.rv,
        "cells": cells,
        "recorded": body is not None,
    }


def _wall_at(recording: Recording, rv: int) -> float:
    """Return the wall's time at a version."""
    return recording.meta.clock.wall_s + (recording.time_at(rv) if rv else 0.0)


def one(recording: Recording, resource: str, namespace: str, name: str, rv: int) -> Document:
    """Return an object as it was at a version (0: the last). Raises: NotFound; Expired when its body is not
    recorded."""
    stop = rv or recording.rv_range[1]
    version = recording.version_of(resource, namespace, name, stop)
    if version is None:
        where = f"{namespace}/{name}" if namespace else name
        raise NotFound(f'{resource} "{where}" not found at version {stop}')
    body = recording.body(version.sha)
    if body is None:
        details = {"facts": version.facts, "rv": version.rv}
        raise Expired(f"{NOT_RECORDED}: {resource} {name} at version {version.rv}", details=details)
    found: Document = msgspec.json.decode(body)
    return found


def versions(recording: Recording, resource: str, namespace: str, name: str) -> dict[str, Any]:
    """Return an object's versions, oldest first, and which of their bodies are recorded."""
    wall_s = recording.meta.clock.wall_s
    return {
        "items": [
            {
                "rv": each.rv,
                "type": each.type,
                "t": round(each.t, 6),
                "time": format_micro_time(wall_s + each.t),
                "uid": each.uid,
                "writer": each.identity,
                "verb": each.verb,
                "subresource": each.subresource,
                "request_id": each.req_id,
                "trace_id": each.trace_id,
                "changed": [],
                "recorded": each.type == DELETED or recording.has_body(each),
                "facts": each.facts,
            }
            for each in recording.versions_of(resource, namespace, name)
        ],
        "window_start": recording.rv_range[0],
    }


# -- why -------------------------------------------------------------------------------------------------


def explain(recording: Recording, namespace: str, name: str, rv: int) -> dict[str, Any]:
    """Return why a pod was where it was at a version (0: the last), from the decisions that are recorded; `left_out`
    says what is not known of the past. Raises: NotFound."""
    stop = rv or recording.rv_range[1]
    known = f"{namespace}/{name}"
    own = [each for each in decisions_of(recording) if each.name == known]
    found = explained(recording, namespace, name, stop, own)
    if found is None:
        raise NotFound(f"the recording has no pod {known} at version {stop}")
    del found["would_fit_if"], found["wakes_on"]
    return {**found, "decisions": [each for each in own if each.event in SCHEDULER_EVENTS], "is_past": True}


def queue(recording: Recording, rv: int) -> dict[str, Any]:
    """Return which pods were in which pool of the scheduling queue, as far as the recording has moves."""
    return {**queue_at(recording, rv or recording.rv_range[1]), "is_past": True}


def mesh(lines: Iterable[Line]) -> dict[str, Any]:
    """Return the processes that wrote the event log: each with its lives."""
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
    found = waterfall(spans, name, namespace, whole=whole)
    if found is None:
        raise NotFound(f"no span names pod {namespace}/{name}")
    return drawn(found)


# -- differences -----------------------------------------------------------------------------------------


def difference(first: Sequence[Decision], second: Sequence[Decision], *, with_times: bool = False) -> dict[str, Any]:
    """Return how the second run decided differently: the first difference, and the others in the order of time."""
    found: Compared = compare(first, second, with_times=with_times)
    return {
        "counts": {"a": found.counts[0], "b": found.counts[1]},
        "same": found.same,
        "last_same": found.last_same,
        "first": _difference(found.differences[0]) if found.differences else None,
        "difference_count": len(found.differences),
        "differences": [_difference(each) for each in found.differences[:DIFFERENCES_MAX]],
        "reordered": {"a": found.reordered.first, "b": found.reordered.second} if found.reordered else None,
        "text": "" if found.differences else f"no difference in {counted(found.counts[0], 'decision')}",
    }


def _difference(each: Difference) -> dict[str, Any]:
    one, other = each.first, each.second
    fields = [name for name in ("event", "outcome", "node") if getattr(one, name, None) != getattr(other, name, None)]
    return {"role": each.role, "at_s": each.at_s, "a": one, "b": other, "fields": fields}


# -- comparisons -----------------------------------------------------------------------------------------


def comparison(text: bytes, name: str) -> dict[str, Any]:
    """Return what the page shows of a comparison, whose document is this text; `name`: what it is called where it is
    none. Raises: NotFound."""
    try:
        return page_document(read_document(text, name))
    except DocumentError as error:
        raise NotFound(str(error)) from None
