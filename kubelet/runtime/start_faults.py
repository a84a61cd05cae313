"""What goes wrong while a pod starts, as configured: volumes, sandbox, containers; of a pod, or of a whole node. Pure.

A clause is `STAGE fails`, then if wanted how often, for how long and how likely:

    attach fails for 5m             the volume is not attached; every try takes 2 min 3 s
    mount fails 2 times             nor mounted
    prepare fails 5 times           the driver of the pod's devices does not prepare them (pods with claims only)
    sandbox fails chance 0.3        the sandbox, or its network, is not made; tried again after 10 s to 15 s
    config fails                    what the container's configuration names is not there
    create fails                    the runtime refuses to create the container
    start fails 3 times for 1m      it creates the container and cannot start it

Durations are counted from the pod's first try of that stage; for a node, from when it was configured.
Source: kubelet 3.3, 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kubelet.runtime.durations import duration_s

ATTACH, MOUNT, SANDBOX, CONFIG, CREATE, START = "attach", "mount", "sandbox", "config", "create", "start"
PREPARE = "prepare"
NETWORK: Final = "network"
"""A node whose network does not work at all: no clause of its own, see `node_health`."""
NETWORK_DOWN: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)
POD_STAGES: Final = (ATTACH, MOUNT, PREPARE, SANDBOX)
CONTAINER_STAGES: Final = (CONFIG, CREATE, START)
STAGES: Final = (*POD_STAGES, *CONTAINER_STAGES)
FORM: Final = "want: STAGE fails [N times] [for DURATION] [chance 0..1], STAGE one of " + ", ".join(STAGES)


class StartFault(msgspec.Struct, frozen=True):
    """One clause. `times` 0: always; `for_s` in seconds; `chance` that a try fails."""

    stage: str
    times: int = 0
    for_s: float = math.inf
    chance: float = 1.0


def parse_fault(words: Sequence[str]) -> StartFault:
    """Return the fault that a clause's words describe. Raises: ValueError."""
    stage, fails, *rest = [*words, "", ""][: max(len(words), 2)]
    if stage not in STAGES or fails != "fails":
        raise ValueError(f"{' '.join(words)!r}: {FORM}")
    times, for_s, chance = 0, math.inf, 1.0
    while rest:
        match rest:
            case [count, "times" | "time", *rest] if count.isdigit() and 0 < int(count) <= 1_000_000:
                times = int(count)
            case ["for", length, *rest]:
                for_s = duration_s(length)
            case ["chance", share, *rest] if _is_share(share):
                chance = float(share)
            case _:
                raise ValueError(f"{' '.join(words)!r}: {FORM}")
    return StartFault(stage, times, for_s, chance)


def _is_share(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and 0.0 <= float(text) <= 1.0


def parse_faults(text: str) -> tuple[StartFault, ...]:
    """Return the faults of clauses separated by `;`. Raises: ValueError naming the clause."""
    return tuple(parse_fault(clause.split()) for clause in text.split(";") if clause.strip())


class StartFaults:
    """Faults and how often each has struck. `since_s`: when they began; None: each at the first try of its stage."""

    def __init__(self, faults: Iterable[StartFault] = (), since_s: float | None = None) -> None:
        self._faults = tuple(dict.fromkeys(faults))
        self._since: list[float | None] = [since_s] * len(self._faults)
        self._struck = [0] * len(self._faults)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def strikes(self, stage: str, now: float, share: float) -> float | None:
        """Return until when this try would fail, and count it; None: it succeeds. `share` in [0, 1) is its luck."""
        for place, fault in enumerate(self._faults):
            if fault.stage != stage:
                continue
            since = self._since[place]
            if since is None:
                since = self._since[place] = now
            if now < since + fault.for_s and share < fault.chance and not 0 < fault.times <= self._struck[place]:
                self._struck[place] += 1
                return since + fault.for_s
        return None
