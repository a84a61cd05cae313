"""A requested comparison: its arms, seeds and mode; the runs it consists of, and the command that repeats it."""

import hashlib
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab.experiments.arms import Arm
from lab.experiments.document import SwitchRow, recording_name
from lab.experiments.execution import ArmJob
from lab.experiments.record import Header
from lab.recordings.format import SUFFIX
from lab.scenarios.processes.access import Access
from lab.scenarios.revision import revision
from lab.scenarios.script.scenario import Scenario
from services.api.switches import REGISTER, Switches


@dataclass(frozen=True)
class ComparisonRequest:
    """One requested comparison.

    `called`: name of the file in the command that repeats the comparison; `shared`: the switches of all arms;
    `of_arms`: all switches of each arm; `seed`: the first of `seeds` seeds; `access`: a mesh that already
    runs; `recording`: the folder for recordings of the runs.
    """

    file: Path
    called: str
    scenario: Scenario
    arms: tuple[Arm, ...]
    shared: Switches
    of_arms: tuple[Switches, ...]
    seeds: int
    seed: int
    processes: bool
    access: Access | None
    recording: Path | None

    @property
    def mode(self) -> str:
        """Mode as named in the document: `containers`, `processes` or `simulated`."""
        return "containers" if self.access is not None else "processes" if self.processes else "simulated"

    @property
    def is_alone(self) -> bool:
        """Whether runs are sequential unless more workers are requested: concurrent runs would distort the figures."""
        return self.processes or self.access is not None

    @property
    def mesh(self) -> str:
        """The mesh that already runs, with its own switches; empty when each run has its own mesh."""
        if self.access is None:
            return ""
        return f"{self.access.option.removeprefix('--')}, its own switches: {','.join(self.access.switches) or 'none'}"

    def jobs(self) -> list[ArmJob]:
        """Return the runs. Those of one seed are adjacent, so that the runs before an interrupt can be compared."""
        return [
            ArmJob(
                str(self.file),
                arm.name,
                Switches({**self.shared.chosen_values, **arm.switches}).assignments,
                number,
                not self.processes,
                self.access,
                self._recording(arm, number),
            )
            for number in range(self.seed, self.seed + self.seeds)
            for arm in self.arms
        ]

    def _recording(self, arm: Arm, seed: int) -> str:
        return str(self.recording / f"{recording_name(arm.name, seed)}{SUFFIX}") if self.recording is not None else ""

    def header(self) -> Header:
        """Return the header of a record: what all of its runs have in common."""
        return Header(
            scenario=self.scenario.name,
            inputs=self.inputs,
            arms=[arm.text for arm in self.arms],
            set=list(self.shared.assignments),
            mode=self.mode,
            revision=revision().text,
            mesh=self.mesh,
        )

    @cached_property
    def inputs(self) -> dict[str, str]:
        """SHA-256 of the scenario's file and of each file beside it that the scenario names, by file name."""
        path = Path(self.scenario.path)
        content = path.read_bytes()
        digests = {path.name: hashlib.sha256(content).hexdigest()}
        lines = (line for line in content.decode("utf-8-sig").splitlines() if not line.lstrip().startswith("#"))
        for word in sorted({part for line in lines for each in line.split() for part in (each, *each.split("="))}):
            try:
                if "." in word and (path.parent / word).is_file():
                    digests[word] = hashlib.sha256((path.parent / word).read_bytes()).hexdigest()
            except OSError:
                continue
        return digests

    def command(self) -> str:
        """Return the command line that repeats the comparison."""
        words = ["keplab", "compare", self.called]
        for arm in self.arms:
            words += ["--arm", arm.text]
        if self.seeds != 1:
            words += ["--seeds", str(self.seeds)]
        if self.seed:
            words += ["--seed", str(self.seed)]
        if self.access is not None:
            words += self.access.option.split()
        elif self.processes:
            words.append("--processes")
        for text in self.shared.assignments:
            words += ["--set", text]
        return shlex.join(words)

    def switch_rows(self) -> list[SwitchRow]:
        """Return the switches that are not at their default in some arm."""
        rows, defaults = [], Switches()
        for switch in REGISTER:
            values = [switches[switch.name] for switches in self.of_arms]
            if any(value != defaults[switch.name] for value in values):
                texts = [_text(value) for value in values]
                rows.append(
                    SwitchRow(switch.name, _text(defaults[switch.name]), texts, len(set(texts)) > 1, switch.meaning)
                )
        return rows


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
