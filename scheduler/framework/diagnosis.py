"""Why no node fitted: reasons by plugin and node, and the sentence made of them.

Source: scheduler-queue-and-cycles 4.2, 12.1.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.cache.columns import Mask
from scheduler.framework.status import Code

NO_NODES_AVAILABLE: Final = "no nodes available to schedule pods"
TOO_MANY_PODS: Final = "Too many pods"


@dataclass(slots=True)
class Diagnosis:
    """`rejected`: plugin to reason to number of nodes. `unresolvable`: rows that preemption cannot help.

    `rejectors` wake the pod by their events, `pending` plugins also spare it the back-off.
    `pre_filter_message` replaces the histogram. `evaluated` is how many nodes were looked at.
    """

    node_count: int
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    unresolvable: Mask = field(default_factory=lambda: np.zeros(0, bool))
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def count(self, plugin: str, reason: str, nodes: int) -> None:
        """Add nodes that a plugin refused for a reason."""
        reasons = self.rejected.setdefault(plugin, {})
        reasons[reason] = reasons.get(reason, 0) + nodes

    def refuse(self, plugin: str, reasons: Iterable[str], code: Code, rows: Mask) -> None:
        """Charge the nodes of these rows to a plugin; without any it is not charged."""
        nodes = int(np.count_nonzero(rows))
        if not nodes:
            return
        for reason in reasons:
            self.count(plugin, reason, nodes)
        (self.pending if code is Code.PENDING else self.rejectors).add(plugin)
        if code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.unresolvable |= rows


@dataclass(frozen=True, slots=True)
class FitError:
    """No node fits this pod; an expected no, so a value."""

    diagnosis: Diagnosis

    @property
    def message(self) -> str:
        """The text of the event and of the condition: the refusal, then what PostFilter could not do about it."""
        after = self.diagnosis.post_filter_message
        return f"{self.refusal} {after}" if after else self.refusal

    @property
    def refusal(self) -> str:
        """What the filters say: `0/5 nodes are available: 2 Insufficient cpu, …`."""
        diagnosis = self.diagnosis
        text = f"0/{diagnosis.node_count} nodes are available:"
        if diagnosis.pre_filter_message:
            text += f" {diagnosis.pre_filter_message}."
        else:
            histogram: Counter[str] = Counter()
            for reasons in diagnosis.rejected.values():
                histogram.update(reasons)
            # Sorted as strings, counts included, as upstream sorts them.
            lines = sorted(f"{nodes} {reason}" for reason, nodes in histogram.items())
            if lines:
                text += f" {', '.join(lines)}."
        return text


@dataclass(frozen=True, slots=True)
class CycleError:
    """The cycle itself failed: a plugin's error, or no node exists. `is_rejection` for the latter."""

    message: str
    is_rejection: bool = False
