"""SimKube's `.sktrace`: the changes of pods' owners, and how long the pods ran.

Its objects are applied and deleted at their seconds. Pods are made by the mesh's own controllers. A pod
template is marked with the owner of its pods, and holds them at a scheduling gate until their run time is
written on them (`lifecycles`). A trace is one map whose lifecycles stand behind its events, so the whole file
is looked at before the first event is yielded. It is mapped, not read (a compressed one is read), and events
are decoded one by one. Pure but for reading and writing the file. Source: simulator 6.1, 6.2.
"""

from __future__ import annotations

import copy
import hashlib
import io
import mmap
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from lab.exchange.format import Edit, Format, Reading, Rename, Writer
from lab.exchange.reading import Source
from lab.exchange.simkube import TEMPLATES, Config, Event, Life, Trace, Tracked, decode, encode, gvk_of, looks_so, raw
from lab.exchange.stream import Change, Origin, Placed, Refused, Runtime, Stream, api_version_of, kind_of
from lab.exchange.times import NANOSECOND, nanoseconds_of
from lab.exchange.traces.runs import GATE, LIFECYCLE, run_of
from services.api.kinds.pod import RUN
from services.api.meta import Document, Key, metadata_of
from services.api.resources import resource_of_kind
from services.api.times import seconds_in

OPTIONS: Final = ("namespace-prefix", "unroll", "duration", "raw")
BUILT_IN_NAMESPACES: Final = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))
UNROLLED_MAX: Final = 100_000


def _read(source: Source, reading: Reading) -> Stream:
    with source.open() as file:
        trace = decode(_content(file), source.file)
    notes: dict[str, int] = {}
    return _Replayed(trace, source.file, reading, notes).stream()


def _content(file: BinaryIO) -> bytes | mmap.mmap:
    """Return all of a file: where it is not compressed its pages are mapped, which the kernel may drop at any time."""
    if isinstance(file, io.BufferedReader) and not file.closed:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            pass  # no file on a disk, or an empty one
    return file.read()


