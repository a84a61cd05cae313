"""All nodes as arrays: one array per property, one row per node, changed in place as nodes and pods change.

A cycle filters and scores every node with a handful of array operations. Amounts are float64: integers up
to 2**53 are exact there, and floats divide several times faster than integers.

Invariant: a row equals what `NodeInfo` has for its node; rows without a node have `valid` False. Every
change of a row is written to `log`, so that cached answers can be recomputed for those rows only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.node_info import AMOUNT_MAX, ANY_IP, HostPort, NodeInfo, PodInfo, count
from services.api.kinds.node import ContainerImage, Node, Taint


@dataclass(slots=True)
class ImageState:
    """The size of an image and the rows that have it.

    `size_bytes` is what the first node reported; upstream does not compare either.
    """

    size_bytes: int
    rows: dict[int, None] = field(default_factory=dict)


class Images:
    """The rows of each container image, by name; falsy while no node reports any.

    Source: scheduler-queue-and-cycles 6 (ImageLocality).
    """

    def __init__(self) -> None:
        self._states: dict[str, ImageState] = {}
        self._by_row: dict[int, tuple[ContainerImage, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def get(self, name: str) -> ImageState | None:
        """Return the image's size and rows, or None."""
        return self._states.get(name)

    def set(self, row: int, images: Sequence[ContainerImage]) -> bool:
        """Replace the images of a node; return whether anything changed."""
        new = tuple(images)
        old = self._by_row.get(row, ())
        if new == old:
            return False
        for name in [name for image in old for name in image.names]:
            state = self._states.get(name)
            if state is not None and row in state.rows:
                del state.rows[row]
                if not state.rows:
                    del self._states[name]
        for image in new:
            for name in image.names:
                self._states.setdefault(name, ImageState(image.size_bytes)).rows[row] = None
        if new:
            self._by_row[row] = new
        else:
            self._by_row.pop(row, None)
        return True


Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Scores = NDArray[np.float64]
Ids = NDArray[np.intp]
"""Ids that stand for values; wide integers, because indexing by narrower ones converts them each time."""

GROWTH_MIN: Final = 64
LOG_MAX: Final = 65536
NAME_FIELD: Final = "metadata.name"
BASE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


