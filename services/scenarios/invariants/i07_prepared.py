"""I7: a device is prepared for one claim at a time."""

from services.scenarios.invariants.check import NOTHING_PREPARED, Check, Context, Report
from services.telemetry.eventlog import Line


class DevicesArePreparedOnce(Check):
    """I7: between `driver.prepare(c, d)` and `driver.unprepare(c, d)` no other claim prepares d. Where several
    schedulers may grant one device and no guard is on, it is only counted."""

    id = "I7"
    events = ("driver.prepare", "driver.unprepare", "node.boot", "sched.attempt")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = NOTHING_PREPARED
        self._holders: dict[tuple[str, str], dict[str, None]] = {}
        self._schedulers: dict[str, None] = {}
        self._is_guarded = self.switches.choice("dra.double_allocation_guard") != "none"

    def take(self, line: Line, report: Report) -> None:
        """Follow what drivers do."""
        match line.ev:
            case "sched.attempt":
                self._schedulers[line.comp] = None
                if len(self._schedulers) > 1 and not self._is_guarded:
                    self.why_not = "several schedulers may grant one device; that is counted, not failed"
            case "node.boot":
                self._holders = {key: held for key, held in self._holders.items() if key[0] != line.node}
            case _:
                self._driver(line, report)

    def _driver(self, line: Line, report: Report) -> None:
        if self.why_not == NOTHING_PREPARED:
            self.why_not = ""
        claim = str(line.data.get("claim", ""))
        if line.ev == "driver.unprepare":
            # A driver that lost what it knew names no devices: all that it had for the claim are free.
            driver = f"{line.data['driver']}/" if line.data.get("driver") else ""
            for (node, device), held in self._holders.items():
                if node == line.node and device.startswith(driver):
                    held.pop(claim, None)
            return
        for device in line.data.get("devices", ()):
            held = self._holders.setdefault((line.node, device), {})
            others = [each for each in held if each != claim]
            if others and not self.why_not:
                report(line, f"device {device} is prepared for claim {claim} while it is for {', '.join(others)}")
            held[claim] = None