class _Replayed:
    """One reading of a trace. `_began`: second of its first event. `_until`: seconds after that at which it is cut."""

    def __init__(self, trace: Trace, file: str, reading: Reading, notes: dict[str, int]) -> None:
        options = reading.options
        self._trace, self._file, self._notes = trace, file, notes
        first = next(trace.decode_events(file), None)
        self._began = first.ts if first is not None else 0
        self._prefix = f"{options['namespace-prefix']}-" if options.get("namespace-prefix") else ""
        self._is_unrolled, self._is_raw = options.get("unroll") == "yes", options.get("raw") == "yes"
        try:
            self._until = seconds_in(options["duration"]) if options.get("duration") else None
        except ValueError as error:
            raise Refused(f"{file}: duration: {error}") from None
        self._seen: set[tuple[str, Key]] = set()
        self._unrolled: dict[tuple[str, str], list[str]] = {}

    def stream(self) -> Stream:
        runtimes = tuple(
            Runtime(
                (gvk, *_split(name)),
                bucket,
                tuple(self._span(each) for each in self._trace.lives_of((gvk, name), bucket)),
            )
            for (gvk, name), groups in self._trace.lives.items()
            for bucket in ([""] if self._trace.version == 2 else groups)
        )
        changes = self._plain() if self._is_raw else self._changes()
        origin = Origin("sktrace", float(self._began))
        return Stream(iter(()) if self._is_raw else self._namespaces(), changes, origin, runtimes, self._notes)

    def _span(self, life: Life) -> tuple[float, float | None]:
        start = (life.start if life.start is not None else self._began) - self._began
        return float(start), float(life.end - self._began) if life.end is not None and life.start is not None else None

    def _leave(self, what: str, count: int = 1) -> None:
        self._notes[what] = self._notes.get(what, 0) + count

    def _events(self) -> Iterator[tuple[float, str, Event]]:
        latest = 0.0
        for number, event in enumerate(self._trace.decode_events(self._file), 1):
            # As in SimKube an event whose time lies before the last one's happens at once.
            latest = max(latest, float(event.ts - self._began))
            if self._until is not None and latest >= self._until:
                return
            yield latest, f"{self._file}:event {number}", event

    def _namespaces(self) -> Iterator[Placed]:
        own: set[str] = set()
        wanted: dict[str, str] = {}
        for _, where, event in self._events():
            for document in event.applied_objs:
                if document.get("kind") == "Namespace":
                    own.add(str(metadata_of(document).get("name")))
                elif place := metadata_of(document).get("namespace"):
                    wanted.setdefault(str(place), where)
        for name, where in sorted(wanted.items()):
            if self._prefix or (name not in BUILT_IN_NAMESPACES and name not in own):
                yield Placed(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._prefix + name}}, where
                )

    def _plain(self) -> Iterator[Change]:
        for _, where, event in self._events():
            at_s = float(event.ts - self._began)
            for document in event.applied_objs:
                yield _change(at_s, "update", document, where)
            for document in event.deleted_objs:
                yield _change(at_s, "delete", document, where)

    def _changes(self) -> Iterator[Change]:
        waiting: list[Change] = []  # unrolled pods whose time has not come
        latest = 0.0
        for at_s, where, event in self._events():
            while waiting and waiting[0].at_s <= at_s:
                yield waiting.pop(0)
            latest = at_s
            for document in event.applied_objs:
                for change in self._on_applied(at_s, document, where, event.ts):
                    if change.at_s > at_s:
                        waiting.append(change)
                    else:
                        yield change
            for document in event.deleted_objs:
                if (owner := self._owner(document)) in self._unrolled:
                    waiting = [each for each in waiting if each.name not in self._unrolled[owner]]
                yield from self._on_deleted(at_s, document, where)
            waiting.sort(key=lambda change: change.at_s)
        for change in waiting:
            if self._until is None or change.at_s < self._until:
                yield change
                latest = change.at_s
        if self._until is not None and latest < self._until:
            # As SimKube's empty last event: the replay lasts as long as it was cut to.
            mark = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
            yield _change(self._until, "update", mark, f"{self._file}:duration")

    def _owner(self, document: Document) -> tuple[str, str]:
        metadata = metadata_of(document)
        place = str(metadata.get("namespace") or "")
        return gvk_of(document), f"{place}/{metadata.get('name')}" if place else str(metadata.get("name"))

    def _on_applied(self, at_s: float, document: Document, where: str, ts: int) -> Iterator[Change]:
        owner, paths = self._owner(document), self._trace.paths(gvk_of(document))
        if not isinstance(metadata_of(document).get("name"), str):
            raise Refused(f"{where}: {owner[0]}: metadata.name: want a text, not nothing")
        if resource_of_kind(str(document.get("apiVersion")), str(document.get("kind"))) is None:
            if self._is_unrolled and paths:
                yield from self._unroll(at_s, document, where, owner, paths)
                return
            hint = "; --unroll makes bare pods of them" if paths else ""
            self._leave(f"objects of {owner[0]}, a kind that the mesh does not serve{hint}")
            return
        new_document = {name: value for name, value in document.items() if name != "status" or owner[0] == "v1.Node"}
        new_document["metadata"] = {**metadata_of(document)}
        if self._prefix and new_document["metadata"].get("namespace"):
            new_document["metadata"]["namespace"] = self._prefix + str(new_document["metadata"]["namespace"])
        bucket = self._trace.bucket(owner, ts)
        lives = self._trace.lives_of(owner, bucket)
        if lives and owner[0] == "v1.Pod":
            annotations = {**(new_document["metadata"].get("annotations") or {}), RUN: run_of(*self._span(lives[0]))}
            new_document["metadata"]["annotations"] = annotations
        elif lives:
            new_document = copy.deepcopy(new_document)
            for path in paths:
                _mark(new_document, path, f"{owner[0]} {owner[1]} {bucket}".rstrip())
        change = _change(at_s, "update", new_document, where)
        if (at := (change.resource, change.key)) not in self._seen:
            self._seen.add(at)
            change = _change(at_s, "create", new_document, where)
        yield change

    def _on_deleted(self, at_s: float, document: Document, where: str) -> Iterator[Change]:
        owner = self._owner(document)
        place = str(metadata_of(document).get("namespace") or "")
        place = self._prefix + place if place else ""
        for name in self._unrolled.pop(owner, ()):
            yield Change(at_s, "delete", "pods", place, name, where=where)
        if resource_of_kind(str(document.get("apiVersion")), str(document.get("kind"))) is None:
            return
        moved = {**document, "metadata": {**metadata_of(document), **({"namespace": place} if place else {})}}
        change = _change(at_s, "delete", moved, where)
        self._seen.discard((change.resource, change.key))
        yield change

    def _unroll(
        self, at_s: float, document: Document, where: str, owner: tuple[str, str], paths: tuple[str, ...]
    ) -> Iterator[Change]:
        """Yield bare pods, one a lifecycle, each when its lifecycle began; a group of lifecycles has a template."""
        if owner in self._unrolled:
            return  # another version of an owner whose pods are known already
        groups = sorted(
            self._trace.lives.get(owner, {}).values(), key=lambda lives: lives[0].start or 0 if lives else 0
        )
        templates = [pod_template for path in paths if isinstance(pod_template := _at(document, path), dict)]
        names: list[str] = []
        place = str(metadata_of(document).get("namespace") or "default")
        for number, lives in enumerate(groups if templates else ()):
            template = templates[number % len(templates)]
            for life in lives:
                start, end = self._span(life)
                name = f"{metadata_of(document)['name']}-{len(names)}"
                names.append(name)
                given = metadata_of(template)
                pod: Document = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": name,
                        "namespace": self._prefix + place,
                        "labels": given.get("labels") or {},
                        "annotations": {**(given.get("annotations") or {}), RUN: run_of(start, end)},
                    },
                    "spec": {**(template.get("spec") or {}), "restartPolicy": "Never"},
                }
                yield _change(max(at_s, start), "create", pod, where)
                if sum(map(len, self._unrolled.values())) + len(names) > UNROLLED_MAX:
                    raise Refused(f"{where}: {owner[0]} {owner[1]}: unrolls to more than {UNROLLED_MAX:,} pods")
        self._unrolled[owner] = names
        self._notes[f"bare pods made of {owner[0]}"] = self._notes.get(f"bare pods made of {owner[0]}", 0) + len(names)


