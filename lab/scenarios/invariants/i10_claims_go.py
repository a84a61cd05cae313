"""I10: claims are deleted together with the pods they were created for."""

from collections.abc import Iterator

from lab.scenarios.invariants.check import NO_CLAIMS, Graced, Report, Wrong
from lab.scenarios.invariants.view import Commit, Stored
from services.telemetry.eventlog import Line


class ClaimsGo(Graced):
    """I10: no claim generated for a pod outlives that pod, and no claim that is being deleted remains without a
    living consumer; 60 s.
    """

    id = "I10"
    events = ("store.commit",)
    kinds = ("ResourceClaim",)
    grace_s = 60.0
    why_not = NO_CLAIMS

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Note that there are claims to judge."""
        self.why_not = ""

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the claims that no pod needs any more."""
        claims = self.view.tables["ResourceClaim"].objects
        living = {pod.uid for pod in self.view.tables["Pod"].objects.values() if not pod.is_over} if claims else set()
        needless = {key: why for key, claim in claims.items() if (why := _why(claim, living))}
        self.note(needless, now_s)
        for key, why in needless.items():
            there = f"claim {'/'.join(key)} is still there"
            yield Wrong(key, f"{there}: {why} since {self.since[key]:.1f} s", f"{there}, {why}")


def _why(claim: Stored, living: set[str]) -> str:
    if claim.is_generated and not any(uid in living for uid in claim.owners):
        return "its pod is gone or has ended"
    if claim.deletion and not any(uid in living for uid in claim.consumers):
        return "it is being deleted and no pod uses it"
    return ""
