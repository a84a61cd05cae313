"""SimKube's trace files: MessagePack, versions 2 and 3; decoding, encoding and lookup. Pure.

Version 2 keeps lifecycles by owner, a pair in an array, and by a hash of the pod's spec that only SimKube can
compute. Version 3 keeps them by owner and by the time at which the owner got its then current state.
SimKube's own: acrlabs/simkube, `sk-core/src/trace`. Source: simulator 6.1.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE
from services.api.meta import Document

VERSIONS: Final = (2, 3)
TEMPLATES: Final = {
    "batch/v1.CronJob": ("/spec/jobTemplate/spec/template",),
    "apps/v1.DaemonSet": ("/spec/template",),
    "apps/v1.Deployment": ("/spec/template",),
    "batch/v1.Job": ("/spec/template",),
    "apps/v1.ReplicaSet": ("/spec/template",),
    "apps/v1.StatefulSet": ("/spec/template",),
    "v1.Pod": ("",),
}
"""JSON pointers of the pod templates in built-in kinds."""


class Tracked(msgspec.Struct, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Recorder's configuration of a kind: JSON pointers of its pod templates, whether run times were recorded, and
    whether objects with owners were left out; the last is kept for SimKube.
    """

    pod_spec_template_paths: list[str] | None = None
    track_lifecycle: bool = False
    skip_owned: bool = False


class Config(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The recorder's configuration, by `group/version.Kind`."""

    tracked_objects: dict[str, Tracked]


class Event(msgspec.Struct):
    """Objects applied and deleted in one second, `ts` seconds since the epoch."""

    ts: int
    applied_objs: list[Document]
    deleted_objs: list[Document]


class Life(msgspec.Struct, frozen=True):
    """The run of a pod in seconds since the epoch; without a start it never ran, without an end it still ran."""

    start: int | None = None
    end: int | None = None
    metrics: dict[str, Any] = {}
    """Measurements of the pod in version 3; they are kept, and not used."""


Lives = dict[tuple[str, str], dict[str, list[Life]]]
"""Lives by owner, `(kind with group, namespace/name)`, and by hash (version 2) or time (version 3), as text."""


class Trace(msgspec.Struct):
    """A trace. `events`: not decoded yet; `decode_events` yields them. `index`: in version 2 the hash of each
    object.
    """

    version: int
    config: Config
    events: list[msgspec.Raw]
    index: dict[str, dict[str, int]]
    lives: Lives

    def decode_events(self, file: str) -> Iterator[Event]:
        """Yield the events in order. Raises: Refused, if one is malformed."""
        for number, raw in enumerate(self.events, 1):
            try:
                yield _EVENT.decode(raw)
            except (*UNREADABLE, RecursionError) as error:
                raise Refused(f"{file}:event {number}: {error}") from None

    def paths(self, gvk: str) -> tuple[str, ...]:
        """Return the paths of the pod templates in objects of a kind; () if the kind has none."""
        tracked = self.config.tracked_objects.get(gvk)
        if tracked is not None and tracked.pod_spec_template_paths:
            # A ReplicaSet's is written `/spec` by some releases, which is where its own spec is.
            return TEMPLATES[gvk] if gvk == "apps/v1.ReplicaSet" else tuple(tracked.pod_spec_template_paths)
        return TEMPLATES.get(gvk, ())

    def bucket(self, owner: tuple[str, str], ts: int) -> str:
        """Return the key of the lives of pods that an owner makes in its state at a time; empty string for any."""
        if self.version == 2:
            return ""
        moments = [int(each) for each in self.lives.get(owner, {}) if int(each) <= ts]
        return str(max(moments)) if moments else ""

    def lives_of(self, owner: tuple[str, str], bucket: str) -> list[Life]:
        """Return the lives of an owner's pods in order of their start; in version 2 those of all hashes."""
        groups = self.lives.get(owner, {})
        if self.version != 2:
            return groups.get(bucket, [])
        return sorted((each for group in groups.values() for each in group), key=lambda life: life.start or 0)


_EVENT = msgspec.msgpack.Decoder(Event)
_State = dict[str, Any] | str


class _Any(msgspec.Struct):
    version: int


class _Two(msgspec.Struct):
    version: int
    config: Config
    events: list[msgspec.Raw]
    index: dict[str, dict[str, int]]
    pod_lifecycles: dict[tuple[str, str], dict[int, list[_State]]] = {}


class _Sample(msgspec.Struct, omit_defaults=True):
    lifecycle: _State
    metrics: dict[str, Any] = {}


class _Three(msgspec.Struct):
    version: int
    config: Config
    events: list[msgspec.Raw]
    index: dict[str, dict[str, dict[str, list[_Sample]]]]


def looks_so(head: bytes) -> bool:
    """Return whether a file begins like a trace: a map, or in old versions an array, that names `trackedObjects`."""
    return bool(head) and (0x80 <= head[0] <= 0x9F or head[0] in (0xDC, 0xDD, 0xDE, 0xDF)) and b"trackedObjects" in head


def decode(data: bytes | mmap.mmap, file: str) -> Trace:
    """Return the trace. Raises: Refused, if it is torn, of another version, or not in the form of its version."""
    if 0x90 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD):
        raise Refused(f"{file}: {_advice(1)}")
    try:
        version = msgspec.msgpack.decode(data, type=_Any).version
        if version not in VERSIONS:
            raise Refused(f"{file}: {_advice(version)}")
        if version == 2:
            two = msgspec.msgpack.decode(data, type=_Two)
            lives: Lives = {
                owner: {str(key): [_life(each, file) for each in states] for key, states in groups.items()}
                for owner, groups in two.pod_lifecycles.items()
            }
            return Trace(2, two.config, two.events, two.index, lives)
        three = msgspec.msgpack.decode(data, type=_Three)
    except (*UNREADABLE, RecursionError) as error:
        raise Refused(f"{file}: a torn or malformed trace of SimKube: {error}") from None
    lives = {}
    for gvk, owners in three.index.items():
        for name, moments in owners.items():
            if bad := next((each for each in moments if not re.fullmatch(r"-?\d{1,18}", each)), None):
                raise Refused(f"{file}: index of {gvk} {name}: {bad!r}: want seconds since the epoch")
            lives[gvk, name] = {
                moment: [msgspec.structs.replace(_life(each.lifecycle, file), metrics=each.metrics) for each in samples]
                for moment, samples in moments.items()
            }
    return Trace(3, three.config, three.events, {}, lives)


