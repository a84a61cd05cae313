"""Dry runs of nodes, remembered: the next pod of the same template finds most nodes as the last one left them.

The result of a node's dry run holds while the node, the pods on it, the nominations to it and all budgets are the same.
That is so only if the filters at work look at nothing else; the caller knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

from scheduler.framework.status import Status
from scheduler.preemption.candidates import Candidate
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget

TEMPLATES_MAX: Final = 16

Stamp = tuple[int, int]
"""Generations of a node and of the nominations to it."""
Results = dict[str, tuple[Stamp, Candidate | Status]]


class Memory:
    """Results by template, of the templates asked about last."""

    def __init__(self) -> None:
        self._budgets: Sequence[PodDisruptionBudget] = ()
        self._templates: OrderedDict[Hashable, Results] = OrderedDict()

    def of(self, template: Hashable, budgets: Sequence[PodDisruptionBudget]) -> Results:
        """Return the results of nodes for a template; the caller adds to them."""
        if len(budgets) != len(self._budgets) or any(a is not b for a, b in zip(budgets, self._budgets, strict=True)):
            self._budgets = list(budgets)
            self._templates.clear()
        results = self._templates.setdefault(template, {})
        self._templates.move_to_end(template)
        if len(self._templates) > TEMPLATES_MAX:
            self._templates.popitem(last=False)
        return results
