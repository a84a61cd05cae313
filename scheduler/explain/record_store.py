"""The memory behind the decision record: every attempt of each pod with its answers.

Nothing of an attempt is cut here. Long texts are kept compressed, and texts equal to those of the attempt
before are kept once; above `KEPT_MAX_BYTES` the pods with the oldest attempts are forgotten.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from scheduler.explain.record_rules import Answers, RecordRules, add_answer, bind_failed
from scheduler.explain.record_text import (
    ANNOTATIONS_MAX_BYTES,
    HISTORY,
    PREFIX,
    TRUNCATED,
    annotations,
    fitting,
    go_json,
)
from scheduler.framework.status import Status
from services.api.lru import LRU

RECORDS_MAX: Final = 4096
KEPT_MAX_BYTES: Final = 256 * 1024 * 1024
COMPRESSED_FROM: Final = 4096
ATTEMPT_BYTES: Final = 128
"""Bytes of an attempt besides its texts."""
EXTENDER_KEYS: Final = ("filter", "prioritize", "preempt", "bind")


@dataclass(slots=True)
class _Text:
    """A text, compressed when it is long."""

    packed: bytes
    is_compressed: bool

    @classmethod
    def of(cls, text: str) -> "_Text":
        """Return it kept."""
        encoded = text.encode()
        if len(encoded) < COMPRESSED_FROM:
            return cls(encoded, False)
        return cls(zlib.compress(encoded, 1), True)

    @property
    def text(self) -> str:
        """What was kept."""
        return (zlib.decompress(self.packed) if self.is_compressed else self.packed).decode()


@dataclass(slots=True)
class _Attempt:
    """One attempt. `big`: final content; `small`: content to which plugins still add.

    `extenders`: answers by verb and URL. `custom`: texts by annotation key. `ended`: `small` and `custom` as
    they were at the end, None while it goes on.
    """

    big: dict[str, _Text]
    small: Answers
    extenders: dict[str, dict[str, _Text]]
    custom: dict[str, str]
    ended: _Text | None = None

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.ended is None

    def end(self, before: "_Attempt | None") -> int:
        """Take in nothing more. `before`: the attempt whose texts are shared where they are the same. Return how many
        bytes are kept for it."""
        ended = _Text.of(go_json(self._rest()))
        self.small, self.custom = {}, {}
        if before is not None and before.ended == ended:
            self.ended = before.ended
            return 0
        self.ended = ended
        return len(ended.packed)

    def _rest(self) -> dict[str, str]:
        """Return annotation key to text of `small` and `custom`."""
        if self.ended is not None:
            return msgspec.json.decode(self.ended.text, type=dict[str, str])
        own = {PREFIX + name: v if isinstance(v, str) else go_json(v) for name, v in self.small.items()}
        return {**self.custom, **own}

    def keys(self) -> set[str]:
        """Return the annotation keys."""
        verbs = EXTENDER_KEYS if self.extenders else ()
        return {*(PREFIX + name for name in self.big), *self._rest(), *map(_extender_key, verbs)}

    def texts(self) -> dict[str, str]:
        """Return annotation key to text."""
        texts = {**self._rest(), **{PREFIX + name: kept.text for name, kept in self.big.items()}}
        if self.extenders:
            for verb in EXTENDER_KEYS:
                answers = {url: msgspec.Raw(kept.text) for url, kept in self.extenders.get(verb, {}).items()}
                texts[_extender_key(verb)] = go_json(answers)
        return texts


def _extender_key(verb: str) -> str:
    return f"{PREFIX}extender-{verb}-result"


@dataclass(slots=True)
class _PodRecord:
    """A pod's attempts, and the answers before its current cycle ended. `size`: bytes that are kept of the pod."""

    attempts: list[_Attempt] = field(default_factory=list)
    extenders: dict[str, dict[str, _Text]] = field(default_factory=dict)
    custom: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def current(self) -> _Attempt | None:
        """Return the attempt that goes on."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].is_open else None


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """Records the answers after a choice, until the attempt is closed."""

    attempt: _Attempt
    rules: RecordRules

    def on_selected(self, node: str) -> None:
        """Record the chosen node before Reserve."""
        if self.attempt.is_open:
            self.attempt.small["selected-node"] = node

    def add_answer(self, point: str, plugin: str, status: Status, timeout_s: float = 0.0) -> None:
        """Add a plugin's answer after the choice."""
        if self.attempt.is_open:
            add_answer(self.attempt.small, self.rules, point, plugin, status, timeout_s)

    def bind_failed(self, message: str) -> None:
        """Record the failed bind as the answer of the Bind plugin."""
        if self.attempt.is_open:
            bind_failed(self.attempt.small, message)


