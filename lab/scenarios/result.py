"""What one run of a scenario showed, as both forms of the mesh report it. Pure."""

from dataclasses import dataclass, field, replace
from typing import Any

from lab.scenarios.invariants import Violation
from lab.scenarios.measures.history import PodHistory
from lab.scenarios.measures.phases import Sample
from lab.scenarios.measures.register import Measure
from lab.scenarios.observer_progress import ObserverProgress
from services.telemetry.spans import FinishedSpan


@dataclass
class Judgement:
    """One expectation's result. `at_s`: when it was decided."""

    line: int
    text: str
    passed: bool
    seen: str
    at_s: float


@dataclass
class RunResult:
    """What one run showed. `switches`: what was set, by the scenario, the arm and the command line."""

    scenario: str
    mode: str
    seed: int
    switches: tuple[str, ...]
    passed: bool
    expectations: list[Judgement]
    violations: list[Violation]
    violation_count: int
    error: str
    is_mistake: bool
    virtual_s: float
    wall_s: float
    measures: dict[str, float | None]
    """By name; `measures.register` says what each is, of those that the scenario states `stated` does."""
    pods: list[PodHistory]
    samples: list[Sample]
    """Pods by phase, of the pods that are measured."""
    digest: str = ""
    """Of the event log of a simulation."""
    spans: list[FinishedSpan] = field(default_factory=list)
    lines: int = 0
    failures: list[str] = field(default_factory=list)
    """Processes that ended by themselves, and why."""
    not_judged: dict[str, str] = field(default_factory=dict)
    """Invariants that this run says nothing about, and why."""
    unknown: str = ""
    """Why the run shows neither success nor failure, such as lines that are missing in an event log (I27)."""
    forbidden: dict[str, int] = field(default_factory=dict)
    """How often controllers were answered Forbidden, by user, verb and resource."""
    stated: tuple[Measure, ...] = ()
    """The measures that the scenario states, or asks packages for."""
    measure_errors: dict[str, str] = field(default_factory=dict)
    """Why there is no value of those that could not be computed, by name."""
    absent: list[str] = field(default_factory=list)
    """What the state that the run began from names and the mesh did not have: sentences."""
    seen: ObserverProgress | None = None
    """How much of the store the run's observer saw; None of a simulation, which is seen whole."""
    started_s: float = 0.0
    """When the scenario began on the event log's clock; times of expectations and pods count from here."""

    def document(self) -> dict[str, Any]:
        """Return one element of the list that `keplab run -o json` prints."""
        return {
            "scenario": self.scenario,
            "mode": self.mode,
            "seed": self.seed,
            "switches": list(self.switches),
            "digest": self.digest,
            "passed": self.passed,
            "unknown": self.unknown,
            "error": self.error,
            "expectations": [replace(judgement, at_s=round(judgement.at_s, 6)) for judgement in self.expectations],
            "violations": self.violations,
            "violation_count": self.violation_count,
            "not_judged": self.not_judged,
            "measures": self.measures,
            "measure_errors": self.measure_errors,
            "virtual_s": round(self.virtual_s, 6),
            "wall_s": round(self.wall_s, 3),
            "event_lines": self.lines,
            "process_failures": self.failures,
            "forbidden": self.forbidden,
            "absent": self.absent,
            "seen": self.seen.document() if self.seen is not None else None,
        }
