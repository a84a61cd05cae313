"""How long it takes, after a node has refused a pod, until that pod runs, or another in its stead. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from services.telemetry.eventlog import Line


class Rejections:
    """When a kubelet first said no to each pod, by uid; seconds of the log's own clock.

    The API tells of it later, or never: a pod that is deferred, or waits to be unbound, looks as any other.
    """

    def __init__(self) -> None:
        self.first_s: dict[str, float] = {}

    def take(self, line: Line) -> None:
        """Note a rejection."""
        if line.ev == "kubelet.reject" and line.obj is not None:
            self.first_s.setdefault(line.obj["uid"], line.mono_ns / 1e9)


class Fate(NamedTuple):
    """When a pod of one workload was created, first rejected and first Running; None: never."""

    created_s: float
    rejected_s: float | None
    running_s: float | None


def waits_after_rejection(fates: Iterable[Fate]) -> list[float]:
    """Return the seconds from each rejection that was made good to the Running pod that did, for one workload.

    A pod that was given back and runs makes good its own. A pod that did not survive is made good by one created
    after it and never rejected: the oldest by the first. The rejections of its other replacements, in a runaway, are
    part of that wait and no waits of their own.
    """
    waits: list[float] = []
    lost: list[float] = []
    others: list[tuple[float, float]] = []
    for created_s, rejected_s, running_s in fates:
        if rejected_s is None and running_s is not None:
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
