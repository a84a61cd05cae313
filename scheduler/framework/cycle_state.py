"""What plugins leave each other within one cycle of one pod; thrown away afterwards.

Source: upstream `pkg/scheduler/framework/cycle_state.go`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class CycleState:
    """A dictionary by plugin name, plus what the runner itself notes.

    `skip_filter` and `skip_score` name plugins that skip this pod's Filter and Score. `alive` is,
    during Filter, the nodes that passed all earlier filters. `error`: why Filter could not be finished. `irrelevant`
    names plugins that have nothing to do with the pod.
    """

    __slots__ = ("alive", "data", "error", "irrelevant", "now", "skip_filter", "skip_score")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.alive: NDArray[np.bool_] | None = None
        self.error = ""
        self.irrelevant: frozenset[str] = frozenset()

    def clone(self) -> CycleState:
        """Return a copy for a what-if; values with a `clone()` of their own are copied by it, all others shared.

        What a plugin's `add_pod` and `remove_pod` change must offer `clone`.
        """
        copy = CycleState(self.now)
        copy.data = {name: value.clone() if hasattr(value, "clone") else value for name, value in self.data.items()}
        copy.skip_filter, copy.skip_score = set(self.skip_filter), set(self.skip_score)
        copy.alive, copy.irrelevant = self.alive, self.irrelevant
        return copy
