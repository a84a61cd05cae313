"""How much of the store a run's own observer has seen, and whether what it counted is what the store committed. Pure.

The observer of a simulation sees every change at the moment of its commit. Between processes it is a client like any
other, whose watches may be cut, late, or begin anew; so a run says up to which version it saw, and its figures of pods
are held against the lines `store.commit` (I33).

Source: guarantees 6 (I33).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lab.scenarios.measures.history import History
from services.telemetry.eventlog import Line

BEHIND_MAX_S: Final = 0.5
"""A run whose observer was further behind than this says so."""
EXAMPLES: Final = 3


@dataclass(frozen=True)
class ObserverProgress:
    """What the observer of a run of processes saw. `version`: up to which it saw everything; `newest`: the store's
    version when the scenario ended, None where the API server did not answer. `behind_s`: how long at most a change
    took to be seen. `gaps`: resources whose changes between two versions were not seen one by one. `judged_late`: the
    lines that were judged from a view older than the store was when they were reached."""

    version: int
    newest: int | None
    behind_s: float = 0.0
    gaps: tuple[str, ...] = ()
    judged_late: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """Why figures of objects are not those of the end; empty when they are."""
        if self.newest is None or self.version >= self.newest:
            return ""
        return f"seen until version {self.version} of {self.newest}"

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures has to know, in sentences without a point; none of a run that saw everything in
        time."""
        found = [self.missing] if self.missing else []
        if self.newest is None:
            found.append(f"seen until version {self.version}; the API server did not say its own when the run ended")
        if self.behind_s > BEHIND_MAX_S:
            found.append(f"what was seen was up to {self.behind_s:.1f} s behind the store: times are as late as that")
        return [*found, *self.gaps, *self.judged_late]

    def document(self) -> dict[str, Any]:
        """Return it as `keplab run -o json` does."""
        return {
            "version": self.version,
            "newest": self.newest,
            "behind_s": round(self.behind_s, 3),
            "gaps": list(self.gaps),
            "judged_late": list(self.judged_late),
            "notes": self.notes,
        }


@dataclass
class Ending:
    """When a run ended, for everything that counts it: the store's version, and seconds of the log's clock. None: it
    has not ended."""

    version: int | None = None
    at_s: float | None = None

    def includes(self, line: Line) -> bool:
        """Whether a line of the event log is of the run and not of what comes after it."""
        if self.at_s is None:
            return True
        if line.ev == "store.commit" and self.version is not None and line.rv is not None:
            return line.rv <= self.version
        return line.mono_ns / 1e9 <= self.at_s


@dataclass
class PodCommits:
    """What the store committed of pods, by uid, from the event log. `is_volatile`: the store forgets everything when
    its process ends."""

    is_volatile: bool = False
    why_not: str = ""
    """Why nothing can be said of it."""
    _names: dict[str, str] = field(default_factory=dict)
    _created: dict[str, int] = field(default_factory=dict)
    _failed: dict[str, int] = field(default_factory=dict)
    _at_s: dict[int, float] = field(default_factory=dict)
    _begun: bool = False

    def take(self, line: Line) -> None:
        """Note a commit."""
        if line.ev == "store.recovered":
            if self._begun and self.is_volatile:
                self.why_not = "the store began anew when the API server was restarted"
            self._begun = True
        if line.ev != "store.commit" or line.obj is None or line.obj["kind"] != "Pod" or line.rv is None:
            return
        uid = line.obj["uid"]
        self._names[uid] = f"{line.obj['ns']}/{line.obj['name']}"
        if not line.data.get("replayed"):
            self._at_s[line.rv] = line.mono_ns / 1e9
        if line.data.get("type") == "ADDED":
            self._created.setdefault(uid, line.rv)
        elif line.data.get("type") != "DELETED" and line.data.get("phase") == "Failed":
            self._failed.setdefault(uid, line.rv)

    def disagreements(self, history: History, version: int) -> list[str]:
        """Return in which figures the observer differs from what the store had committed up to that version."""
        seen = history.pods
        created = [uid for uid, rv in self._created.items() if rv <= version]
        failed = [uid for uid, rv in self._failed.items() if rv <= version]
        seen_failed = {uid for uid, pod in seen.items() if pod.failed_s is not None}
        found = (self._difference("created", created, seen.keys()), self._difference("failed", failed, seen_failed))
        return [text for text in found if text]

    def _difference(self, what: str, committed: list[str], seen: Iterable[str]) -> str:
        known = set(seen)
        missing = [uid for uid in committed if uid not in known]
        if not missing:
            return ""
        names = ", ".join(self._names[uid] for uid in missing[:EXAMPLES])
        return (
            f"pods {what}: the store committed {len(committed)}, the observer saw {len(committed) - len(missing)} of "
            f"them; it missed {names}{', …' if len(missing) > EXAMPLES else ''}"
        )

    def behind_s(self, arrivals: Mapping[int, float], started_s: float) -> float:
        """Return how long at most a change took from its commit until it was seen. `arrivals`: when each version was
        seen, in seconds since `started_s` of the log's clock; what was committed before that does not count."""
        late = (
            started_s + arrived_s - self._at_s[rv]
            for rv, arrived_s in arrivals.items()
            if self._at_s.get(rv, -1.0) >= started_s
        )
        return max(late, default=0.0)
