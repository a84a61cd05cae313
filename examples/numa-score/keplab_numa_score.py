"""Score, for all nodes at once: prefer those where the pod's CPUs can come from few NUMA cells.

A node's agent publishes the free CPUs of its cells as a label, one number a cell: `example.com/numa-free: 4.0.7.8`.
Thousands of nodes have few distinct values, and Columns keeps the number of each node's value: so every value
is judged once, and the nodes look their score up in one array operation.
"""

import numpy as np

from scheduler.entry import Args, PluginEntry


class NumaScoreArgs(Args, frozen=True):
    """`label`: the one that holds the free CPUs."""

    label: str = "example.com/numa-free"


def score_of(cells: str | None, cpus: float) -> int:
    """Return 100 when one cell is enough, 50 for two, 33 for three; 0 when all together are too few, or unknown."""
    free = sorted((int(text) for text in (cells or "").split(".") if text.isdecimal()), reverse=True)
    enough = np.flatnonzero(np.cumsum(free) >= cpus)
    return 100 // (int(enough[0]) + 1) if len(enough) else 0


class NumaScore:
    name = "NumaScore"

    def __init__(self, args, handle):
        self.label = args.label

    def row_signature(self, pod):
        """Equal for pods about which a node answers alike: answers are remembered, changed rows asked again."""
        return pod.requests.amounts.get("cpu", 0)

    def score(self, state, pod, node):
        return score_of(node.labels.get(self.label), pod.requests.amounts.get("cpu", 0) / 1000)

    def score_all(self, state, pod, columns):
        ids, values = columns.label_ids(self.label)
        cpus = pod.requests.amounts.get("cpu", 0) / 1000
        return np.array([score_of(value, cpus) for value in (None, *values)], np.float64)[ids]


PLUGIN = PluginEntry("NumaScore", NumaScore, args=NumaScoreArgs)
