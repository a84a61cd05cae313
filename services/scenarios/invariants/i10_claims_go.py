"""I10: claims go with those they were made for."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.scenarios.invariants.view import Stored
from services.telemetry.eventlog import Line

GRACE_S = 60.0


class ClaimsGo(Check):
    """I10: no claim made for a pod outlives that pod, and none is being deleted without anybody who holds it; 60 s."""

    id = "I10"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._since: dict[tuple[str, str], float] = {}

    def tick(self, line: Line, report: Report) -> None:
        """Look for claims that nobody needs."""
        claims = self.view.table("ResourceClaim").objects
        if not claims:
            return
        now_s = line.mono_ns / 1e9
        living = {pod.uid for pod in self.view.table("Pod").objects.values() if not pod.is_over}
        seen: dict[tuple[str, str], float] = {}
        for key, claim in claims.items():
            why = _why(claim, living)
            if not why:
                continue
            since_s = seen[key] = self._since.get(key, now_s)
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"claim {claim.namespace}/{claim.name} is still there: {why} since {since_s:.1f} s")
                seen[key] = now_s
        self._since = seen


def _why(claim: Stored, living: set[str]) -> str:
    if claim.is_generated and not any(uid in living for uid in claim.owners):
        return "its pod is gone or has ended"
    if claim.deletion and not any(uid in living for uid in claim.consumers):
        return "it is being deleted and nobody uses it"
    return ""


CHECK = ClaimsGo
