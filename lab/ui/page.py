"""The page in one file: the same modules, with recordings, a comparison, both, runs, or traces inside.

The file opens from disk, in a browser without a network: modules are `data:` addresses behind the same import
map, the worker is text that becomes a Blob, and recordings are gzip'd and in base64. Precomputed documents come
from the functions of `documents.py` that the server uses. A recording is cut into segments of 1,000 versions.
Each begins with all columns, so that any moment needs one segment and a fold, and a page unpacks only segments
that are looked at.

Times are seconds of the recording's clock. A file larger than 30 MB is written as well; `PageFile.advice` says
what to leave out.
"""

import base64
import gzip
import itertools
import json
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from apiserver_fake.rest.tables import columns_of
from lab.recordings import frames
from lab.recordings.format import DELETED, Version
from lab.recordings.model import Model
from lab.recordings.reader import Recording
from lab.recordings.recorded_api import RecordedApi
from lab.recordings.rows import PODS
from lab.scenarios.decisions.decision import SCHEDULER_EVENTS, Decision
from lab.scenarios.recording_summary import decisions_of, explanation
from lab.scenarios.traces.waterfall import SpanGraph
from lab.ui import documents
from lab.ui.lines import shown_of
from lab.ui.runs import open_runs
from lab.ui.static_files import INDEX, hash_of
from services.api.errors import ApiError
from services.api.meta import Resource
from services.api.times import format_time
from services.telemetry.eventlog import Line

STATIC: Final = Path(__file__).resolve().parent / "static"
EVERYTHING, DECISIONS = "everything", "decisions"
DETAILS: Final = (EVERYTHING, DECISIONS)
"""Contents of a recording in the file: everything; or columns, decisions and lines, without objects and bodies."""
PARTS: Final = {
    "segment": "columns",
    "dict": "strings",
    "history": "times",
    "lines": "event lines",
    "documents": "decisions and traces",
    "objects": "tables of objects",
    "docs": "bodies of objects",
    "diff": "differences",
    "result": "result",
}
"""Names of the parts of a file, for people."""
COMPARED: Final = "experiments"
"""Name of the page that shows a comparison, or a run."""
TRACED: Final = "trace"
"""Name of the page that shows a pod's trace."""
LARGE: Final = 30_000_000
LINES_OF_A_FILE: Final = 50_000
"""Largest number of a recording's event lines in a file: RECORDED_LINES of the page's scripts."""
SEGMENT: Final = 1_000
PART_BYTES: Final = 4 << 20
ATTEMPTS_MAX: Final = 20
CHANGES_MAX: Final = 40
UNTRIED_MAX: Final = 1_000
TRACES_MAX: Final = 200
PAIRS_MAX: Final = 100
"""Largest number of pairs of runs that are compared in one file: enough for all pairs of 14 runs."""
TEXT_MAX: Final = 400
LEVEL: Final = 6
_LENGTH: Final = struct.Struct("<I")
_IMPORT_MAP: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


@dataclass
class PageFile:
    """A written file. `parts`: bytes by kind of content; `advice`: one line if the file is large, else ""."""

    path: Path
    size: int
    parts: dict[str, int]
    advice: str = ""


@dataclass
class _Parts:
    """Contents of one recording in the file: parts by name, each JSON or frames, compressed."""

    packed: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, raw: bytes) -> None:
        self.packed[name] = gzip.compress(raw, LEVEL, mtime=0)

    def put_json(self, name: str, value: Any) -> None:
        self.put(name, msgspec.json.encode(value))


class Embedded(NamedTuple):
    """What a file opens with: a comparison, runs or traces. `document`: its data for the page; `plain`: HTML for
    readers without scripts; `name`: the title of its page; `page`: which page it is; `documents`: further
    documents, by the path under which the page asks for them.
    """

    document: Mapping[str, Any]
    plain: str
    name: str = "Comparison"
    page: str = COMPARED
    documents: Mapping[str, Any] = {}


def write_page(paths: Sequence[Path], out: Path, detail: str = EVERYTHING, result: Embedded | None = None) -> PageFile:
    """Write the page, with these recordings and what it opens with, into one file.

    Raises: Unreadable, if a recording cannot be read; ValueError for an unknown detail, or if there is nothing to
    write; OSError.
    """
    if detail not in DETAILS:
        raise ValueError(f"detail: want {' or '.join(DETAILS)}, not {detail!r}")
    text, sizes = page_text(paths, detail, result)
    data = text.encode()
    out.write_bytes(data)
    return PageFile(out, len(data), sizes, _advice(out, len(data), sizes, detail))


