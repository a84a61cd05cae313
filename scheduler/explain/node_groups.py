"""The answers of a profile's filters for every node now; nodes with the same answer form a group.

A node is charged to the first plugin that refuses it, in the profile's order, as in a scheduling cycle;
plugins before it passed the node, plugins after it were not called. The sums of a decision record lose
which node had which reasons.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.runner import Runner
from scheduler.framework.status import Code

NAMED_MAX = 50


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes with one answer.

    `plugin`, `reasons`: the refusing plugin and its reasons, empty if all plugins passed; `is_resolvable`:
    whether preemption may help; `nodes`: the first of their names, of `count`.
    """

    plugin: str
    reasons: tuple[str, ...]
    is_resolvable: bool
    count: int
    nodes: tuple[str, ...]


@dataclass
class _Refusals(Diagnosis):
    """A diagnosis that also keeps the rows of each refusal."""

    refusals: list[tuple[str, tuple[str, ...], Mask]] = field(default_factory=list)

    def refuse(self, plugin: str, reasons: Iterable[str], code: Code, rows: Mask) -> None:
        """Charge the nodes of these rows to a plugin."""
        named = tuple(reasons)
        super().refuse(plugin, named, code, rows)
        self.refusals.append((plugin, named, rows.copy()))


def node_groups(
    runner: Runner, columns: Columns, nominator: Nominator, now: float, pod: PodInfo
) -> tuple[list[str], list[NodeGroup]]:
    """Return the filters that apply to the pod, in order, and the nodes grouped by their answers.

    The largest group comes first.
    """
    state = CycleState(now)
    feasible = runner.filter(state, pod, columns, nominator)
    refusals = _Refusals(columns.count, unresolvable=np.zeros(columns.capacity, bool))
    runner.diagnose(state, pod, columns, feasible, refusals)
    asked = [name for name in runner.points["filter"] if name not in state.skip_filter]
    names_only = feasible.prepared.node_names
    if names_only is not None and feasible.prepared.rejection is None:
        absent = columns.valid & ~columns.mask_of(names_only)
        refusals.refusals.append((feasible.prepared.named_by[0], (feasible.prepared.elsewhere,), absent))
    answers = np.zeros(columns.capacity, np.int64)
    for _, _, rows in refusals.refusals:
        # Each step numbers the combinations that there are, so that the numbers stay small.
        _, answers = np.unique(answers * 2 + rows, return_inverse=True)
    groups = [
        _group(columns, refusals, np.flatnonzero(columns.valid & (answers == number)))
        for number in np.unique(answers[columns.valid])
    ]
    return asked, sorted(groups, key=lambda group: (-group.count, group.plugin, group.reasons))


def _group(columns: Columns, said: _Refusals, rows: npt.NDArray[np.intp]) -> NodeGroup:
    first = rows[0]
    own = [(plugin, reasons) for plugin, reasons, refused in said.refusals if refused[first]]
    names = sorted(node.name for row in rows if (node := columns.nodes[row]) is not None)
    reasons = tuple(reason for plugin, named in own if plugin == own[0][0] for reason in named)
    is_resolvable = bool(own) and not said.unresolvable[first]
    return NodeGroup(own[0][0] if own else "", reasons, is_resolvable, len(names), tuple(names[:NAMED_MAX]))
