"""The document of a comparison, which contains everything that a view shows. Pure.

The page, markdown, CSV and the table of a terminal are functions of it alone, so each can be made again
from a saved document. Recordings that the page may embed remain separate files.
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
    """A file that is not a document of a comparison; the message names it and the reason."""


class Run(msgspec.Struct, frozen=True):
    """One run of one arm.

    `measure_errors`: why a measure that the scenario states has no value. `violations`: their number;
    `problems`: the first of them, and processes that exited by themselves. `error`: why the run did not
    finish, for example a failed step; its measures then count nowhere. `pods`, `decisions`: their number; the
    digests are of the event log and of the decisions.
    """

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
    """A run as kept in a record, with each pod's fate by role and pods by phase over time. `is_mistake`: the
    scenario itself is wrong, so that every run of it would fail.
    """

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
    """A measure in all arms.

    `state`: `differs`; `small` (in no seed by as much as matters); `equal` (the same in all arms for every
    seed); or `empty` (no run has a value). `arms`: spreads in the order of the arms; `differences`: one for
    each arm but the first. `relevant`: the least difference that matters, in the measure's unit; `is_stated`:
    the scenario states it.
    """

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
    """A switch that is not at its default in some arm. `values`: in the order of the arms; `differs`: whether
    arms differ in it.
    """

    name: str
    default: str
    values: list[str]
    differs: bool
    meaning: str = ""


class Provenance(msgspec.Struct, frozen=True):
    """Origin of the figures: the inputs needed to reproduce them, and the machine they were measured on."""

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
    """SHA-256 of each file beside the scenario that it reads, by name."""
    set: list[str] = []
    """Switches that the command set for all arms."""
    mesh: str = ""
    """The mesh that already ran, as the option names it, with its own switches; empty: each run had its own mesh."""


class Comparison(msgspec.Struct, frozen=True):
    """The whole document; scripts read the keys `arms`, `differences` and `report`."""

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
    """Folder with a recording of each run, named by `recording_name`; empty: no recordings."""
    why_not_judged: str = ""
    """Reason why no difference is called clear, better or worse; empty: differences are judged."""

    @property
    def passed(self) -> bool:
        """Whether all runs finished without a violation of an invariant, and arms with equal switches gave equal
        results.

        Expectations do not count: they apply to the arm that the scenario was written for.
        """
        runs = (run for arm in self.arms for run in arm.runs)
        return all(run.violations == 0 and not run.error for run in runs) and not self.is_undeterministic

    @property
    def is_same(self) -> bool:
        """Whether all arms have the same switches (A/A)."""
        return len(self.arms) > 1 and all(arm.switches == self.arms[0].switches for arm in self.arms)

    @property
    def has_same_switches(self) -> bool:
        """Whether all arms resolve to the same switches, so that differences are only scatter."""
        return self.is_same or (len(self.arms) > 1 and not any(row.differs for row in self.switches))

    def is_clear(self, measure: Measure, found: Paired) -> bool:
        """Return whether a difference has a direction, is large enough to matter, and may be judged at all."""
        matters = found.median is not None and abs(found.median) >= measure.relevant
        return not self.why_not_judged and matters and found.is_clear

    @property
    def is_simulated(self) -> bool:
        """Whether the runs were in virtual time."""
        return self.mode == "simulated"

    @property
    def mode_text(self) -> str:
        """Mode of the runs, in words."""
        texts = {"simulated": "simulated in virtual time", "containers": "a running mesh, real processes over gRPC"}
        return texts.get(self.mode, "real processes over gRPC")

    @property
    def is_undeterministic(self) -> bool:
        """Whether arms with equal switches differ in a simulation, which is a defect of keplab."""
        return self.is_simulated and self.is_same and not self.is_equal

    @property
    def is_equal(self) -> bool:
        """Whether the arms are equal in every measure, decision and pod."""
        has_equal_decisions = all(
            len({run.decisions_digest for run in runs}) < 2 for runs in zip(*self.common_runs, strict=True)
        )
        is_free_of_differences = all(each.state in ("equal", "empty") for each in self.measures)
        return is_free_of_differences and not self.difference_count and (has_equal_decisions or not self.is_simulated)

    @property
    def common_runs(self) -> list[list[Run]]:
        """The runs of each arm, for the seeds with which every arm finished."""
        return _common(self.arms)

    def differing(self) -> list[Measure]:
        """Return the measures that differ between arms by as much as matters; for a single arm, all that have a
        value.
        """
        return [m for m in self.measures if m.state == "differs" or (len(self.arms) == 1 and m.state != "empty")]

    def tabled_measures(self) -> list[Measure]:
        """Return the measures of a table: those that the scenario states, equal or not, then those that differ."""
        differing = {each.name for each in self.differing()}
        stated = [each for each in self.measures if each.is_stated and each.state != "empty"]
        return [*stated, *(each for each in self.measures if each.name in differing and not each.is_stated)]


def _common(arms: Sequence[ArmRuns]) -> list[list[Run]]:
    ended = [{run.seed: run for run in arm.runs if not run.error} for arm in arms]
    seeds = [seed for seed in ended[0] if all(seed in each for each in ended)] if ended else []
    return [[each[seed] for seed in seeds] for each in ended]


def recording_name(arm: str, seed: int) -> str:
    """Return the file name of a run's recording, without its suffix."""
    return f"{arm}-{seed}"


def document_of(made: Comparison) -> dict[str, Any]:
    """Return the JSON document of `keplab compare -o json`."""
    document: dict[str, Any] = msgspec.to_builtins(made)
    return document


def read_document(text: bytes, name: str) -> Comparison:
    """Parse a saved comparison. Raises: DocumentError naming the file and the error."""
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
