"""I30: no device stays prepared without a pod."""

from collections.abc import Iterator

from lab.scenarios.invariants.check import NOTHING_PREPARED, Context, Graced, Report, Wrong
from services.telemetry.eventlog import Line

RECONCILE_S = 60.0
"""Interval in seconds at which a kubelet looks for prepared devices that no pod uses any more."""
DRIVER_S = 45.0
"""Longest wait for a driver's response, in seconds."""


class NoDeviceLeaks(Graced):
    """I30: every prepared device belongs to a claim that exists and is reserved. Grace: the kubelet's reconcile
    interval plus a driver call.
    """

    id = "I30"
    grace_s = RECONCILE_S + DRIVER_S
    why_not = NOTHING_PREPARED
    events = ("driver.prepare", "driver.unprepare", "node.boot")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._prepared: dict[tuple[str, str], str] = {}

    def take(self, line: Line, report: Report) -> None:
        """Track prepared claims by node."""
        key = (line.node, str(line.data.get("claim", "")))
        match line.ev:
            case "driver.prepare":
                self.why_not = ""
                self._prepared[key] = str(line.data.get("name", ""))
                self.since.pop(key, None)
            case "driver.unprepare":
                self._prepared.pop(key, None)
            case "node.boot":
                self._prepared = {each: held for each, held in self._prepared.items() if each[0] != line.node}

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the prepared claims that are reserved for no pod."""
        if not self._prepared:
            return
        live = {claim.uid for claim in self.view.tables["ResourceClaim"].objects.values() if claim.consumers}
        leaked = {key: name for key, name in self._prepared.items() if key[1] not in live}
        self.note(leaked, now_s)
        for (node, uid), name in leaked.items():
            prepared, reserved = f"is prepared on {node} and", "reserved for no pod"
            yield Wrong(
                (node, uid),
                f"claim {name} ({uid}) {prepared} {reserved} since {self.since[node, uid]:.1f} s",
                f"claim {name} {prepared} {reserved}",
            )
