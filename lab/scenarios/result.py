"""The result of one run of a scenario, in the same form for both forms of the mesh. Pure."""

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
    """The result of one expectation. `at_s`: time at which it was decided."""

    line: int
    text: str
    passed: bool
    seen: str
    at_s: float


@dataclass
class RunResult:
    """The result of one run. `switches`: those set by the scenario, the arm and the command line."""

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
    """Values of the measures by name; `measures.register` describes them, and `stated` those that the scenario
    states.
    """
    pods: list[PodHistory]
    samples: list[Sample]
    """Number of measured pods by phase."""
    digest: str = ""
    """Digest of a simulation's event log."""
    spans: list[FinishedSpan] = field(default_factory=list)
    lines: int = 0
    failures: list[str] = field(default_factory=list)
    """Processes that exited by themselves, with the reasons."""
    not_judged: dict[str, str] = field(default_factory=dict)
    """Invariants that this run does not judge, with the reasons."""
    unknown: str = ""
    """Reason why the run shows neither success nor failure, such as missing lines in an event log (I27)."""
    forbidden: dict[str, int] = field(default_factory=dict)
    """Number of Forbidden responses to controllers, by user, verb and resource."""
    stated: tuple[Measure, ...] = ()
    """Measures that the scenario states, including those of packages."""
    measure_errors: dict[str, str] = field(default_factory=dict)
    """Error of each measure that could not be computed, by name."""
    absent: list[str] = field(default_factory=list)
    """Sentences on parts that the initial state refers to and the mesh did not have."""
    seen: ObserverProgress | None = None
    """Progress of the run's observer; None for a simulation, whose observer sees everything."""
    started_s: float = 0.0
    """Start of the scenario on the event log's clock; times of expectations and pods count from here."""

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
