"""Work queue of a controller's keys: deduplicated, delayed, with back-off; time is passed in as `now`.

A pure machine like client-go's. A key is handed to one worker at a time; a key added while it is being worked
on comes back once afterwards (controllers 1.1).
"""

import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FAILURE_BASE_S = 0.005
FAILURE_MAX_S = 1000.0
BUCKET_PER_S = 10.0
BUCKET_BURST = 100


class TokenBucket:
    """Token bucket that refills at `per_s` up to `burst`. It may be overdrawn; it then returns how long the debt
    lasts.
    """

    __slots__ = ("_at", "_burst", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = 0.0

    def reserve(self, now: float) -> float:
        """Take one token and return the seconds until it is available."""
        if now > self._at:
            self._refill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_s)

    def try_take(self, now: float) -> bool:
        """Take one token if it is available; return whether it was."""
        if now > self._at:
            self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Return the seconds until a token is available, without taking it."""
        if now > self._at:
            self._refill(now)
        return max(0.0, (1.0 - self._tokens) / self._per_s)

    def is_full(self, now: float) -> bool:
        """Whether the bucket is full, like an unused one."""
        return self._tokens + (now - self._at) * self._per_s >= self._burst

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now


class WorkQueue(Generic[K]):
    """Queue of keys that are ready, being worked on, or due later.

    Invariant: a key is in `_ready` at most once, and only if it is dirty and not being worked on.
    """

    def __init__(self, *, per_s: float = BUCKET_PER_S, burst: float = BUCKET_BURST) -> None:
        """Create an empty queue. `per_s`, `burst`: the bucket that all failures share."""
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        """Key to when it was added."""
        self._processing: dict[K, float] = {}
        """Key to when it was taken."""
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = 0
        self._failures: dict[K, int] = {}
        self._bucket = TokenBucket(per_s, burst)
        self.adds_total = 0
        self.retries_total = 0
        self.queue_duration_s = 0.0
        self.work_duration_s = 0.0
        self.works_total = 0

    def add(self, key: K, now: float) -> None:
        """Queue the key; a second add before it is handed out changes nothing."""
        if key in self._dirty:
            return
        self.adds_total += 1
        self._dirty[key] = now
        if key not in self._processing:
            self._ready.append(key)

    def add_after(self, key: K, delay_s: float, now: float) -> None:
        """Add the key in `delay_s` seconds; of several delays the earliest counts."""
        if delay_s <= 0:
            self.add(key, now)
            return
        due = now + delay_s
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._order += 1
        heapq.heappush(self._delayed, (due, self._order, key))

    def retry(self, key: K, now: float) -> float:
        """Add the key after its failure back-off; return that delay in seconds.

        The longer of 5 ms doubled with each failure in a row, at most 1,000 s, and the shared bucket.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries_total += 1
        own_s = min(FAILURE_MAX_S, FAILURE_BASE_S * 2.0 ** min(failures, 60))
        delay_s = max(own_s, self._bucket.reserve(now))
        self.add_after(key, delay_s, now)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the key's failures after a success."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the key's number of consecutive failures."""
        return self._failures.get(key, 0)

    def get(self, now: float) -> K | None:
        """Take the next key; None if none is ready. `done` must follow."""
        if self._delayed:
            self._promote(now)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self.queue_duration_s += now - self._dirty.pop(key)
        self._processing[key] = now
        return key

    def done(self, key: K, now: float) -> None:
        """Finish the key; if it was added meanwhile, it becomes ready again."""
        self.work_duration_s += now - self._processing.pop(key)
        self.works_total += 1
        if key in self._dirty:
            self._ready.append(key)

    def next_due(self, now: float) -> float | None:
        """Return when a key is ready: `now` if one is, the time of the earliest delayed one, or None."""
        if self._delayed:
            self._promote(now)
        if self._ready:
            return now
        return self._delayed[0][0] if self._delayed else None

    @property
    def is_idle(self) -> bool:
        """Whether no key is ready or being worked on; delayed ones do not count."""
        return not self._ready and not self._processing

    def __len__(self) -> int:
        """Number of ready keys (metric `workqueue_depth`)."""
        return len(self._ready)

    @property
    def begun_total(self) -> int:
        """Number of keys handed out."""
        return self.works_total + len(self._processing)

    def _promote(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == due:  # else an earlier time replaced this one
                del self._due[key]
                self.add(key, now)
        while self._delayed and self._due.get(self._delayed[0][2]) != self._delayed[0][0]:
            heapq.heappop(self._delayed)
