"""Schedule of faults: which process is killed or paused, and when. Pure.

Memory growth can only be measured within one life of a process. Before the end of the warm-up every
process is killed once. After it, a host and a controller are killed in turn; leaks that this causes show
in the other processes. The API server keeps the most state, and needs 20 minutes to fill its window of
changes and to reach the lifetime of Events. It therefore runs for hours, and is killed once more before
the end, when its clients have to find it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from services.api.seams import Random

PAUSE_S: Final = (0.5, 6.0)
"""Range of a pause of a process in seconds; shorter than what makes a node NotReady."""
KILL_PERIOD_S: Final = 600.0
LATER: Final = ("kubelet/h0", "claim-controller")
SERVER: Final = "apiserver"
SERVER_LIFE_S: Final = 4 * 3600.0


@dataclass(frozen=True)
class Fault:
    """One fault. `pause_s`: length of a pause."""

    at_s: float
    kind: Literal["kill", "pause"]
    process: str
    pause_s: float = 0.0


def faults(processes: Sequence[str], *, period_s: float, warm_up_s: float, hours: float, random: Random) -> list[Fault]:
    """Return the faults of a soak in order, in seconds from its beginning; one pause per `period_s` on average,
    and the kills.
    """
    return sorted(
        _kills(processes, warm_up_s, 3600 * hours) + _pauses(processes, period_s, 3600 * hours, random), key=_at
    )


def _at(fault: Fault) -> float:
    return fault.at_s


def _kills(processes: Sequence[str], warm_up_s: float, end_s: float) -> list[Fault]:
    early = 0.6 * warm_up_s / max(1, len(processes))
    kills = [Fault((place + 1) * early, "kill", name) for place, name in enumerate(processes)]
    victims = [name for name in LATER if name in processes]
    times = _steps(warm_up_s + KILL_PERIOD_S / 2, KILL_PERIOD_S, end_s)
    kills += [Fault(at_s, "kill", victims[place % len(victims)]) for place, at_s in enumerate(times) if victims]
    if SERVER in processes:
        last_s = end_s - min(KILL_PERIOD_S / 2, 0.1 * end_s)
        lives = _steps(warm_up_s + SERVER_LIFE_S, SERVER_LIFE_S, last_s - SERVER_LIFE_S / 2)
        kills += [Fault(at_s, "kill", SERVER) for at_s in (*lives, last_s)]
    return kills


def _pauses(processes: Sequence[str], period_s: float, end_s: float, random: Random) -> list[Fault]:
    pauses: list[Fault] = []
    at_s = 0.0
    while True:
        at_s += random.uniform(0.5, 1.5) * period_s
        if at_s >= end_s:
            return pauses
        pauses.append(Fault(at_s, "pause", random.choice(processes), random.uniform(*PAUSE_S)))


def _steps(first: float, step: float, end: float) -> Iterator[float]:
    while first < end:
        yield first
        first += step
