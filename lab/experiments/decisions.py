"""The decisions of a run as a count and a digest, with which many runs are compared at once. Pure.

Decisions are those of `keplab diff`: objects by role, without times. So two arms with the same decisions
have the same digest, although their event logs differ in the switches that each process writes into its
first line.
"""

import hashlib

from lab.scenarios.decisions.decision import Decisions
from services.telemetry.eventlog import Line


class DecisionsDigest:
    """Count and digest of decisions in their order; `take` must get each line of the event log."""

    def __init__(self) -> None:
        self.count = 0
        self._decisions = Decisions()
        self._digest = hashlib.sha256()

    def take(self, line: Line) -> None:
        """Count and digest the line, if it is a decision."""
        if (found := self._decisions.of(line)) is not None:
            self.count += 1
            self._digest.update("\t".join((found.role, *found.what)).encode() + b"\n")

    @property
    def digest(self) -> str:
        """SHA-256 of the decisions so far, in hexadecimal."""
        return self._digest.hexdigest()
