"""Time from a node's rejection of a pod until that pod, or a replacement, runs. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from services.telemetry.eventlog import Line


class Rejections:
    """Time of the first rejection of each pod by a kubelet, by uid; seconds of the log's own clock.

    The API shows it later or never: a pod that is deferred, or waits to be unbound, looks like any other.
    """

    events: Final = ("kubelet.reject",)

    def __init__(self) -> None:
        self.first_s: dict[str, float] = {}

    def take(self, line: Line) -> None:
        """Note a rejection."""
        if line.ev == "kubelet.reject" and line.obj is not None:
            self.first_s.setdefault(line.obj["uid"], line.mono_ns / 1e9)


class Fate(NamedTuple):
    """Times at which a pod of one workload was created, first rejected, first Running, and Failed or deleted;
    None: never.
    """

    created_s: float
    rejected_s: float | None
    running_s: float | None
    ended_s: float | None = None


def waits_after_rejection(fates: Iterable[Fate]) -> list[float]:
    """Return the seconds from each compensated rejection to the Running pod that compensates it, for one
    workload.

    A pod that was unbound and then runs compensates its own rejection. The rejection of a pod that did not
    survive is compensated by a replacement that was never rejected: the oldest rejection by the first
    replacement. Rejections of its other replacements, in a runaway, are part of that wait and not separate
    waits.
    """
    fates = list(fates)
    replaces = _replacements(fates)
    waits: list[float] = []
    lost: list[float] = []
    others: list[tuple[float, float]] = []
    for place, (created_s, rejected_s, running_s, _) in enumerate(fates):
        if rejected_s is None and running_s is not None:
            if place in replaces:
                others.append((running_s, created_s))
        elif rejected_s is not None and running_s is not None:
            waits.append(running_s - rejected_s)
        elif rejected_s is not None:
            lost.append(rejected_s)
    lost.sort()
    for running_s, created_s in sorted(others):
        if lost and lost[0] <= created_s:
            waits.append(running_s - lost.pop(0))
    return waits


def _replacements(fates: list[Fate]) -> set[int]:
    """Return the places of pods made while fewer were left than there once were: others made the workload grow."""
    changes = [(fate.created_s, 1, place) for place, fate in enumerate(fates)]
    for place, fate in enumerate(fates):
        if fate.ended_s is not None and fate.running_s is None:
            changes.append((fate.ended_s, 0, place))
    places: set[int] = set()
    left = most = 0
    for _, is_made, place in sorted(changes):
        left += 1 if is_made else -1
        if is_made and left <= most:
            places.add(place)
        most = max(most, left)
    return places
