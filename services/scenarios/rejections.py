"""How long a workload waits after a node has refused one of its pods, until one runs in that pod's stead. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def waits_after_rejection(rejected_s: Iterable[float], running_s: Sequence[float]) -> list[float]:
    """Return the seconds from each rejection that was made good to the Running pod that did.

    Both are of pods of one workload. Each pod that comes to run makes good the oldest rejection that none has yet;
    the rejections of its own replacements, in a runaway, are part of that wait and no waits of their own.
    """
    waits: list[float] = []
    open_since = sorted(rejected_s)
    for at_s in sorted(running_s):
        if open_since and open_since[0] <= at_s:
            waits.append(at_s - open_since.pop(0))
    return waits
