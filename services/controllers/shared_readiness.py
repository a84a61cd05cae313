"""Whether a pod is ready, and since when: what counts as ready and as available.

The time of the transition stands in the object, so availability compares it with the wall clock, as
upstream does: a controller that has just started knows no other.
Source: controllers 2; upstream `pkg/api/v1/pod`.
"""

from __future__ import annotations

from services.api.kinds.pod import Pod
from services.api.meta import find_condition
from services.api.times import parse_time


def is_ready(pod: Pod) -> bool:
    """Whether condition Ready is True."""
    ready = find_condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def seconds_of(stamp: str | None) -> float:
    """Return epoch seconds of a timestamp; 0 when it is missing or unreadable."""
    if not stamp:
        return 0.0
    try:
        return parse_time(stamp)
    except ValueError:
        return 0.0


def ready_since_s(pod: Pod) -> float | None:
    """Return the epoch seconds at which the pod became ready, or None when it is not ready."""
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return None
    return seconds_of(ready.last_transition_time)


def available_in_s(pod: Pod, min_ready_s: int, wall_s: float) -> float | None:
    """Return the seconds until the ready pod counts as available, 0 when it does, None when it is not ready."""
    since = ready_since_s(pod)
    if since is None:
        return None
    return max(0.0, since + min_ready_s - wall_s) if min_ready_s > 0 else 0.0