class SimulatorRecords:
    """Every attempt of each pod, by uid."""

    def __init__(self, rules: RecordRules | None = None) -> None:
        self.rules = rules or RecordRules()
        self._known: LRU[str, _PodRecord] = LRU(RECORDS_MAX)
        self._size = 0

    def keep(self, uid: str, answers: Answers) -> None:
        """Begin an attempt whose cycle just ended with these answers; later answers belong to it until `close`."""
        self.close(uid)
        known = self._of(uid)
        last = known.attempts[-1] if known.attempts else None
        big: dict[str, _Text] = {}
        small: Answers = {}
        for name, value in answers.items():
            if not isinstance(value, dict) or not any(isinstance(each, dict) for each in value.values()):
                small[name] = value
                continue
            kept = _Text.of(go_json(value))
            before = last.big.get(name) if last is not None else None
            big[name] = before if before == kept else kept
            if big[name] is kept:
                self._add(known, len(kept.packed))
        if last is not None and big == last.big:
            big = last.big
        known.attempts.append(_Attempt(big, small, known.extenders, known.custom))
        known.extenders, known.custom = {}, {}
        self._add(known, ATTEMPT_BYTES)
        self._put(uid, known)

    def of(self, uid: str) -> "OpenRecord":
        """Return the recorder of the attempt that was begun last."""
        return OpenRecord(self._of(uid).attempts[-1], self.rules)

    def add_extender_answer(self, uid: str, verb: str, url: str, answer: Any) -> None:
        """Add an extender's answer: to the present cycle, or, for a bind, to the attempt before it."""
        known = self._of(uid)
        current = known.current() if verb == "bind" else None
        kept = _Text.of(go_json(answer))
        (current or known).extenders.setdefault(verb, {})[url] = kept
        self._add(known, len(kept.packed))
        self._put(uid, known)

    def custom(self, uid: str, key: str, text: str) -> None:
        """Add a text under its own key, to the open attempt or else to the present cycle."""
        known = self._of(uid)
        (known.current() or known).custom[key] = text
        self._put(uid, known)

    def close(self, uid: str) -> None:
        """End the pod's attempt, if one is open."""
        known = self._known.get(uid)
        current = known.current() if known is not None else None
        if known is not None and current is not None:
            self._add(known, current.end(known.attempts[-2] if len(known.attempts) > 1 else None))

    def is_known(self, uid: str) -> bool:
        """Whether there is a recorded attempt of the pod."""
        known = self._known.get(uid)
        return known is not None and bool(known.attempts)

    def keys(self, uid: str) -> set[str]:
        """Return the annotation keys under which the pod's attempts are written."""
        known = self._known.get(uid)
        return {HISTORY, TRUNCATED} | (known.attempts[-1].keys() if known is not None and known.attempts else set())

    def whole(self, uid: str) -> dict[str, str]:
        """Return all annotations of the pod, however large; {} for a pod never tried."""
        return annotations(self._texts(uid))

    def fitting(self, uid: str, budget: int = ANNOTATIONS_MAX_BYTES) -> dict[str, str]:
        """Return the annotations that the API server accepts, if the pod's other annotations leave `budget` bytes."""
        known = self._known.get(uid)
        if known is None or not known.attempts:
            return {}
        older = (each.texts() for each in reversed(known.attempts[:-1]))
        return fitting(known.attempts[-1].texts(), older, len(known.attempts), budget)

    def _texts(self, uid: str) -> list[dict[str, str]]:
        known = self._known.get(uid)
        return [each.texts() for each in known.attempts] if known is not None else []

    def _of(self, uid: str) -> _PodRecord:
        return self._known.get(uid) or _PodRecord()

    def _add(self, known: _PodRecord, size: int) -> None:
        known.size += size
        self._size += size

    def _put(self, uid: str, known: _PodRecord) -> None:
        """Have the pod be the newest, and forget the oldest that are too many or too large."""
        gone = self._known.put(uid, known)
        if gone is not None:
            self._size -= gone[1].size
        while self._size > KEPT_MAX_BYTES and len(self._known) > 1:
            self._size -= self._known.popitem(last=False)[1].size
