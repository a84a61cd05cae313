"""The record of a run: what was run, of which revision, what came out, and the command that repeats it. Pure.

Ids are five characters of upstream's safe alphabet (those of generated names), the first a letter, so that no id is a
number. A run is named by its id, by a prefix that no other id has, by `latest` or `latest~N`; a run of a comparison by
`ID/ARM/SEED`. Source: decision 0048.
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
"""So many of the alphabet are letters."""
ID_LENGTH: Final = 5
LATEST: Final = re.compile(r"latest(?:~(?P<back>\d+))?")
FATES_MAX: Final = 400
"""So many groups of pods with one fate are kept of a run."""
SCHEMA: Final = 1

Kind = Literal["run", "sweep", "comparison"]


class UnknownRun(ValueError):
    """No run, or several, are named so; the message says which there are."""


class Origin(msgspec.Struct, frozen=True):
    """What must be the same to get the same run: the scenario file and the product. `revision` is empty outside of a
    repository; `changes`: a digest of what is not committed, empty of nothing. `made`: when, in RFC 3339."""

    path: str
    sha256: str
    version: str
    revision: str = ""
    changes: str = ""
    made: str = ""

    @property
    def code(self) -> str:
        """The revision as people read it, a star for changes that are not committed; else the version."""
        return self.revision[:8] + ("*" if self.changes else "") if self.revision else self.version


class Fate(msgspec.Struct, frozen=True):
    """Pods of one owner that ended alike: what became of them, on which nodes, how many, and the first of them."""

    owner: str
    outcome: str
    nodes: str
    pods: int
    first: str


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record. `assignments`: the switches that the command set; `result`: the document of `keplab run -o json`, of
    a sweep its outcomes in sum, of a comparison nothing (its document is a file of its own).

    `arms`, `seeds`: of a comparison or a sweep. `has_events`: the event log is kept; that of a simulation is made again
    when it is asked for. `decisions`: how many are kept.
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
        """Whether its event log can be made again: a simulation is deterministic."""
        return self.mode == "simulated" and self.kind != "sweep"

    def document(self) -> dict[str, Any]:
        """Return the element of `keplab runs -o json`."""
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
    """What a reference names: a record, and of a comparison one of its runs."""

    id: str
    arm: str = ""
    seed: int | None = None


def fates_of(pods: Sequence[PodHistory]) -> list[Fate]:
    """Return pods by owner and fate, in the order of the first of each; a bare pod owns itself."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for pod in pods:
        owner = pod.role.rpartition("#")[0] or pod.role
        groups.setdefault((owner, pod.outcome, " → ".join(pod.nodes)), []).append(pod.role)
    found = [Fate(*key, len(roles), roles[0]) for key, roles in groups.items()]
    return found[:FATES_MAX]


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
    """Return the record of one run, without an id. `samples`: when, and how many pods were pending, running, failed
    and succeeded from then on."""
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
    """Return an id for the record that is not taken; without the taken ones, one record always gets one id."""
    content = msgspec.json.encode(record)
    for attempt in count():
        number = int.from_bytes(hashlib.sha256(b"%d %b" % (attempt, content)).digest(), "big")
        number, letter = divmod(number, LETTERS)
        found = ALPHABET[letter]
        while len(found) < ID_LENGTH:
            number, letter = divmod(number, len(ALPHABET))
            found += ALPHABET[letter]
        if found not in taken:
            return found
    raise AssertionError


def is_version(text: str) -> bool:
    """Whether that is a resource version rather than a run."""
    return text.isdigit()


def named(reference: str, ids: Sequence[str], where: str) -> RunReference:
    """Return which run is meant; `ids`: all there are, newest first, `where`: the folder. Raises: UnknownRun."""
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
    found = [each for each in ids if each == word] or [each for each in ids if word and each.startswith(word)]
    if len(found) == 1:
        return RunReference(found[0], arm, seed)
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise UnknownRun(f"{word!r} is the beginning of {len(found)} runs: {', '.join(found[:5])}{more}")
    close = get_close_matches(word, ids, 3, 0.6)
    hint = f"did you mean {', '.join(close)}?" if close else "`keplab runs` lists them"
    raise UnknownRun(f"there is no run {word!r} in {where}; {hint}")
