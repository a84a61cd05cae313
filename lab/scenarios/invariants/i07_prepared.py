"""I7: a device is prepared for one claim at a time."""

from collections.abc import Iterable

from lab.scenarios.invariants.check import NOTHING_PREPARED, Check, Context, Report
from services.telemetry.eventlog import Line


class DevicesArePreparedOnce(Check):
    """I7: between `driver.prepare(c, d)` and `driver.unprepare(c, d)` no other claim prepares d.

    Where several schedulers may allocate one device and no guard is on, it is only counted. For a driver that
    writes no log, such as one that is not keplab's, its responses to the kubelet are used instead.
    """

    id = "I7"
    events = (
        "driver.prepare",
        "driver.unprepare",
        "kubelet.prepared",
        "kubelet.unprepared",
        "node.boot",
        "sched.attempt",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = NOTHING_PREPARED
        self._holders: dict[tuple[str, str], dict[str, str]] = {}
        """By node and device, the claims it is prepared for: the uid, and since when for whom."""
        self._schedulers: dict[str, None] = {}
        self._is_guarded = self.switches.choice("dra.double_allocation_guard") != "none"

    def take(self, line: Line, report: Report) -> None:
        """Track devices that drivers prepare and unprepare."""
        data = line.data
        match line.ev:
            case "sched.attempt":
                self._schedulers[line.comp] = None
                if len(self._schedulers) > 1 and not self._is_guarded:
                    self.why_not = "several schedulers may grant one device; that is counted, not failed"
            case "node.boot":
                self._holders = {key: held for key, held in self._holders.items() if key[0] != line.node}
            case "driver.prepare":
                pods = ", ".join(data.get("pods") or ())
                self._on_prepared(line, str(data.get("claim", "")), data.get("devices", ()), pods, report)
            case "driver.unprepare":
                self._on_unprepared(line, str(data.get("claim", "")))
            case "kubelet.prepared":
                pod = (line.obj or {}).get("name", "")
                for claim, devices in (data.get("devices") or {}).items():
                    self._on_prepared(line, claim, devices, pod, report)
            case "kubelet.unprepared":
                for claim in data.get("devices") or ():
                    self._on_unprepared(line, claim)

    def _on_prepared(self, line: Line, claim: str, devices: Iterable[str], pods: str, report: Report) -> None:
        if self.why_not == NOTHING_PREPARED:
            self.why_not = ""
        since = f"{claim} ({f'pod {pods}, ' if pods else ''}prepared at {line.mono_ns / 1e9:.3f} s)"
        for device in devices:
            held = self._holders.setdefault((line.node, device), {})
            others = [text for other, text in held.items() if other != claim]
            if others and claim not in held and not self.why_not:
                report(line, f"device {device} is prepared for claim {since} while it is for {', '.join(others)}")
            held.setdefault(claim, since)

    def _on_unprepared(self, line: Line, claim: str) -> None:
        if self.why_not == NOTHING_PREPARED:
            self.why_not = ""
        # A driver that lost what it knew names no devices: all that it had for the claim are free.
        driver = f"{line.data['driver']}/" if line.data.get("driver") else ""
        for (node, device), held in self._holders.items():
            if node == line.node and device.startswith(driver):
                held.pop(claim, None)