class Columns:
    """The arrays, `capacity` rows long. Readers must not change them.

    `nodes[row]` is the NodeInfo of the row. `epoch` changes whenever arrays were reallocated, the log was cut
    or images moved: cached answers are then void. `layout` changes with the rows' labels and taints, and when
    rows come and go.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.epoch = 0
        self.layout = 0
        self.images = Images()
        self.log: list[int] = []
        self.nodes: list[NodeInfo | None] = []
        self.slots: dict[str, int] = {}
        self._free: list[int] = []
        self.valid: Mask = np.zeros(0, bool)
        self.unschedulable: Mask = np.zeros(0, bool)
        self.pod_count: Floats = np.zeros(0)
        self.pod_limit: Floats = np.zeros(0)
        self.claim_count: Floats = np.zeros(0)
        self.nonzero_cpu: Floats = np.zeros(0)
        self.nonzero_memory: Floats = np.zeros(0)
        self.taint_set: Ids = np.zeros(0, np.intp)
        self.feature_set: Ids = np.zeros(0, np.intp)
        self.allocatable: dict[str, Floats] = {}
        self.requested: dict[str, Floats] = {}
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_ids: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self.feature_sets: dict[tuple[str, ...], int] = {(): 0}
        self._labels: dict[str, Ids] = {}
        self._label_values: dict[str, dict[str, int]] = {}
        self._port_users: dict[tuple[str, int], dict[int, dict[str, int]]] = {}
        for resource in BASE_RESOURCES:
            self._add_resource(resource)

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.slots)

    def set_node(self, info: NodeInfo) -> None:
        """Give the node a row, or rewrite its row from the changed node; pods on it are kept."""
        assert info.node is not None
        row = info.slot
        is_new = row < 0
        if is_new:
            if not self._free:
                self._grow(max(GROWTH_MIN, self.capacity // 16))
            row = info.slot = self._free.pop()
            self.layout += 1
            self.nodes[row] = info
            self.slots[info.name] = row
            self.valid[row] = True
            for port, count in info.used_ports.items():
                self._count_port(row, port, count)
        node = info.node
        for resource in info.allocatable:
            if resource != "pods" and resource not in self.allocatable:
                self._add_resource(resource)
        for resource, column in self.allocatable.items():
            column[row] = min(info.allocatable.get(resource, 0), AMOUNT_MAX)
        self.pod_limit[row] = info.allocatable.get("pods", 0)
        self.unschedulable[row] = node.spec.unschedulable
        features = node.status.declared_features
        self.feature_set[row] = self.feature_sets.setdefault(features, len(self.feature_sets))
        if self.images.set(row, node.status.images) or (is_new and self.images):
            self.epoch += 1
        self._set_identity(row, node)
        self._write_pods(info)
        self._note(row)

    def _set_identity(self, row: int, node: Node) -> None:
        """Write the row's taints and labels, noticing a change."""
        taints = self._taint_id(node.spec.taints)
        is_changed = taints != self.taint_set[row]
        self.taint_set[row] = taints
        for key, ids in self._labels.items():
            value = self._value_id(key, _label(node, key))
            is_changed = is_changed or value != ids[row]
            ids[row] = value
        if is_changed:
            self.layout += 1

    def remove_node(self, info: NodeInfo) -> None:
        """Remove the node's row; its NodeInfo may live on with pods."""
        row = info.slot
        self.layout += 1
        if self.images:
            self.images.set(row, ())
            self.epoch += 1
        for port in info.used_ports:
            self._port_users[port[1], port[2]].pop(row, None)
        info.slot = -1
        del self.slots[info.name]
        self.nodes[row] = None
        self.valid[row] = False
        for column in self.allocatable.values():
            column[row] = 1.0
        self._free.append(row)
        self._note(row)

    def pods_changed(self, info: NodeInfo, pod: PodInfo, sign: int) -> None:
        """Update the row for one pod that was added to (`sign` 1) or removed from (-1) the node."""
        row = info.slot
        if row < 0:
            return
        for resource, _ in pod.requests.wanted:
            column = self.requested.get(resource)
            if column is None:
                self._add_resource(resource)
                column = self.requested[resource]
            column[row] = info.requested[resource]
        self.pod_count[row] = len(info.pods)
        self.nonzero_cpu[row] = info.nonzero_cpu
        self.nonzero_memory[row] = info.nonzero_memory
        if pod.claims:
            self.claim_count[row] = len(info.claims)
        for port in pod.ports:
            self._count_port(row, port, sign)
        self._note(row)

    def full(self, value: bool) -> Mask:
        """Return a new mask with all rows set to `value`."""
        return np.full(self.capacity, value)

    def mask_of(self, names: Sequence[str]) -> Mask:
        """Return a mask of the named nodes; unknown names are ignored."""
        mask = np.zeros(self.capacity, bool)
        for name in names:
            row = self.slots.get(name)
            if row is not None:
                mask[row] = True
        return mask

    def label_ids(self, key: str) -> tuple[Ids, dict[str, int]]:
        """Return, for a label key, each row's value id (0: the label is missing) and the ids by value.

        The pseudo-key `metadata.name` gives the node's name, for `matchFields`.
        """
        ids = self._labels.get(key)
        if ids is None:
            self._label_values[key] = {}
            ids = np.zeros(self.capacity, np.intp)
            for info in self.nodes:
                if info is not None and info.node is not None:
                    ids[info.slot] = self._value_id(key, _label(info.node, key))
            self._labels[key] = ids
        return ids, self._label_values[key]

    def label_mask(self, key: str, accepts: Callable[[str | None], bool]) -> Mask:
        """Return the rows whose value of the label (None: missing) is accepted; each value is tested once."""
        ids, values = self.label_ids(key)
        results = np.fromiter((accepts(v) for v in (None, *values)), bool, count=len(values) + 1)
        return results[ids]

    def taint_mask(self, accepts: Callable[[tuple[Taint, ...]], bool]) -> Mask | None:
        """Return the rows whose taints are accepted; None when no node has taints."""
        if len(self.taint_sets) == 1:
            return None
        results = np.fromiter((accepts(taints) for taints in self.taint_sets), bool, count=len(self.taint_sets))
        return results[self.taint_set]

    def feature_mask(self, accepts: Callable[[tuple[str, ...]], bool]) -> Mask:
        """Return the rows whose declared features are accepted; each distinct list is tested once."""
        results = np.fromiter(map(accepts, self.feature_sets), bool, count=len(self.feature_sets))
        return results[self.feature_set]

    def port_conflicts(self, wanted: Sequence[HostPort]) -> Mask | None:
        """Return the rows where one of the host ports is taken; None when no row has a conflict."""
        mask: Mask | None = None
        for ip, protocol, number in wanted:
            for row, addresses in self._port_users.get((protocol, number), {}).items():
                if ip == ANY_IP or ip in addresses or ANY_IP in addresses:
                    mask = np.zeros(self.capacity, bool) if mask is None else mask
                    mask[row] = True
        return mask

    def _note(self, row: int) -> None:
        self.log.append(row)
        if len(self.log) > LOG_MAX:
            self.log.clear()
            self.epoch += 1

    def _grow(self, by: int) -> None:
        self.epoch += 1
        self.layout += 1
        old, self.capacity = self.capacity, self.capacity + by
        self.nodes.extend([None] * by)
        self._free.extend(range(self.capacity - 1, old - 1, -1))
        for name in (
            "valid",
            "unschedulable",
            "pod_count",
            "pod_limit",
            "claim_count",
            "nonzero_cpu",
            "nonzero_memory",
            "taint_set",
            "feature_set",
        ):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros(by, array.dtype)]))
        for resource, column in self.allocatable.items():
            # Ones, so that rows without a node do not force callers to guard a division.
            self.allocatable[resource] = np.concatenate([column, np.ones(by)])
        for resource, column in self.requested.items():
            self.requested[resource] = np.concatenate([column, np.zeros(by)])
        for key, ids in self._labels.items():
            self._labels[key] = np.concatenate([ids, np.zeros(by, np.intp)])

    def _add_resource(self, resource: str) -> None:
        self.allocatable[resource] = np.zeros(self.capacity)
        self.requested[resource] = np.zeros(self.capacity)
        for info in self.nodes:
            if info is not None:
                self.requested[resource][info.slot] = info.requested.get(resource, 0)

    def _write_pods(self, info: NodeInfo) -> None:
        row = info.slot
        for resource in info.requested:
            if resource not in self.requested:
                self._add_resource(resource)
        for resource, column in self.requested.items():
            column[row] = info.requested.get(resource, 0)
        self.pod_count[row] = len(info.pods)
        self.claim_count[row] = len(info.claims)
        self.nonzero_cpu[row] = info.nonzero_cpu
        self.nonzero_memory[row] = info.nonzero_memory

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        key = tuple((t.key, t.value, t.effect) for t in taints)
        found = self._taint_ids.get(key)
        if found is None:
            found = self._taint_ids[key] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return found

    def _value_id(self, key: str, value: str | None) -> int:
        if value is None:
            return 0
        values = self._label_values[key]
        return values.setdefault(value, len(values) + 1)

    def _count_port(self, row: int, port: HostPort, change: int) -> None:
        ip, protocol, number = port
        rows = self._port_users.setdefault((protocol, number), {})
        addresses = rows.setdefault(row, {})
        count(addresses, ip, change)
        if not addresses:
            del rows[row]


def _label(node: Node, key: str) -> str | None:
    return node.metadata.name if key == NAME_FIELD else node.metadata.labels.get(key)
