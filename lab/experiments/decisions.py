"""The decisions of a run as a count and a digest, by which many runs are compared at once. Pure.

Decisions are read as `keplab diff` reads them: objects by role, times left out. So two arms that decide alike have one
digest, although their event logs differ in the switches that each process writes into its first line.
"""

import hashlib

from lab.scenarios.decisions.decision import Decisions
from services.telemetry.eventlog import Line


class DecisionsDigest:
    """Counts decisions and digests them in their order; `take` is shown each line of the event log."""

    def __init__(self) -> None:
        self.count = 0
        self._decisions = Decisions()
        self._digest = hashlib.sha256()

    def take(self, line: Line) -> None:
        """Count a line that is a decision."""
        if (found := self._decisions.of(line)) is not None:
            self.count += 1
            self._digest.update("\t".join((found.role, *found.what)).encode() + b"\n")

    @property
    def digest(self) -> str:
        """The digest of what was taken."""
        return self._digest.hexdigest()
