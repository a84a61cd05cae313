"""I30: no device stays prepared without a pod."""

from __future__ import annotations

from services.scenarios.invariants.check import NOTHING_PREPARED, Check, Context, Report
from services.telemetry.eventlog import Line

RECONCILE_S = 60.0
"""How often a kubelet looks for prepared devices that no pod uses any more."""
DRIVER_S = 45.0
"""The longest that a driver is waited for."""


class NoDeviceLeaks(Check):
    """I30: every prepared device belongs to a claim that exists and is reserved; the kubelet's reconcile and a call."""

    id = "I30"
    events = ("driver.prepare", "driver.unprepare", "node.boot", "store.commit")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = NOTHING_PREPARED
        self._prepared: dict[tuple[str, str], tuple[str, float]] = {}

    def take(self, line: Line, report: Report) -> None:
        """Know what is prepared, and where."""
        key = (line.node, str(line.data.get("claim", "")))
        match line.ev:
            case "driver.prepare":
                self.why_not = ""
                self._prepared[key] = (str(line.data.get("name", "")), float("inf"))
            case "driver.unprepare":
                self._prepared.pop(key, None)
            case "node.boot":
                self._prepared = {each: held for each, held in self._prepared.items() if each[0] != line.node}

    def _look(self, now_s: float) -> list[tuple[tuple[str, str], str, float]]:
        """Return what is prepared and reserved for no pod, with the claim's name and since when."""
        if not self._prepared:
            return []
        live = {claim.uid for claim in self.view.table("ResourceClaim").objects.values() if claim.consumers}
        for (node, uid), (name, since_s) in list(self._prepared.items()):
            if uid in live:
                self._prepared[node, uid] = (name, float("inf"))
                continue
            self._prepared[node, uid] = (name, min(since_s, now_s))
        return [(key, name, since_s) for key, (name, since_s) in self._prepared.items() if key[1] not in live]

    def tick(self, line: Line, report: Report) -> None:
        """Look for what no pod has a right to."""
        now_s = line.mono_ns / 1e9
        for (node, uid), name, since_s in self._look(now_s):
            if self.context.calm.lasted_s(since_s, now_s) > RECONCILE_S + DRIVER_S:
                report(
                    line, f"claim {name} ({uid}) is prepared on {node} and reserved for no pod since {since_s:.1f} s"
                )
                self._prepared[node, uid] = (name, now_s)

    def unfinished(self, now_s: float) -> str:
        """Return the first claim that is prepared and reserved for no pod."""
        for (node, _), name, since_s in self._look(now_s):
            what = f"claim {name} is prepared on {node} and reserved for no pod"
            return self.within_grace(what, since_s, now_s, RECONCILE_S + DRIVER_S)
        return ""


CHECK = NoDeviceLeaks
