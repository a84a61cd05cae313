"""The decisions of a run: who was put where, and what its node said to that; a count and a digest. Pure.

Pods are named by role and times are left out, so two arms that decide alike have one digest although their logs differ
in the switches that each process writes into its first line."""

import hashlib
from collections.abc import Iterable
from typing import Final

from services.scenarios.measures.history import PodHistory
from services.telemetry.eventlog import Line

EVENTS: Final = frozenset(
    (
        "sched.attempt",
        "sched.gated",
        "sched.nominate",
        "sched.victim",
        "sched.bind_result",
        "kubelet.admit",
        "kubelet.reject",
        "kubelet.unbind_call",
        "kubelet.resize",
    )
)
_WORDS: Final = ("outcome", "plugin", "reason", "node", "message")


class Decisions:
    """Collects them; `take` is shown each line of the event log."""

    def __init__(self) -> None:
        self._taken: list[tuple[str, str, str, tuple[str, ...]]] = []

    def take(self, line: Line) -> None:
        """Keep a decision."""
        if line.ev in EVENTS and line.obj is not None:
            words = tuple(str(line.data.get(word, "")) for word in _WORDS)
            self._taken.append((line.ev, line.obj["uid"], line.node, words))

    def count_and_digest(self, pods: Iterable[PodHistory]) -> tuple[int, str]:
        """Return how many there are, and a digest of them in their order."""
        roles = {pod.uid: pod.role for pod in pods}
        names = {pod.name: pod.role for pod in pods}
        digest = hashlib.sha256()
        for event, uid, node, words in self._taken:
            shown = " ".join(names.get(word, word) for text in words for word in text.split(" "))
            digest.update(f"{event}\t{roles.get(uid, '')}\t{node}\t{shown}\n".encode())
        return len(self._taken), digest.hexdigest()
