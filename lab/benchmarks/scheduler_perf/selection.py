"""Selection of the workloads of a file that run, and of their switches. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lab.benchmarks.scheduler_perf.cases import CaseFile, Workload
from services.api.switches import REGISTER

OFF_UNLESS_NAMED: Final = "OpportunisticBatching"
_GATE: Final = re.compile(r"[A-Z]\w*")
GATES: Final = frozenset(
    each.name for each in REGISTER if _GATE.fullmatch(each.name) and isinstance(each.default, bool)
)
"""The feature gates that keplab has as switches."""
ALWAYS_ON: Final = frozenset(
    {
        "DynamicResourceAllocation",
        "InPlacePodVerticalScaling",
        "MatchLabelKeysInPodTopologySpread",
        "MinDomainsInPodTopologySpread",
        "NodeInclusionPolicyInPodTopologySpread",
        "PodLevelResources",
        "PodSchedulingReadiness",
        "SchedulerQueueingHints",
    }
)
"""Gates of features that keplab always has; setting them to true changes nothing."""
ALWAYS_OFF: Final = frozenset(
    {
        "CompositePodGroup",
        "DRADeviceCompatibilityGroups",
        "NodeDeclaredFeatures",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
    }
)
"""Gates of features that keplab does not have; setting them to false changes nothing."""


class Unselected(ValueError):
    """No workload of the file is selected; the message names the filter."""


@dataclass(frozen=True)
class SelectedSwitches:
    """The switches of a workload as `NAME=VALUE`, and gates that were left out because they are unknown."""

    assignments: tuple[str, ...]
    ignored: tuple[str, ...]


def is_enabled(label_filter: str, labels: Iterable[str]) -> bool:
    """Return whether a workload with these labels runs.

    `label_filter`: comma-separated labels that it must have, or with `-` must not have.
    """
    had = set(labels)
    for part in label_filter.split(","):
        name = part.strip()
        if name and (name.lstrip("+-") in had) == name.startswith("-"):
            return False
    return True


def select_workloads(file: CaseFile, pattern: str, label_filter: str) -> list[Workload]:
    """Return the workloads whose `<case>/<name>` matches the pattern, and whose labels pass the filter.

    Raises: Unselected, if there is no such workload or the pattern is not a regular expression.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise Unselected(f"--workload {pattern!r}: {error}") from None
    named = [each for each in file.workloads if wanted.search(each.full_name)]
    workloads = [each for each in named if is_enabled(label_filter, each.labels)]
    if workloads:
        return workloads
    if not named:
        known = [each.full_name for each in file.workloads]
        near = difflib.get_close_matches(pattern, known, n=2, cutoff=0.4) or known[:2]
        raise Unselected(f"{file.shown}: no workload matches --workload {pattern!r}; there is {', '.join(near)}")
    labels = sorted({label for each in named for label in each.labels})
    raise Unselected(
        f"{file.shown}: none of {len(named)} workloads has labels that pass --labels {label_filter!r}; "
        f"they have {', '.join(labels) or 'none'}, and --labels '' selects all"
    )


def gates_of(workload: Workload, *, ignores_unknown: bool, assignments: Sequence[str] = ()) -> SelectedSwitches:
    """Return the workload's gates as switches, followed by those of the command line, which take precedence.

    Raises: FileError for a gate that keplab does not know, or cannot turn off.
    """
    switches = [] if OFF_UNLESS_NAMED in workload.gates else [f"{OFF_UNLESS_NAMED}=false"]
    ignored: list[str] = []
    for name, value in sorted(workload.gates.items()):
        if name in GATES:
            switches.append(f"{name}={str(value).lower()}")
        elif name in (ALWAYS_ON if value else ALWAYS_OFF):
            continue
        elif ignores_unknown:
            ignored.append(f"{name}={str(value).lower()}")
        else:
            why = "is always on in keplab" if name in ALWAYS_ON else "is a feature gate that keplab does not have"
            place = workload.gate_places.get(name)
            raise workload.error(
                f"featureGates: {name}={str(value).lower()}: {name} {why}; --unknown-gates ignore runs without it",
                place,
            )
    return SelectedSwitches((*switches, *assignments), tuple(ignored))
