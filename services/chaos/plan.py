"""A seed becomes a schedule of faults. Pure.

Swarm: each seed first draws which kinds of fault exist at all, because many seeds with few kinds find
more than all kinds always (guarantees T-SIM). Every fault ends before `heal_s`; after that the mesh
must come to rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.api.seams import Random

KINDS = ("kill", "cut", "delay", "loss", "duplicate")


@dataclass(frozen=True)
class Fault:
    """One fault. `duration_s`: how long the component stays down or its link stays faulty."""

    at_s: float
    kind: str
    component: str
    duration_s: float
    detail: str = ""


def draw(random: Random, components: Sequence[str], heal_s: float) -> list[Fault]:
    """Return the faults of one run in order of time; at least one kill.

    Seconds count from the story's first act. A cut is of one direction or both; a delay holds back
    watch events only.
    """
    kinds = ["kill", *(kind for kind in KINDS[1:] if random.random() < 0.4)]
    faults = []
    for number in range(random.randrange(2, 9)):
        kind = "kill" if number == 0 else random.choice(kinds)
        duration = random.uniform(0.1, heal_s / 4)
        at_s = random.uniform(0.0, heal_s - duration)
        component = random.choice(components)
        detail = ""
        if kind == "cut":
            # The server's own link is nobody's: cutting it would cut nothing.
            component = random.choice([c for c in components if c != "apiserver"])
            detail = random.choice(("requests", "replies", "both"))
        faults.append(Fault(at_s, kind, component, duration, detail))
    return sorted(faults, key=lambda fault: fault.at_s)
