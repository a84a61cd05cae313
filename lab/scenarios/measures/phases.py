"""Number of pods in each phase, at every moment at which it changed. Pure.

A run of two seconds and one of two hours have about as many samples. When there are more than
`SAMPLES_MAX`, samples closer together than a grain are merged, and the grain grows with the run.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

SAMPLES_MAX: Final = 4096


@dataclass(frozen=True)
class Sample:
    """Number of pods in each phase from a moment on; `failed_total`: number of pods that ever failed."""

    at_s: float
    pending: int
    running: int
    failed: int
    failed_total: int
    succeeded: int = 0


class Phases:
    """Counter of pods by phase; `samples` are in the order of time, and the last one is current."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._counts: Counter[str] = Counter()
        self._failed_total = 0
        self._grain_s = 0.0

    def move(self, before: str, after: str, now_s: float) -> None:
        """Move a pod from one phase to another; an empty phase means that it does not exist."""
        if before == after:
            return
        self._counts[before] -= 1
        self._counts[after] += 1
        self._failed_total += after == "Failed"
        self.sample(now_s)

    def sample(self, now_s: float) -> None:
        """Record the current counts."""
        counts = self._counts
        new_sample = Sample(
            now_s, counts["Pending"], counts["Running"], counts["Failed"], self._failed_total, counts["Succeeded"]
        )
        if self.samples and self._is_near(self.samples[-1].at_s, now_s):
            self.samples[-1] = new_sample
        else:
            self.samples.append(new_sample)
        if len(self.samples) > SAMPLES_MAX:
            self._merge()

    def _is_near(self, at_s: float, now_s: float) -> bool:
        return int(at_s / self._grain_s) == int(now_s / self._grain_s) if self._grain_s else at_s == now_s

    def _merge(self) -> None:
        self._grain_s = max(2 * self._grain_s, self.samples[-1].at_s / (SAMPLES_MAX // 2))
        kept: list[Sample] = []
        for sample in self.samples:
            if kept and self._is_near(kept[-1].at_s, sample.at_s):
                kept[-1] = sample
            else:
                kept.append(sample)
        self.samples = kept
