"""How long pods of a trace run: the words that a kubelet understands, and which pod lives as which. Pure.

The k-th pod of an owner lives as lifecycle `k mod n`. Source: simulator 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.exchange.stream import Runtime

LIFECYCLE: Final = "keplab.dev/lifecycle"
"""On a template: whose lifecycles its pods live as, `KIND NAMESPACE/NAME [MOMENT]`."""
SEQUENCE: Final = "keplab.dev/pod-sequence-number"
"""On a pod: the number of the pod among those of its owner, from 0."""
GATE: Final = "keplab.dev/lifecycle"
"""The scheduling gate at which a pod waits for its run time."""


def run_of(start: float, end: float | None) -> str:
    """Return what a container does that runs so long."""
    return "forever" if end is None else f"exit 0 after {seconds_text(max(end - start, 0.0))}"


def seconds_text(seconds: float) -> str:
    """Return seconds as the annotation has them: `30s`, `0.5s`."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


@dataclass
class Lifecycles:
    """Which pod lives as which lifecycle; it counts the pods that were asked about."""

    lives: dict[str, tuple[tuple[float, float | None], ...]]
    counts: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(runtimes: Sequence[Runtime]) -> Lifecycles:
        """Return those of a stream."""
        found: dict[str, tuple[tuple[float, float | None], ...]] = {}
        for each in runtimes:
            kind, namespace, name = each.owner
            place = f"{namespace}/{name}" if namespace else name
            found[f"{kind} {place} {each.template}".rstrip()] = each.lives
        return Lifecycles(found)

    def next(self, owner: str) -> tuple[int, tuple[float, float | None] | None]:
        """Return the number of the owner's next pod and its life; None: nothing is known of it."""
        number = self.counts.get(owner, 0)
        self.counts[owner] = number + 1
        lives = self.lives.get(owner, ())
        return number, lives[number % len(lives)] if lives else None
