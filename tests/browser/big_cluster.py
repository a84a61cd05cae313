"""A cluster of any size as columns, and changes of it without end: what budgets and pictures are measured with."""

import numpy as np

from tests.browser import frames

ZONES = ("zone-a", "zone-b", "zone-c")
NAMESPACES = ("shop", "batch", "train", "kube-system")
START = 1_800_000_000.0


class BigCluster:
    """Columns of `nodes` nodes and `pods` pods from a seed. `changes(n)` moves n pods on and returns the frames of it."""

    def __init__(self, nodes=5000, pods=100_000, seed=1):
        self.random = np.random.default_rng(seed)
        self.rv, self.time = 1000 + nodes + pods, 0.0
        self.strings = ["", *ZONES, *NAMESPACES, "dedicated=gpu:NoSchedule", "Insufficient cpu"]
        self.sent = 0
        self.owner0 = len(self.strings)
        self.strings += [f"ReplicaSet/web-{i}-{self._revision(i)}" for i in range(40)]
        self.role0 = len(self.strings)
        self.strings += [f"deployment/web-{i}" for i in range(40)]
        self.node0 = len(self.strings)
        self.strings += [f"n-{i:04d}" for i in range(nodes)]
        self.pod0 = len(self.strings)
        self.strings += [f"web-{i % 40}-{self._revision(i % 40)}-{i * 7919 % 2**20:05x}" for i in range(pods)]
        r, n = self.random, nodes
        self.nodes = {
            "name": np.arange(n) + self.node0,
            "zone": np.arange(n) % 3 + 1,
            "ready": (r.random(n) > 0.01).astype(int),
            "unschedulable": (r.random(n) < 0.01).astype(int),
            "taints": np.where(r.random(n) < 0.05, 8, 0),
            "cpu_m": np.full(n, 32000.0),
            "mem": np.full(n, 128.0 * 2**30),
            "pods": np.full(n, 110),
            "numa": np.tile([16.0, 16, 0, 0, 0, 0, 0, 0], (n, 1)),
            "devices": np.where(np.arange(n) % 10 == 0, 8.0, 0.0),
            "created": np.full(n, START - 3600),
            "req_cpu_m": np.zeros(n),
            "req_mem": np.zeros(n),
            "req_pods": np.zeros(n),
            "used_devices": np.zeros(n),
            "phases": np.zeros((n, 5)),
            "numa_req": np.zeros((n, 8)),
            "held_cpu_m": np.zeros(n),
            "held_mem": np.zeros(n),
        }
        p = pods
        placed = r.random(p) < 0.97
        node = np.where(placed, np.minimum((r.random(p) ** 1.3 * n).astype(int), n - 1), -1)
        phase = np.where(placed, np.where(r.random(p) < 0.96, 1, np.where(r.random(p) < 0.5, 2, 3)), 0)
        self.pods = {
            "name": np.arange(p) + self.pod0,
            "ns": np.arange(p) % 4 + 4,
            "node": node,
            "phase": phase,
            "pool": np.where(placed, 0, 5),
            "priority": (np.arange(p) % 5) * 100,
            "cpu_m": r.choice([100.0, 250, 500, 1000], p),
            "mem": r.choice([128.0, 256, 512], p) * 2**20,
            "owner": np.arange(p) % 40 + self.owner0,
            "role": np.arange(p) % 40 + self.role0,
            "role_number": np.arange(p) // 40 + 1,
            "flags": np.where(r.random(p) < 0.005, 1, 0),
            "reason": np.where(placed, 0, 9),
            "created": np.floor(START - r.random(p) * 3600),
            "nominated": np.full(p, -1),
        }
        # A pod in a hundred is resized upwards, and its kubelet has not followed.
        self.pods["held_cpu_m"] = self.pods["cpu_m"] / np.where(r.random(p) < 0.01, 2, 1)
        self.pods["held_mem"] = self.pods["mem"].copy()
        self._derive(np.arange(n))

    @staticmethod
    def _revision(number):
        """The hash of a pod template, as the names of ReplicaSets have it."""
        return f"{(number + 1) * 2654435761 % 2**32:08x}9c"

    def _derive(self, which):
        """Write what the fold derives for nodes: sums over their pods."""
        node, n = self.pods["node"], len(self.nodes["name"])
        on, active = node >= 0, (node >= 0) & (self.pods["phase"] < 2)
        sums = {
            "req_cpu_m": np.bincount(node[active], self.pods["cpu_m"][active], n),
            "req_mem": np.bincount(node[active], self.pods["mem"][active], n),
            "req_pods": np.bincount(node[active], minlength=n),
            "held_cpu_m": np.bincount(node[active], self.pods["held_cpu_m"][active], n),
            "held_mem": np.bincount(node[active], self.pods["held_mem"][active], n),
        }
        for name, values in sums.items():
            self.nodes[name][which] = values[which]
        for phase in range(5):
            self.nodes["phases"][which, phase] = np.bincount(node[on & (self.pods["phase"] == phase)], minlength=n)[
                which
            ]
        self.nodes["numa_req"][which, 0] = np.minimum(16, self.nodes["req_cpu_m"][which] / 1000 * 0.6)
        self.nodes["numa_req"][which, 1] = np.minimum(16, self.nodes["req_cpu_m"][which] / 1000 * 0.4)

    def first(self):
        """The frames that a page gets when it subscribes: dictionary, nodes, pods."""
        about = {"rv": float(self.rv), "time": self.time, "flags": frames.REPLACES}
        return [
            frames.frame(frames.DICT, {"strings": self.strings[1:], "from": 1}, rv=self.rv, time=self.time),
            frames.columns(frames.NODES, self.nodes, frames.NODE_COLUMNS, stored=frames.smallest, **about),
            frames.columns(frames.PODS, self.pods, frames.POD_COLUMNS, stored=frames.smallest, **about),
        ]

    def changes(self, number, seconds):
        """Move `number` pods on: a pending one is bound, a running one ends, an ended one is pending again."""
        self.time += seconds
        self.rv += number
        rows = np.unique(self.random.integers(0, len(self.pods["name"]), number))
        before = self.pods["node"][rows].copy()
        phase = self.pods["phase"][rows]
        bound = phase == 0
        self.pods["node"][rows] = np.where(
            bound, self.random.integers(0, len(self.nodes["name"]), len(rows)), np.where(phase >= 2, -1, before)
        )
        self.pods["phase"][rows] = np.where(bound, 1, np.where(phase == 1, self.random.integers(2, 4, len(rows)), 0))
        self.pods["pool"][rows] = np.where(self.pods["node"][rows] >= 0, 0, 2)
        touched = np.unique(np.concatenate([before, self.pods["node"][rows]]))
        touched = touched[touched >= 0]
        self._derive(touched)
        about = {"rv": float(self.rv), "time": self.time}
        return [
            frames.delta(
                "nodes", touched, {k: v[touched] for k, v in self.nodes.items()}, frames.NODE_COLUMNS, **about
            ),
            frames.delta("pods", rows, {k: v[rows] for k, v in self.pods.items()}, frames.POD_COLUMNS, **about),
        ]
