"""Costs of devices by claims in a run: writes, bytes, conflicts, and how long devices stay allocated unused.
Pure.

They are read from the event log. Bytes are those of the stored object; each open watch of claims
transfers them again. Source: kep-5194 11, what its scale tests should record.
"""

from typing import Final

from lab.scenarios.measures import quantile
from services.api.kinds.resourceclaim import CLAIMS
from services.telemetry.eventlog import Line

_KIND: Final = "ResourceClaim"
_CONFLICT: Final = 409


class ClaimCosts:
    """Costs of all ResourceClaims of a run. Times are seconds of the log's own clock."""

    events: Final = ("store.commit", "watch.open", "watch.close", "api.response")

    def __init__(self) -> None:
        self.writes = self.bytes_written = self.watch_bytes = self.conflicts = self.most_consumers = 0
        self._watches: set[tuple[str, int]] = set()
        self._allocated: set[tuple[str, str]] = set()
        self._unused_since_s: dict[tuple[str, str], float] = {}
        """When a pod that names the claim ended last."""
        self._unused_s: list[float] = []

    def take(self, line: Line) -> None:
        """Note a commit, a response, or the start or end of a watch."""
        match line.ev:
            case "store.commit" if line.obj is not None and not line.data.get("replayed"):
                self._on_committed(line, line.obj)
            case "watch.open" if line.comp == "apiserver" and line.data["resource"] == CLAIMS:
                self._watches.add((line.inc, line.data["watch"]))
            case "watch.close" if line.comp == "apiserver" and line.data["resource"] == CLAIMS:
                self._watches.discard((line.inc, line.data["watch"]))
            case "api.response" if line.data["code"] == _CONFLICT and line.data["path"].startswith(CLAIMS):
                self.conflicts += 1

    def _on_committed(self, line: Line, obj: dict[str, str]) -> None:
        now_s, is_gone = line.mono_ns / 1e9, line.data["type"] == "DELETED"
        if obj["kind"] == "Pod":
            if is_gone or line.data.get("phase") in ("Succeeded", "Failed"):
                for name in line.data.get("claims", ()):
                    self._unused_since_s[obj["ns"], name] = now_s
            return
        if obj["kind"] != _KIND:
            return
        key, size = (obj["ns"], obj["name"]), line.data["bytes"]
        self.writes += 1
        self.bytes_written += size
        self.watch_bytes += size * len(self._watches)
        self.most_consumers = max(self.most_consumers, len(line.data.get("consumers", ())))
        if line.data.get("granted") and not is_gone:
            self._allocated.add(key)
        elif key in self._allocated:
            self._allocated.remove(key)
            if (since_s := self._unused_since_s.get(key)) is not None:
                self._unused_s.append(now_s - since_s)

    def measures(self) -> dict[str, float | None]:
        """Return the figures by name; {} if there are no claims."""
        if not self.writes:
            return {}
        return {
            "claim_writes": float(self.writes),
            "claim_kib_written": self.bytes_written / 1024,
            "claim_watch_kib": self.watch_bytes / 1024,
            "claim_conflicts": float(self.conflicts),
            "claim_consumers_max": float(self.most_consumers),
            "claim_unused_p50_s": quantile(self._unused_s, 0.50),
            "claim_unused_p99_s": quantile(self._unused_s, 0.99),
        }