def page_text(
    paths: Sequence[Path], detail: str = EVERYTHING, result: Embedded | None = None
) -> tuple[str, dict[str, int]]:
    """Return the text of the page, with these recordings and what it opens with, and its bytes by kind of content.

    Raises: Unreadable, if a recording cannot be read; ValueError if there is nothing to write.
    """
    runs = open_runs(paths)
    if not runs and (paths or result is None):
        where = ", ".join(map(str, paths))
        raise ValueError(f"there is no recording in {where}" if where else "name a recording to write the page of")
    index: dict[str, Any] = {"first": "0", "runs": {}}
    listed: list[dict[str, Any]] = []
    body: list[str] = []
    sizes: dict[str, int] = defaultdict(int)
    decided: dict[str, list[Decision]] = {}
    try:
        for number, run in enumerate(runs):
            name = str(number)
            decided[name] = decisions_of(run.recording)
            about, parts = _recording_parts(run.recording, decided[name], detail)
            index["runs"][name] = about
            listed.append(_with_short_name({**run.document(), "id": name, "name": run.name}))
            body += _elements(name, parts, sizes)
    finally:
        for run in runs:
            run.recording.close()
    whole = _differences(decided)
    if result is not None:
        whole.put_json("result", result.document)
        if result.documents:
            whole.put_json("documents", result.documents)
    body += _elements("all", whole, sizes)
    index["meta"] = _meta(listed, result)
    return _page(index, body, result), dict(sizes)


def _elements(run: str, parts: _Parts, sizes: dict[str, int]) -> Iterator[str]:
    """Yield the elements of a run's parts, and add up their sizes."""
    for name, packed in parts.packed.items():
        text = base64.b64encode(packed).decode()
        sizes[PARTS[name.partition("-")[0]]] += len(text)
        yield f'<script type="application/octet-stream" id="replay-{run}-{name}">{text}</script>\n'


def _differences(decided: Mapping[str, Sequence[Decision]]) -> _Parts:
    """Return how each run decided differently from those after it; the page turns a difference around. Of many runs
    only the first `PAIRS_MAX` pairs are compared, those of the first run before others."""
    parts = _Parts()
    for one, other in itertools.islice(itertools.combinations(decided, 2), PAIRS_MAX):
        for with_times in (False, True):
            comparison = documents.difference(decided[one], decided[other], with_times=with_times)
            parts.put_json(f"diff-{one}-{other}{'-times' if with_times else ''}", comparison)
    return parts


def _meta(listed: list[dict[str, Any]], result: Embedded | None) -> dict[str, Any]:
    opens = result.page if result is not None else ""
    of_recordings = [name for name in documents.PAGES if name not in (COMPARED, opens)] if listed else []
    return {
        "version": "",
        "flags": {"write": False, "break": False},
        "runs": listed,
        "first": "0",
        "switches": [],
        "pages": [*([opens] if opens else []), *of_recordings],
        "opens": opens,
        "result": result.name if result is not None else "",
        "title": _title(result),
        "palette": documents.palette(),
    }


def _title(result: Embedded | None) -> str:
    if result is None:
        return "keplab"
    return str(result.document["title"] or result.document["scenario"])


def _with_short_name(run: dict[str, Any]) -> dict[str, Any]:
    """Add the short name by which a moment is copied: that of the scenario's file."""
    scenario = Path(str(run.get("scenario") or "")).stem
    return {**run, "short": scenario or run["name"]}


def _advice(out: Path, size: int, sizes: Mapping[str, int], detail: str) -> str:
    if size <= LARGE:
        return ""
    most = sorted(sizes.items(), key=lambda each: -each[1])[:3]
    parts = ", ".join(f"{name} {number / 1e6:.0f} MB" for name, number in most)
    how = "--detail decisions leaves objects out" if detail == EVERYTHING else "give fewer recordings"
    return f"{out} has {size / 1e6:.0f} MB ({parts}); {how}"


# -- one recording -----------------------------------------------------------------------------------------


