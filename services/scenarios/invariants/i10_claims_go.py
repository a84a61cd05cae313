"""I10: claims go with those they were made for."""

from __future__ import annotations

from services.scenarios.invariants.check import NO_CLAIMS, Check, Context, Report
from services.scenarios.invariants.view import Stored
from services.telemetry.eventlog import Line

GRACE_S = 60.0


class ClaimsGo(Check):
    """I10: no claim made for a pod outlives that pod, and none is being deleted without anybody who holds it; 60 s."""

    id = "I10"
    events = ("store.commit",)
    why_not = NO_CLAIMS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._since: dict[tuple[str, str], float] = {}

    def take(self, line: Line, report: Report) -> None:
        """Know whether there are claims at all."""
        if self.why_not and self.view.commit is not None and self.view.commit.kind == "ResourceClaim":
            self.why_not = ""

    def _look(self, now_s: float) -> dict[tuple[str, str], str]:
        """Return the claims that no pod needs and why, and note since when."""
        claims = self.view.table("ResourceClaim").objects
        living = {pod.uid for pod in self.view.table("Pod").objects.values() if not pod.is_over} if claims else set()
        needless = {key: why for key, claim in claims.items() if (why := _why(claim, living))}
        self._since = {key: self._since.get(key, now_s) for key in needless}
        return needless

    def tick(self, line: Line, report: Report) -> None:
        """Report claims that no pod has needed for longer than the grace."""
        now_s = line.mono_ns / 1e9
        for key, why in self._look(now_s).items():
            since_s = self._since[key]
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"claim {'/'.join(key)} is still there: {why} since {since_s:.1f} s")
                self._since[key] = now_s

    def unfinished(self, now_s: float) -> str:
        """Return the first claim that no pod needs any more."""
        for key, why in self._look(now_s).items():
            return self.within_grace(f"claim {'/'.join(key)} is still there, {why}", self._since[key], now_s, GRACE_S)
        return ""


def _why(claim: Stored, living: set[str]) -> str:
    if claim.is_generated and not any(uid in living for uid in claim.owners):
        return "its pod is gone or has ended"
    if claim.deletion and not any(uid in living for uid in claim.consumers):
        return "it is being deleted and no pod uses it"
    return ""


CHECK = ClaimsGo