def _change(at_s: float, method: Any, document: Document, where: str) -> Change:
    built_in = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    plural = f"{str(document.get('kind') or '').lower()}s"
    resource = built_in.name if built_in is not None else f"{plural}.{group}" if group else plural
    metadata = metadata_of(document)
    body = None if method == "delete" else document
    return Change(
        at_s, method, resource, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), body, "", where
    )


def _split(name: str) -> tuple[str, str]:
    place, sign, rest = name.partition("/")
    return (place, rest) if sign else ("", name)


def _at(document: Document, path: str) -> Any:
    found: Any = document
    for word in filter(None, path.split("/")):
        found = found.get(word) if isinstance(found, dict) else None
    return found


def _mark(document: Document, path: str, owner: str) -> None:
    """Mark a template with whose pods it makes, and hold these at the gate."""
    template = _at(document, path)
    if not isinstance(template, dict):
        return
    metadata = template["metadata"] = {**(template.get("metadata") or {})}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), LIFECYCLE: owner}
    spec = template["spec"] = {**(template.get("spec") or {})}
    spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": GATE}]


def _rewrite(source: Source, file: BinaryIO, edit: Edit, rename: Rename | None = None, shift_s: float = 0.0) -> None:
    with source.open() as opened:
        trace = decode(_content(opened), source.file)
    shift = int(shift_s)
    events: list[msgspec.Raw] = []
    began: int | None = None
    for event in trace.decode_events(source.file):
        began = event.ts if began is None else began
        at_s = float(event.ts - began)
        applied = [edit(at_s, each) for each in event.applied_objs]
        deleted = [edit(at_s, each, is_deleted=True) for each in event.deleted_objs]
        events.append(
            raw(Event(event.ts + shift, [e for e in applied if e is not None], [e for e in deleted if e is not None]))
        )
    trace.events = events
    if rename is not None:
        trace = _rename_trace(trace, rename, shift)
    file.write(encode(trace))


def _rename_trace(trace: Trace, rename: Rename, shift: int) -> Trace:
    """Return the trace with other names and times in its index; measurements, which name containers, are gone."""

    def name_of(gvk: str, name: str) -> str:
        return str(rename(gvk.rpartition(".")[2], Key(*_split(name))))

    def life(each: Life) -> Life:
        start, end = (None if at is None else at + shift for at in (each.start, each.end))
        return Life(start, end)

    index = {gvk: {name_of(gvk, each): code for each, code in names.items()} for gvk, names in trace.index.items()}
    lives = {
        (gvk, name_of(gvk, name)): {
            key if trace.version == 2 else str(int(key) + shift): [life(each) for each in group]
            for key, group in groups.items()
        }
        for (gvk, name), groups in trace.lives.items()
    }
    return Trace(trace.version, trace.config, trace.events, index, lives)


# Writing


_TRACKED: Final = ("apps/v1.DaemonSet", "apps/v1.Deployment", "apps/v1.StatefulSet", "batch/v1.CronJob", "batch/v1.Job")
_CLEARED: Final = ("uid", "resourceVersion", "managedFields", "generation", "creationTimestamp", "selfLink")


