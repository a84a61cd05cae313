"""The document of a comparison: everything that a reader may ask, from which every view is made. Pure.

The page, markdown, CSV and the table of a terminal are functions of it alone, so a document that was kept gives each of
them again; recordings that the page may hold beside it stay files of their own.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lab.experiments.bands import Bands, Row
from lab.experiments.fates import Fate, FateGroup, PodDifference
from lab.experiments.statistics import Paired, Spread

SCHEMA: Final = "keplab.comparison"
SCHEMA_VERSION: Final = 1


class DocumentError(ValueError):
    """A file that is no document of a comparison; the message says which, and why."""


class Run(msgspec.Struct, frozen=True):
    """One run.

    `measure_errors`: why a measure that the scenario states has no value. `violations`: how many; `problems`: the first
    of them, and processes that ended by themselves. `error`: why it did not come to its end, for example a step that
    failed: then its measures count nowhere. `pods`, `decisions`: how many there were; the digests are of the event log
    and of the decisions."""

    seed: int
    digest: str = ""
    measures: dict[str, float | None] = {}
    passed: bool = True
    violations: int = 0
    problems: list[str] = []
    measure_errors: dict[str, str] = {}
    error: str = ""
    pods: int = 0
    decisions: int = 0
    decisions_digest: str = ""
    virtual_s: float = 0.0
    wall_s: float = 0.0


class ArmRun(msgspec.Struct, frozen=True):
    """What a record keeps of a run: also each pod's fate, by role, and pods by phase. `is_mistake`: the scenario itself
    is wrong, so no other run of it can do better."""

    arm: str
    run: Run
    fates: dict[str, Fate] = {}
    samples: list[Row] = []
    is_mistake: bool = False


class ArmRuns(msgspec.Struct, frozen=True):
    """One arm: its switches (`NAME=VALUE`), its runs in the order of seeds, and pods by phase over time."""

    name: str
    switches: list[str]
    runs: list[Run]
    bands: Bands


class Measure(msgspec.Struct, frozen=True):
    """A measure in all arms. `state`: `differs`, `small` (in no seed by as much as matters), `equal` (in every seed the
    same in all arms) or `empty` (no run has a value). `arms`: in their order; `differences`: of each arm but the
    first. `relevant`: the least difference that matters, in its unit; `is_stated`: by the scenario."""

    name: str
    label: str
    unit: str
    better: str
    state: str
    arms: list[Spread]
    differences: list[Paired]
    relevant: float = 0.0
    is_stated: bool = False


class SwitchRow(msgspec.Struct, frozen=True):
    """A switch that is not at its default in some arm. `values`: in the order of the arms; `differs`: between them."""

    name: str
    default: str
    values: list[str]
    differs: bool
    meaning: str = ""


class Provenance(msgspec.Struct, frozen=True):
    """Where the figures come from: what must be the same to get them again, and what they were taken on."""

    command: str
    scenario_path: str
    scenario_sha256: str
    revision: str
    is_dirty: bool
    version: str
    python: str
    platform: str
    cpus: int
    workers: int
    started: str
    wall_s: float
    load_1min: float | None = None
    inputs: dict[str, str] = {}
    """Files beside the scenario that it reads, with their SHA-256."""
    set: list[str] = []
    """Switches that the command set for all arms."""
    mesh: str = ""
    """The mesh that ran already, as the option names it, and its own switches; empty: each run had its own mesh."""


class Comparison(msgspec.Struct, frozen=True):
    """The whole document; the keys `arms`, `differences` and `report` are those that scripts read."""

    schema: str
    schema_version: int
    scenario: str
    title: str
    about: str
    mode: str
    result: str
    seeds: list[int]
    runs_planned: int
    runs_made: int
    is_interrupted: bool
    arms: list[ArmRuns]
    measures: list[Measure]
    switches: list[SwitchRow]
    differences: list[PodDifference]
    difference_count: int
    difference_groups: list[FateGroup]
    report: str
    provenance: Provenance
    recordings: str = ""
    """The folder with a recording of each run, called as `recording_name` says; empty: none was made."""
    why_not_judged: str = ""
    """Why no difference is called clear, better or worse; empty: it may be."""

    @property
    def passed(self) -> bool:
        """Whether all runs came to their end and broke no invariant, and equal arms were equal. Expectations belong to
        the arm that the scenario was written for."""
        runs = (run for arm in self.arms for run in arm.runs)
        return all(run.violations == 0 and not run.error for run in runs) and not self.is_undeterministic

    @property
    def is_same(self) -> bool:
        """Whether all arms have the same switches (A/A)."""
        return len(self.arms) > 1 and all(arm.switches == self.arms[0].switches for arm in self.arms)

    @property
    def has_same_switches(self) -> bool:
        """Whether all arms come to the same switches, so that what differs is scatter."""
        return self.is_same or (len(self.arms) > 1 and not any(row.differs for row in self.switches))

    def is_clear(self, measure: Measure, found: Paired) -> bool:
        """Whether a difference has a direction, is large enough to matter, and may be judged at all."""
        matters = found.median is not None and abs(found.median) >= measure.relevant
        return not self.why_not_judged and matters and found.is_clear

    @property
    def is_simulated(self) -> bool:
        """Whether it ran in virtual time."""
        return self.mode == "simulated"

    @property
    def mode_text(self) -> str:
        """What it ran on, in words."""
        texts = {"simulated": "simulated in virtual time", "containers": "a running mesh, real processes over gRPC"}
        return texts.get(self.mode, "real processes over gRPC")

    @property
    def is_undeterministic(self) -> bool:
        """Whether arms with equal switches differ in a simulation, which is a defect of keplab."""
        return self.is_simulated and self.is_same and not self.is_equal

    @property
    def is_equal(self) -> bool:
        """Whether the arms do not differ, in any measure, decision or pod."""
        has_equal_decisions = all(
            len({run.decisions_digest for run in runs}) < 2 for runs in zip(*self.common_runs, strict=True)
        )
        is_free_of_differences = all(each.state in ("equal", "empty") for each in self.measures)
        return is_free_of_differences and not self.difference_count and (has_equal_decisions or not self.is_simulated)

    @property
    def common_runs(self) -> list[list[Run]]:
        """The runs of each arm, of the seeds with which every arm came to its end."""
        return _common(self.arms)

    def differing(self) -> list[Measure]:
        """Return the measures that differ between arms by what matters; of a single arm, all that have a value."""
        return [m for m in self.measures if m.state == "differs" or (len(self.arms) == 1 and m.state != "empty")]

    def tabled(self) -> list[Measure]:
        """Return what a table has: what the scenario states, equal or not, then what differs."""
        differing = {each.name for each in self.differing()}
        stated = [each for each in self.measures if each.is_stated and each.state != "empty"]
        return [*stated, *(each for each in self.measures if each.name in differing and not each.is_stated)]


def _common(arms: Sequence[ArmRuns]) -> list[list[Run]]:
    ended = [{run.seed: run for run in arm.runs if not run.error} for arm in arms]
    seeds = [seed for seed in ended[0] if all(seed in each for each in ended)] if ended else []
    return [[each[seed] for seed in seeds] for each in ended]


def recording_name(arm: str, seed: int) -> str:
    """Return what the recording of a run is called, without its ending."""
    return f"{arm}-{seed}"


def document_of(made: Comparison) -> dict[str, Any]:
    """Return the JSON document of `keplab compare -o json`."""
    document: dict[str, Any] = msgspec.to_builtins(made)
    return document


def read_document(text: bytes, name: str) -> Comparison:
    """Return a comparison that was kept. Raises: DocumentError naming the file and what was wrong."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DocumentError(f"{name}: no document of a comparison: {error}") from None
    if (head.schema, head.schema_version) != (SCHEMA, SCHEMA_VERSION):
        seen = f"{head.schema or 'no schema'} {head.schema_version}"
        raise DocumentError(f"{name}: it has {seen}, want {SCHEMA} {SCHEMA_VERSION}")
    try:
        return msgspec.json.decode(text, type=Comparison)
    except msgspec.DecodeError as error:
        raise DocumentError(f"{name}: {error}") from None


class _Head(msgspec.Struct):
    schema: str = ""
    schema_version: int = 0