def _advice(version: int) -> str:
    reader = "SimKube up to 1.1.1 reads it" if version < 2 else f"want one of {', '.join(map(str, VERSIONS))}"
    return f"a trace of version {version}: {reader}; record it again with a later SimKube"


def _life(state: _State, file: str) -> Life:
    match state:
        case "Empty":
            return Life()
        case {"Running": int(start)}:
            return Life(start)
        case {"Finished": [int(start), int(end)]}:
            return Life(start, end)
        case {"Running": {"start_ts": int(start)}}:
            return Life(start)
        case {"Finished": {"start_ts": int(start), "end_ts": int(end)}}:
            return Life(start, end)
    text = msgspec.json.encode(state).decode()
    raise Refused(f"{file}: lifecycle {text}: want Empty, {{Running: START}} or {{Finished: [START, END]}}")


def encode(trace: Trace) -> bytes:
    """Return the bytes of a trace, in the form of its version."""
    whole: _Two | _Three
    if trace.version == 2:
        lives = {
            owner: {int(key): [_state(each) for each in group] for key, group in groups.items()}
            for owner, groups in trace.lives.items()
        }
        whole = _Two(2, trace.config, trace.events, trace.index, lives)
    else:
        index: dict[str, dict[str, dict[str, list[_Sample]]]] = {}
        for (gvk, name), groups in trace.lives.items():
            samples = {key: [_Sample(_state(each), each.metrics) for each in group] for key, group in groups.items()}
            index.setdefault(gvk, {})[name] = samples
        whole = _Three(3, trace.config, trace.events, index)
    return msgspec.msgpack.encode(whole)


def _state(life: Life) -> _State:
    if life.start is None:
        return "Empty"
    return {"Running": life.start} if life.end is None else {"Finished": [life.start, life.end]}


def raw(event: Event) -> msgspec.Raw:
    """Return an event in its encoded form."""
    return msgspec.Raw(msgspec.msgpack.encode(event))


def gvk_of(document: Document) -> str:
    """Return `group/version.Kind` of an object, `v1.Pod` for core."""
    return f"{document.get('apiVersion')}.{document.get('kind')}"
