"""I30: no device stays prepared for nobody."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.telemetry.eventlog import Line

DRIVER_S = 45.0
"""The longest that a driver is waited for."""


class NoDeviceLeaks(Check):
    """I30: every prepared device belongs to a claim that exists and is reserved; the kubelet's reconcile and a call."""

    id = "I30"
    events = ("driver.prepare", "driver.unprepare", "node.boot", "store.commit")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._prepared: dict[tuple[str, str], tuple[str, float]] = {}
        self._grace_s = self.switches.number("kubelet.dra_reconcile_s") + DRIVER_S

    def take(self, line: Line, report: Report) -> None:
        """Know what is prepared, and where."""
        key = (line.node, str(line.data.get("claim", "")))
        match line.ev:
            case "driver.prepare":
                self._prepared[key] = (str(line.data.get("name", "")), float("inf"))
            case "driver.unprepare":
                self._prepared.pop(key, None)
            case "node.boot":
                self._prepared = {each: held for each, held in self._prepared.items() if each[0] != line.node}

    def tick(self, line: Line, report: Report) -> None:
        """Look for what nobody has a right to."""
        if not self._prepared:
            return
        now_s = line.mono_ns / 1e9
        live = {claim.uid for claim in self.view.table("ResourceClaim").objects.values() if claim.consumers}
        for (node, uid), (name, since_s) in list(self._prepared.items()):
            if uid in live:
                self._prepared[node, uid] = (name, float("inf"))
                continue
            since_s = min(since_s, now_s)
            self._prepared[node, uid] = (name, since_s)
            if self.context.calm.lasted_s(since_s, now_s) > self._grace_s:
                report(
                    line, f"claim {name} ({uid}) is prepared on {node} and reserved for nobody since {since_s:.1f} s"
                )
                self._prepared[node, uid] = (name, now_s)


CHECK = NoDeviceLeaks