def _recording_parts(recording: Recording, decisions: Sequence[Decision], detail: str) -> tuple[dict[str, Any], _Parts]:
    """Return what the index says of a recording, and its parts."""
    parts = _Parts()
    whys = _Whys(recording, decisions)
    segments = _segments(recording, parts, whys)
    first, last = recording.rv_range
    begin_s, end_s = recording.time_range
    parts.put_json("history", documents.history(recording))
    lines = list(recording.lines())
    shown, left = shown_of(lines, LINES_OF_A_FILE, only_decisions=detail == DECISIONS)
    parts.put_json("lines", list(_lines(recording, shown)))
    parts.put_json("documents", _documents(recording, lines, whys))
    if detail == EVERYTHING:
        _objects(recording, parts)
    about = {"from_rv": first, "to_rv": last, "t0": begin_s, "t1": end_s, "segments": segments, "detail": detail}
    if left and detail == EVERYTHING:
        about["lines_left"] = left
    return about, parts


def _segments(recording: Recording, parts: _Parts, whys: "_Whys") -> list[dict[str, Any]]:
    """Fold the recording, and put its frames: a segment each 1,000 versions, the dictionary apart and whole."""
    model = Model()
    model.forget_changes()
    segments: list[dict[str, Any]] = []
    held: list[bytes] = model.frames()[1:]
    start, count = (0, 0.0), 0

    def close() -> None:
        parts.put(f"segment-{len(segments)}", _stream(held))
        segments.append({"rv": start[0], "t": start[1]})
        held.clear()

    for version in recording.replay(model):
        count += 1
        if not version.group_end:
            continue
        held += (each for each in model.delta() if each[0] != frames.DICT)
        whys.take(version.rv, model)
        if count >= SEGMENT:
            close()
            held += model.frames()[1:]
            start, count = (version.rv, version.t), 0
    close()
    parts.put("dict", _stream([frames.strings_frame(model.strings[1:], 1, model.rv, model.time)]))
    return segments


def _stream(all_frames: Iterable[bytes]) -> bytes:
    """Return frames, each with its length before it."""
    return b"".join(_LENGTH.pack(len(each)) + each for each in all_frames)


