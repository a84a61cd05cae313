"""Progress of a run's observer: how much of the store it has seen, and whether its counts match the commits.
Pure.

The observer of a simulation sees every change at its commit. With processes it is an ordinary client,
whose watches may be cut, late, or restarted. So a run states up to which version it saw, and its figures
of pods are compared with the lines `store.commit` (I33).

Source: guarantees 6 (I33).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lab.scenarios.measures.history import History
from services.telemetry.eventlog import Line

BEHIND_MAX_S: Final = 0.5
"""Lag of the observer in seconds above which a run notes it."""
EXAMPLES: Final = 3


@dataclass(frozen=True)
class ObserverProgress:
    """Progress of the observer in a run of processes.

    `version`: version up to which it saw everything; `newest`: the store's version when the scenario ended,
    None if the API server did not answer. `behind_s`: the longest time until a change was seen. `gaps`:
    resources whose changes between two versions were not seen one by one. `judged_late`: the lines that were
    judged from a view older than the store was when they were reached.
    """

    version: int
    newest: int | None
    behind_s: float = 0.0
    gaps: tuple[str, ...] = ()
    judged_late: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """Reason why figures of objects are not those of the end; empty when they are."""
        if self.newest is None or self.version >= self.newest:
            return ""
        return f"seen until version {self.version} of {self.newest}"

    @property
    def notes(self) -> list[str]:
        """Notes for a reader of the figures, as sentences without a full stop; empty for a run that saw everything
        in time.
        """
        texts = [self.missing] if self.missing else []
        if self.newest is None:
            texts.append(f"seen until version {self.version}; the API server did not say its own when the run ended")
        if self.behind_s > BEHIND_MAX_S:
            texts.append(f"what was seen was up to {self.behind_s:.1f} s behind the store: times are as late as that")
        return [*texts, *self.gaps, *self.judged_late]

    def document(self) -> dict[str, Any]:
        """Return the JSON values for `keplab run -o json`."""
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
    """End of a run: the store's version, and seconds of the log's clock; None while the run goes on."""

    version: int | None = None
    at_s: float | None = None

    def includes(self, line: Line) -> bool:
        """Return whether a line of the event log belongs to the run, not to the time after it."""
        if self.at_s is None:
            return True
        if line.ev == "store.commit" and self.version is not None and line.rv is not None:
            return line.rv <= self.version
        return line.mono_ns / 1e9 <= self.at_s


@dataclass
class PodCommits:
    """Commits of pods by uid, from the event log. `is_volatile`: the store forgets everything when its process ends."""

    is_volatile: bool = False
    why_not: str = ""
    """Reason why the counts cannot be compared; empty if they can."""
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
        """Return a sentence for each count in which the observer differs from the store's commits up to that
        version.
        """
        seen = history.pods
        created = [uid for uid, rv in self._created.items() if rv <= version]
        failed = [uid for uid, rv in self._failed.items() if rv <= version]
        seen_failed = {uid for uid, pod in seen.items() if pod.failed_s is not None}
        texts = (self._difference("created", created, seen.keys()), self._difference("failed", failed, seen_failed))
        return [text for text in texts if text]

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
        """Return the longest time from the commit of a change until it was seen.

        `arrivals`: time at which each version was seen, in seconds since `started_s` of the log's clock; earlier
        commits do not count.
        """
        late = (
            started_s + arrived_s - self._at_s[rv]
            for rv, arrived_s in arrivals.items()
            if self._at_s.get(rv, -1.0) >= started_s
        )
        return max(late, default=0.0)
