"""One object's life by stages: what is next, when, and what follows once it was played. Pure.

A change of the object chooses anew and begins the delay anew, as in KWOK; while a stage is being played,
changes wait, and only the newest counts.
Source: kubernetes-sigs/kwok, `pkg/utils/lifecycle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubelet.stages.choice import Draws, choose, delay_s
from kubelet.stages.stage import Stage
from services.api.meta import Document

RETRY_MIN_S, RETRY_MAX_S = 1.0, 32.0
EARLY_S = 1e-6
"""A stage this close is due."""


class Turn(NamedTuple):
    """A stage to play now, for the object as it was when the stage was chosen."""

    stage: Stage
    document: Document


class Life:
    """What stages do to one object. Every method that may set something returns when to call `due`, or None."""

    def __init__(self, stages: Sequence[Stage], draws: Draws) -> None:
        self._stages, self._draws = stages, draws
        self._turn: Turn | None = None
        self._due_s = 0.0
        self._rv = ""
        self._is_playing = False
        self._newer: Document | None = None
        self._retry_s = RETRY_MIN_S

    def seen(self, document: Document, now: float, wall_s: float) -> float | None:
        """Take a state of the object; an equal version changes nothing."""
        if self._is_playing:
            self._newer = document
            return None
        rv = _version(document)
        if rv and rv == self._rv:
            return None
        self._rv = rv
        self._draws.count = 0
        stage = choose(self._stages, document, self._draws)
        if stage is None:
            self._turn = None
            return None
        self._turn = Turn(stage, document)
        self._due_s = now + delay_s(stage, document, wall_s, self._draws)
        return self._due_s

    def due(self, now: float) -> Turn | None:
        """Return the stage to play now; report with `played`."""
        if self._turn is None or self._is_playing or now + EARLY_S < self._due_s:
            return None
        self._is_playing = True
        return self._turn

    def played(self, now: float, wall_s: float, *, is_lost: bool = False) -> float | None:
        """The stage was played, or was refused for good; `is_lost`: try again, unless the object changed."""
        self._is_playing = False
        newer, self._newer = self._newer, None
        turn = self._turn
        if not is_lost:
            self._draws.turn += 1
        if newer is not None and _version(newer) != self._rv:
            self._retry_s = RETRY_MIN_S
            return self.seen(newer, now, wall_s)
        if is_lost:
            self._due_s = now + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
            return self._due_s
        self._retry_s = RETRY_MIN_S
        self._turn = None
        if turn is None or not turn.stage.is_immediate:
            return None
        # It changed nothing, so no change will be seen: choose again, but never without a delay, for ever.
        self._rv = ""
        due_s = self.seen(turn.document, now, wall_s)
        if due_s is not None and due_s <= now:
            self._turn = None
            return None
        return due_s


def _version(document: Document) -> str:
    return str((document.get("metadata") or {}).get("resourceVersion") or "")
