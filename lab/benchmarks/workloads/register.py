"""Register of all workloads by name."""

import difflib
from typing import Final

from lab.benchmarks.workloads import affinity, basic, devices, preemption, resizes, spreading, volumes
from lab.benchmarks.workloads.ops import Workload

WORKLOADS: Final[dict[str, Workload]] = {
    each.name: each
    for module in (basic, affinity, spreading, preemption, volumes, devices, resizes)
    for each in module.WORKLOADS
}
NEAR_MAX: Final = 3


class UnknownWorkload(ValueError):
    """There is no workload of that name; the message suggests similar names."""


def workload(name: str) -> Workload:
    """Return the workload of that name, case-insensitively. Raises: UnknownWorkload."""
    workloads = {known.lower(): each for known, each in WORKLOADS.items()}
    if name.lower() in workloads:
        return workloads[name.lower()]
    near = [workloads[each].name for each in difflib.get_close_matches(name.lower(), workloads, n=NEAR_MAX, cutoff=0.5)]
    near = near or [known for known in WORKLOADS if name.lower() in known.lower()][:NEAR_MAX]
    hint = f"did you mean {', '.join(near)}?" if near else "`keplab bench scheduler --list` names them all"
    raise UnknownWorkload(f"no workload is called {name!r}; {hint}")
