"""Run times of a trace's pods: the kubelet's words for them, and which lifecycle a pod gets. Pure.

The k-th pod of an owner lives as lifecycle `k mod n`. Source: simulator 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.exchange.stream import Runtime

LIFECYCLE: Final = "keplab.dev/lifecycle"
"""Annotation on a template: the owner whose lifecycles its pods get, `KIND NAMESPACE/NAME [MOMENT]`."""
SEQUENCE: Final = "keplab.dev/pod-sequence-number"
"""Annotation on a pod: its number among the pods of its owner, from 0."""
GATE: Final = "keplab.dev/lifecycle"
"""The scheduling gate at which a pod waits for its run time."""


def run_of(start: float, end: float | None) -> str:
    """Return the annotation's text for a container that runs from `start` to `end`."""
    return "forever" if end is None else f"exit 0 after {seconds_text(max(end - start, 0.0))}"


def seconds_text(seconds: float) -> str:
    """Return seconds as the annotation writes them: `30s`, `0.5s`."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


@dataclass
class Lifecycles:
    """Assignment of lifecycles to pods; it counts the pods of each owner."""

    lives: dict[str, tuple[tuple[float, float | None], ...]]
    counts: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(runtimes: Sequence[Runtime]) -> Lifecycles:
        """Return the lifecycles of a stream."""
        lives_by_owner: dict[str, tuple[tuple[float, float | None], ...]] = {}
        for runtime in runtimes:
            kind, namespace, name = runtime.owner
            place = f"{namespace}/{name}" if namespace else name
            lives_by_owner[f"{kind} {place} {runtime.template}".rstrip()] = runtime.lives
        return Lifecycles(lives_by_owner)

    def next(self, owner: str) -> tuple[int, tuple[float, float | None] | None]:
        """Return the number of the owner's next pod and its life; the life is None if nothing is known of it."""
        number = self.counts.get(owner, 0)
        self.counts[owner] = number + 1
        lives = self.lives.get(owner, ())
        return number, lives[number % len(lives)] if lives else None
