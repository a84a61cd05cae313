"""The record of a run: its scenario, its revision, its result, and the command that repeats it. Pure.

Ids are five characters of upstream's safe alphabet (those of generated names), the first a letter, so that no
id is a number. A run is named by its id, by a prefix that no other id has, by `latest` or `latest~N`; a run of
a comparison by `ID/ARM/SEED`. Source: decision 0048.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import count
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lab.scenarios.measures.history import PodHistory
from lab.scenarios.result import RunResult

ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
LETTERS: Final = 20
"""Number of letters at the beginning of the alphabet."""
ID_LENGTH: Final = 5
LATEST: Final = re.compile(r"latest(?:~(?P<back>\d+))?")
FATES_MAX: Final = 400
"""Largest number of fates kept for a run."""
SCHEMA: Final = 1

Kind = Literal["run", "sweep", "comparison"]


class UnknownRun(ValueError):
    """No run, or several, match a reference; the message lists the choices."""


class Origin(msgspec.Struct, frozen=True):
    """Inputs that must be equal for an equal run: the scenario file and the product. `revision` is empty outside a
    repository; `changes`: a digest of uncommitted changes, empty if there are none. `made`: time of the run in RFC
    3339.
    """

    path: str
    sha256: str
    version: str
    revision: str = ""
    changes: str = ""
    made: str = ""

    @property
    def code(self) -> str:
        """The revision in short form, with a star for uncommitted changes; the version if there is no revision."""
        return self.revision[:8] + ("*" if self.changes else "") if self.revision else self.version


class Fate(msgspec.Struct, frozen=True):
    """Pods of one owner that ended alike: their outcome, their nodes, their number, and the role of the first."""

    owner: str
    outcome: str
    nodes: str
    pods: int
    first: str


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record.

    `assignments`: the switches that the command set; `result`: the document of `keplab run -o json`; for a sweep
    the sum of its outcomes, empty for a comparison (its document is a file of its own). `arms`, `seeds`: for a
    comparison or a sweep. `has_events`: the event log is kept; that of a simulation is made again when it is asked
    for. `decisions`: how many are kept.
    """

    id: str
    kind: Kind
    scenario: str
    mode: str
    passed: bool
    command: str
    origin: Origin
    seed: int = 0
    assignments: list[str] = []
    digest: str = ""
    wall_s: float = 0.0
    title: str = ""
    about: str = ""
    started_s: float = 0.0
    decisions: int = 0
    has_events: bool = False
    arms: dict[str, list[str]] = {}
    seeds: list[int] = []
    result: dict[str, Any] = {}
    samples: list[tuple[float, float, float, float, float]] = []
    fates: list[Fate] = []
    schema: int = SCHEMA

    @property
    def is_repeatable(self) -> bool:
        """Whether the event log can be made again: a simulation is deterministic."""
        return self.mode == "simulated" and self.kind != "sweep"

    def document(self) -> dict[str, Any]:
        """Return the record as an element of `keplab runs -o json`."""
        return {
            "run": self.id,
            "kind": self.kind,
            "made": self.origin.made,
            "scenario": self.scenario,
            "path": self.origin.path,
            "sha256": self.origin.sha256,
            "mode": self.mode,
            "seed": self.seed,
            "seeds": self.seeds or [self.seed],
            "set": self.assignments,
            "switches": self.result.get("switches", self.assignments),
            "arms": [{"name": name, "switches": switches} for name, switches in self.arms.items()],
            "revision": self.origin.revision,
            "dirty": bool(self.origin.changes),
            "version": self.origin.version,
            "digest": self.digest,
            "passed": self.passed,
            "measures": self.result.get("measures", {}),
            "decisions": self.decisions,
            "virtual_s": self.result.get("virtual_s"),
            "wall_s": self.wall_s,
            "event_log": "kept" if self.has_events else "made again" if self.is_repeatable else "not kept",
            "command": self.command,
        }


class RunReference(NamedTuple):
    """Target of a reference: a record, and for a comparison one of its runs."""

    id: str
    arm: str = ""
    seed: int | None = None


def fates_of(pods: Sequence[PodHistory]) -> list[Fate]:
    """Return pods grouped by owner and fate, ordered by the first pod of each; a bare pod is its own owner."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for pod in pods:
        owner = pod.role.rpartition("#")[0] or pod.role
        groups.setdefault((owner, pod.outcome, " → ".join(pod.nodes)), []).append(pod.role)
    fates = [Fate(*key, len(roles), roles[0]) for key, roles in groups.items()]
    return fates[:FATES_MAX]


def record_of(
    result: RunResult,
    *,
    title: str,
    about: str,
    assignments: Sequence[str],
    command: str,
    origin: Origin,
    decisions: int,
    samples: Sequence[tuple[float, float, float, float, float]] = (),
) -> RunRecord:
    """Return the record of one run, without an id. `samples`: times, each with the numbers of pods that were pending,
    running, failed and succeeded from then on.
    """
    document: dict[str, Any] = msgspec.to_builtins(result.document())
    return RunRecord(
        "",
        "run",
        result.scenario,
        result.mode,
        result.passed,
        command,
        origin,
        seed=result.seed,
        assignments=list(assignments),
        digest=result.digest,
        wall_s=document["wall_s"],
        title=title,
        about=about,
        started_s=result.started_s,
        decisions=decisions,
        result=document,
        samples=list(samples),
        fates=fates_of(result.pods),
    )


def id_of(record: RunRecord, taken: Collection[str] = ()) -> str:
    """Return an id for the record that is not in `taken`; without `taken`, a record always gets the same id."""
    content = msgspec.json.encode(record)
    for attempt in count():
        number = int.from_bytes(hashlib.sha256(b"%d %b" % (attempt, content)).digest(), "big")
        number, letter = divmod(number, LETTERS)
        candidate = ALPHABET[letter]
        while len(candidate) < ID_LENGTH:
            number, letter = divmod(number, len(ALPHABET))
            candidate += ALPHABET[letter]
        if candidate not in taken:
            return candidate
    raise AssertionError


def is_version(text: str) -> bool:
    """Return whether a text is a resource version rather than a run."""
    return text.isdigit()


def resolve_reference(reference: str, ids: Sequence[str], where: str) -> RunReference:
    """Return the run that a reference names; `ids`: all ids, newest first, `where`: the folder. Raises: UnknownRun."""
    word, *rest = reference.split("/")
    if not ids:
        raise UnknownRun(f"there are no runs in {where}; `keplab run FILE` makes one, --runs names another folder")
    if len(rest) not in (0, 2) or (rest and not rest[1].lstrip("-").isdigit()):
        raise UnknownRun(f"{reference!r}: want RUN, or RUN/ARM/SEED of a comparison")
    arm, seed = (rest[0], int(rest[1])) if rest else ("", None)
    if (latest := LATEST.fullmatch(word)) is not None:
        back = int(latest["back"] or 0)
        if back >= len(ids):
            raise UnknownRun(f"{word}: there {'is 1 run' if len(ids) == 1 else f'are {len(ids):,} runs'} in {where}")
        return RunReference(ids[back], arm, seed)
    matches = [each for each in ids if each == word] or [each for each in ids if word and each.startswith(word)]
    if len(matches) == 1:
        return RunReference(matches[0], arm, seed)
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        raise UnknownRun(f"{word!r} is the beginning of {len(matches)} runs: {', '.join(matches[:5])}{more}")
    close = get_close_matches(word, ids, 3, 0.6)
    hint = f"did you mean {', '.join(close)}?" if close else "`keplab runs` lists them"
    raise UnknownRun(f"there is no run {word!r} in {where}; {hint}")
