"""How long a DaemonSet leaves a failed pod on its node before it makes another: longer each time, for each node.

Without it a set and a kubelet that always rejects would create and fail pods without end. Pure.
Source: controllers 6; upstream `flowcontrol.Backoff` with 1 s and 15 min. Deviates: upstream looks again a whole delay
after it saw the failed pod, here after what is left of it.
"""

BASE_S = 1.0
MAX_S = 900.0
FORGOTTEN_AFTER_S = 2 * MAX_S
"""So long after the last failure the next one is the first again."""
SWEEP_S = 60.0


class FailureBackoff:
    """When a failed pod was last removed, by set, generation and node. A changed set begins anew."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, str], tuple[float, float]] = {}
        """Delay, and when it began."""
        self._swept_s = 0.0

    def wait_s(self, uid: str, generation: int, node: str, now_s: float) -> float:
        """Return how long the next removal must wait; 0 when it may be now."""
        delay_s, at_s = self._entries.get((uid, generation, node), (0.0, now_s))
        return 0.0 if now_s - at_s > FORGOTTEN_AFTER_S else max(0.0, at_s + delay_s - now_s)

    def removed(self, uid: str, generation: int, node: str, now_s: float) -> None:
        """A failed pod is removed now: the next one waits twice as long as this one had to."""
        delay_s, at_s = self._entries.get((uid, generation, node), (0.0, now_s))
        doubled_s = BASE_S if now_s - at_s > FORGOTTEN_AFTER_S else max(BASE_S, min(delay_s * 2, MAX_S))
        self._entries[(uid, generation, node)] = doubled_s, now_s

    def sweep(self, now_s: float) -> None:
        """Forget, once a minute, what is too long ago to matter."""
        if now_s - self._swept_s < SWEEP_S:
            return
        self._swept_s = now_s
        for key in [key for key, (_, at_s) in self._entries.items() if now_s - at_s > FORGOTTEN_AFTER_S]:
            del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)