class _Writer:
    """A writer of a trace of version 2: owners without an owner, pods without an owner, and how long pods ran.

    `_pods`: for each pod its owner, the hash of its spec, and the index of its life; `_owners`: for each owned
    object its owner, by uid.
    """

    def __init__(self, file: BinaryIO, began_wall_s: float) -> None:
        self._file, self._began = file, int(began_wall_s)
        self._events: dict[int, Event] = {0: Event(self._began, [], [])}
        self._index: dict[str, dict[str, int]] = {}
        self._owners: dict[str, tuple[str, str, str]] = {}
        self._pods: dict[Key, tuple[tuple[str, str], str, int]] = {}
        self._lives: dict[tuple[str, str], dict[str, list[Life]]] = {}
        self._objects: dict[tuple[str, Key], Document] = {}

    def put(self, document: Document) -> None:
        """Write an object of the snapshot."""
        self._apply(0.0, document)

    def change(self, change: Change) -> None:
        """Write a change of an object."""
        if change.method == "delete":
            self._delete(change)
        elif change.document is not None:
            self._apply(change.at_s, change.document)

    def close(self) -> None:
        """Write the file: lifecycles stand behind the events."""
        config = Config({gvk: Tracked(track_lifecycle=True) for gvk in (*_TRACKED, "v1.Pod")})
        for gvk, tracked in config.tracked_objects.items():
            tracked.pod_spec_template_paths = list(TEMPLATES[gvk])
        events = [raw(event) for _, event in sorted(self._events.items())]
        self._file.write(encode(Trace(2, config, events, self._index, self._lives)))

    def _event(self, at_s: float) -> Event:
        second = int(at_s)
        return self._events.setdefault(second, Event(self._began + second, [], []))

    def _apply(self, at_s: float, document: Document) -> None:
        metadata = metadata_of(document)
        gvk, key = gvk_of(document), Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if owner is not None:
            self._owners[str(metadata.get("uid") or "")] = (
                f"{owner.get('apiVersion')}.{owner.get('kind')}",
                f"{key.namespace}/{owner.get('name')}",
                str(owner.get("uid") or ""),
            )
        if gvk == "v1.Pod":
            self._live(key, document)
        if owner is not None or (gvk not in _TRACKED and gvk != "v1.Pod"):
            return
        kept = {name: value for name, value in metadata.items() if name not in _CLEARED}
        bare = {**{name: value for name, value in document.items() if name != "status"}, "metadata": kept}
        if gvk == "v1.Pod":
            bare["spec"] = {name: value for name, value in bare.get("spec", {}).items() if name != "nodeName"}
        if self._objects.get((gvk, key)) == bare:
            return
        self._objects[gvk, key] = bare
        self._index.setdefault(gvk, {})[str(key)] = stable_hash(bare.get("spec"))
        self._event(at_s).applied_objs.append(bare)

    def _delete(self, change: Change) -> None:
        if change.resource == "pods" and change.key in self._pods:
            owner, group, at = self._pods.pop(change.key)
            life = self._lives[owner][group][at]
            if life.start is not None and life.end is None:
                self._lives[owner][group][at] = Life(life.start, self._began + int(change.at_s))
        gvk = f"{api_version_of(change.resource)}.{kind_of(change.resource)}"
        gone = self._objects.pop((gvk, change.key), None)
        if gone is not None:
            names = ("name", "namespace") if change.namespace else ("name",)
            metadata = {name: metadata_of(gone).get(name) for name in names}
            self._event(change.at_s).deleted_objs.append({**gone, "metadata": metadata})

    def _live(self, key: Key, document: Document) -> None:
        metadata = metadata_of(document)
        owner = ("v1.Pod", str(key))
        above = self._owners.get(str(metadata.get("uid") or ""))
        while above is not None:
            owner = (above[0], above[1])
            above = self._owners.get(above[2])
        life = _life_of(document)
        if key not in self._pods:
            group = str(stable_hash({k: v for k, v in (document.get("spec") or {}).items() if k != "nodeName"}))
            lives = self._lives.setdefault(owner, {}).setdefault(group, [])
            self._pods[key] = (owner, group, len(lives))
            lives.append(life)
            return
        owner, group, at = self._pods[key]
        before = self._lives[owner][group][at]
        if before.start is None or (before.end is None and life.end is not None):
            self._lives[owner][group][at] = Life(before.start if before.start is not None else life.start, life.end)


def _life_of(document: Document) -> Life:
    """Return a pod's run: from its first container's start to its last one's end, once all have ended."""
    statuses = (document.get("status") or {}).get("containerStatuses") or ()
    starts, ends = [], []
    for status in statuses:
        state = status.get("state") or {}
        begun = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        ended = (state.get("terminated") or {}).get("finishedAt")
        try:
            starts += [nanoseconds_of(begun) // NANOSECOND] if begun else []
            ends += [nanoseconds_of(ended) // NANOSECOND] if ended else []
        except ValueError:
            continue
    is_over = bool(ends) and len(ends) == len((document.get("spec") or {}).get("containers") or ())
    return Life(min(starts, default=None), max(ends) if is_over and starts else None)


def stable_hash(value: Any) -> int:
    """Return 64 bits of a value's JSON with sorted keys: equal on every machine. It is keplab's, not SimKube's."""
    text = msgspec.json.encode(value, order="sorted")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _write(file: BinaryIO, began_wall_s: float) -> Writer:
    return _Writer(file, began_wall_s)


FORMAT = Format(
    name="sktrace",
    title="a trace of SimKube",
    fits=looks_so,
    read=_read,
    write=_write,
    has_changes=True,
    options=OPTIONS,
    rewrite=_rewrite,
    is_virtual=True,
)