def _lines(recording: Recording, lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Yield lines as the page has them."""
    for line in lines:
        document = {
            "seq": line.seq,
            "t": round(recording.time_of(line), 6),
            "comp": line.comp,
            "inc": line.inc,
            "ev": line.ev,
            "rv": line.rv,
            "rv_seen": line.rv_seen,
            "obj": line.obj,
            "node": line.node,
            "trace_id": line.trace_id,
            "data": {name: _short(value) for name, value in line.data.items() if name != "content_sha256"},
        }
        yield {name: value for name, value in document.items() if value not in (None, "", {})}


def _short(value: Any) -> Any:
    """Return a value of a line, a long text or a large one cut."""
    if isinstance(value, str):
        return value[:TEXT_MAX]
    return value if len(str(value)) <= TEXT_MAX else f"{str(value)[:TEXT_MAX]} …"


# -- documents ---------------------------------------------------------------------------------------------


def _documents(recording: Recording, lines: Sequence[Line], whys: "_Whys") -> dict[str, Any]:
    """Return what a server would compute when it is asked: mesh, queue, why each pod is where it is, traces."""
    by_path: dict[str, Any] = {
        "mesh": documents.mesh(lines),
        "queue": documents.queue(recording, 0),
        "kinds": documents.recorded_kinds(recording),
        **{f"explain/{pod}": found for pod, found in whys.documents().items()},
    }
    graph = SpanGraph(recording.spans())
    traced = dict.fromkeys((pod.namespace, pod.name) for pod in graph.matching("*"))
    for namespace, name in itertools.islice(traced, TRACES_MAX):
        _try(by_path, f"trace/{namespace}/{name}", lambda ns=namespace, of=name: documents.trace(graph, ns, of))  # type: ignore[misc]
    return by_path


class _Whys:
    """Explanations of each pod: after its last attempts, after its changes, and at the end.

    They are made while versions are folded. At most UNTRIED_MAX are made for pods that no scheduler tried (gated
    ones, those made for a node). If there are more such pods, they are explained only at the end.
    """

    def __init__(self, recording: Recording, decisions: Sequence[Decision]) -> None:
        self._recording = recording
        self.pods: dict[str, list[Decision]] = defaultdict(list)
        for decision in decisions:
            if decision.event in SCHEDULER_EVENTS:
                self.pods[decision.name].append(decision)
        self._last = last = recording.rv_range[1]
        self._asked: dict[int, dict[str, None]] = defaultdict(dict)
        """(version, pod) pairs for which an explanation is precomputed."""
        self._cut: set[str] = set()
        """Pods of which what was said first is left out."""
        for pod, own in self.pods.items():
            moments = sorted({recording.version_at(each.at_s) for each in own if each.event == "sched.attempt"})
            self._ask(pod, moments, ATTEMPTS_MAX)
            self._asked[last][pod] = None
        self._ask_when_changed()
        self._found: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def _ask_when_changed(self) -> None:
        changed: dict[str, list[int]] = defaultdict(list)
        together: list[str] = []
        for version in self._recording.versions():
            if version.resource == PODS:
                together.append(f"{version.ns}/{version.name}")
            if version.group_end:
                for pod in together:
                    changed[pod].append(version.rv)
                together.clear()
        untried = len(changed.keys() - self.pods.keys())
        for pod, moments in changed.items():
            if pod in self.pods or untried <= UNTRIED_MAX:
                self._ask(pod, moments, CHANGES_MAX)

    def _ask(self, pod: str, moments: Sequence[int], most: int) -> None:
        for rv in moments[-most:]:
            self._asked[rv][pod] = None
        if len(moments) > most:
            self._cut.add(pod)

    def take(self, rv: int, model: Model) -> None:
        """Say what is to be said at this version, whose columns the model has."""
        untried = self._untried_pods(model) if rv == self._last else ()
        for pod in dict.fromkeys((*self._asked.get(rv, ()), *untried)):
            namespace, _, name = pod.partition("/")
            version = self._recording.version_of("pods", namespace, name, rv)
            pool = model.pool_of(version.uid) if version is not None else ""
            answer = explanation(self._recording, self.pods.get(pod, ()), pod, rv, pool)
            if answer is not None:
                del answer["would_fit_if"], answer["wakes_on"]
                self._found[pod].append({**answer, "is_past": True})

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return, by pod, its decisions, and the explanations in the order of versions: of each what is other than in
        the one before it."""
        return {
            pod: {"decisions": self.pods.get(pod, []), "at": list(_changes(found)), "is_cut": pod in self._cut}
            for pod, found in self._found.items()
        }

    def _untried_pods(self, model: Model) -> list[str]:
        """Return pods that are there and that no scheduler decided about, those on no node first."""
        pods, strings = model.columns("pods"), model.strings
        rows = np.flatnonzero(pods["name"])
        ordered = rows[np.argsort(pods["node"][rows] >= 0, kind="stable")]
        names = (f"{strings[pods['ns'][row]]}/{strings[pods['name'][row]]}" for row in ordered)
        return list(itertools.islice((name for name in names if name not in self.pods), UNTRIED_MAX))


def _changes(explanations: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what each of some documents has that the one before it has not, and its version; none that is the same but
    for how long ago."""
    before: dict[str, Any] = {}
    for document in explanations:
        changed = {name: value for name, value in document.items() if name not in before or before[name] != value}
        if changed.keys() - {"rv", "since_s"}:
            yield {"rv": document["rv"], **changed}
            before = document


def _try(made: dict[str, Any], key: str, make: Callable[[], Any]) -> None:
    """Put a document, unless there is nothing to say."""
    try:
        made[key] = make()
    except ApiError:
        return


# -- objects -----------------------------------------------------------------------------------------------


def _objects(recording: Recording, parts: _Parts) -> None:
    """Put the tables of objects, version by version, and the bodies beside each other so that they pack well."""
    bodies = _Bodies(parts)
    by_key: dict[tuple[str, str, str], list[Version]] = defaultdict(list)
    for version in recording.versions():
        by_key[version.key].append(version)
    objects = []
    api = RecordedApi(recording)
    kinds = {title: api.resource(title) for title in recording.resources}
    for (resource, namespace, name), versions in sorted(by_key.items()):
        listed = []
        for version in versions:
            raw = recording.body(version.sha) if version.type != DELETED and version.sha else None
            entry: dict[str, Any] = {"rv": version.rv, "time": round(version.t, 6), "type": version.type}
            if version.identity:
                entry["writer"] = version.identity
            if version.trace_id:
                entry["trace_id"] = version.trace_id
            if version.type != DELETED:
                entry["cells"] = _cells(api, kinds[resource], version, raw)
            if raw is not None:
                entry["body"] = bodies.put(version.sha, raw)
            listed.append(entry)
        objects.append({"kind": resource, "ns": namespace, "name": name, "versions": listed})
    bodies.close()
    kind_documents = [
        {
            "kind": title,
            "namespaced": kind.namespaced,
            "columns": [column.name for column in columns_of(kind) if not column.priority],
            "names": sorted({title, kind.plural, kind.kind.lower(), kind.singular, *kind.short_names}),
        }
        for title, kind in kinds.items()
    ]
    parts.put_json("objects", {"kinds": kind_documents, "objects": objects})


def _cells(api: RecordedApi, kind: Resource, version: Version, raw: bytes | None) -> list[Any]:
    """Return the cells that `kubectl get` prints; of an age the time from which it is counted, because it grows."""
    wall_s = api.recording.meta.clock.wall_s + version.t
    body = msgspec.json.decode(raw) if raw is not None else None
    created = ((body or {}).get("metadata") or {}).get("creationTimestamp") or format_time(wall_s)
    return [
        created if column.name == "Age" and body is not None else cell
        for column, cell in zip(columns_of(kind), api.cells(kind, version, body, wall_s), strict=True)
        if not column.priority
    ]


class _Bodies:
    """Bodies of objects, each stored once, in parts of some MiB."""

    def __init__(self, parts: _Parts) -> None:
        self._parts, self._held, self._size, self._number = parts, list[bytes](), 0, 0
        self._places: dict[str, tuple[int, int, int]] = {}

    def put(self, sha: str, raw: bytes) -> tuple[int, int, int]:
        """Return where the body is: part, offset, length."""
        if sha not in self._places:
            if self._size + len(raw) > PART_BYTES and self._held:
                self.close()
            self._places[sha] = self._number, self._size, len(raw)
            self._held.append(raw)
            self._size += len(raw)
        return self._places[sha]

    def close(self) -> None:
        """Put what is held."""
        if self._held:
            self._parts.put(f"docs-{self._number}", b"".join(self._held))
            self._held, self._size, self._number = [], 0, self._number + 1


# -- the file ----------------------------------------------------------------------------------------------


def _page(index: Mapping[str, Any], body: Sequence[str], result: Embedded | None) -> str:
    """Return the page's text: the served one, with everything inside it and a policy that lets nothing else in."""
    text = (STATIC / INDEX).read_text(encoding="utf-8")
    served = _IMPORT_MAP.search(text)
    assert served is not None
    import_map = json.dumps({"imports": _modules(json.loads(served[1])["imports"])}, separators=(",", ":"))
    styles = [(STATIC / name).read_text(encoding="utf-8") for name in ("vendor/uPlot.min.css", "app.css")]
    entry = 'import "keplab/app.js";'
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src data: '{hash_of(import_map)}' '{hash_of(entry)}'",
            "style-src " + " ".join(f"'{hash_of(each)}'" for each in styles),
            "img-src data:",
            "worker-src blob:",
            "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types keplab",
        )
    )
    worker = (STATIC / "js" / "worker.js").read_text(encoding="utf-8")
    for what, source in (("worker.js", worker), ("a style sheet", "".join(styles))):
        if "</" in source:
            raise ValueError(f'{what} has "</" in it, which would end the element that it stands in')
    quoted = msgspec.json.encode(index).decode().replace("<", "\\u003c")
    plain = result.plain if result is not None else "This page needs scripts."
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            f"<title>{escape(_title(result))}</title>\n",
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
            '<link rel="icon" href="data:,">\n',
            *(f"<style>{each}</style>\n" for each in styles),
            f'<script type="importmap">{import_map}</script>\n',
            '</head>\n<body>\n<div id="app"><p class="starting">keplab is unpacking the page …</p>',
            f'<noscript><article class="plain">{plain}</article></noscript></div>\n',
            f'<script type="text/plain" id="worker-script">{worker}</script>\n',
            f'<script type="application/json" id="replay-index">{quoted}</script>\n',
            *body,
            f'<script type="module">{entry}</script>\n</body>\n</html>\n',
        )
    )


def _modules(imports: Mapping[str, str]) -> dict[str, str]:
    """Return the import map with each module as a `data:` address; a prefix becomes a row for each file below it."""
    addresses: dict[str, str] = {}
    for name, target in imports.items():
        if name.endswith("/"):
            folder = STATIC / target
            for path in sorted(folder.rglob("*.js")):
                if path.name != "worker.js":
                    addresses[f"{name}{path.relative_to(folder).as_posix()}"] = _as_data(path)
        else:
            addresses[name] = _as_data(STATIC / target)
    return addresses


def _as_data(path: Path) -> str:
    return "data:text/javascript;base64," + base64.b64encode(path.read_bytes()).decode()
