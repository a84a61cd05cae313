"""Reduce a schedule to the fewest and shortest holds that still break the same. Pure but for the runs it asks for.

`ddmin` of Zeller and Hildebrandt (2002) is applied to the holds of a schedule. Then each hold's time is
reduced: first to the earliest message that it must let pass, if there is one, then by bisection. A hold that
breaks the run need not break it with every longer time. Every smaller schedule is run before it is accepted.
"""

from collections.abc import Callable, Sequence

import msgspec

from lab.explore.schedules import Hold, Schedule

Breaks = Callable[[Schedule], bool]
"""Function that runs a schedule and returns whether it breaks what the first run broke."""

Landmarks = Callable[[Hold], Sequence[float]]
"""Function that returns shorter times of a hold at which a related message has just passed: seconds, ascending."""

PRECISION_S = 0.000_2
"""Precision of a hold in seconds: less than a message takes, so that two messages in flight are distinguished."""
HALVINGS_MAX = 12


def shrink(schedule: Schedule, breaks: Breaks, landmarks: Landmarks = lambda _: ()) -> Schedule:
    """Return a smallest schedule for which `breaks` is true: no single hold of it can be left out."""
    fewer = _fewer(schedule, breaks)
    while True:
        shorter = _shorter(fewer, breaks, landmarks)
        # A hold may have been needed only beside a longer one.
        fewer = _fewer(shorter, breaks)
        if fewer == shorter:
            return shorter


def _fewer(schedule: Schedule, breaks: Breaks) -> Schedule:
    parts = 2
    while len(schedule) > 1:
        size = -(-len(schedule) // parts)
        starts = range(0, len(schedule), size)
        without = [(*schedule[:start], *schedule[start + size :]) for start in starts]
        shorter = next((smaller for smaller in without if smaller and breaks(smaller)), None)
        if shorter is not None:
            schedule, parts = shorter, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(schedule))
    return schedule


def _shorter(schedule: Schedule, breaks: Breaks, landmarks: Landmarks) -> Schedule:
    """Bring each hold's time down to where it just still breaks: then what it lets pass is what matters."""
    for place, hold in enumerate(schedule):
        passing = (held_s for held_s in landmarks(hold) if breaks(_with_time(schedule, place, held_s)))
        too_short, enough = 0.0, next(passing, hold.held_s)
        for _ in range(HALVINGS_MAX):
            if enough - too_short < PRECISION_S:
                break
            held_s = round((too_short + enough) / 2, 6)
            if breaks(_with_time(schedule, place, held_s)):
                enough = held_s
            else:
                too_short = held_s
        schedule = _with_time(schedule, place, enough)
    return schedule


def _with_time(schedule: Schedule, place: int, held_s: float) -> Schedule:
    changed = msgspec.structs.replace(schedule[place], held_s=held_s)
    return (*schedule[:place], changed, *schedule[place + 1 :])
