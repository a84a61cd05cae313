"""Turn rows into columns: the data that a page shows of a mesh at one version. Pure.

Changes are applied in the order of versions. A row keeps its number (its slot) while its object lives, and the
lowest free number is used again, so that a picture of one pixel a pod does not jump. Sums over a node's pods
are integers, so that they are the same however they were reached.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from lab.recordings import frames, rows
from lab.recordings.format import DELETED
from lab.recordings.frames import NODE_COLUMNS, POD_COLUMNS, Array, Spec
from lab.recordings.roles import Roles, parts_of, role_of_parts
from lab.recordings.rows import CLAIMS, NODES, PODS, POOLS, SLICES, TOPOLOGIES, NodeRow, NumaRow, PodRow
from services.api.meta import Document

SHOWN: Final = frozenset((PODS, NODES, TOPOLOGIES, SLICES, CLAIMS))
"""Kinds whose bodies make rows; of all other kinds only the owners are used, for roles."""
ENDED: Final = (rows.PHASES.index("Succeeded"), rows.PHASES.index("Failed"))
"""Phases of pods that no longer request anything."""
OWN_NOTHING: Final = frozenset(("Event", "Lease"))
"""Kinds that never own objects; there are many objects of them."""
_UNSHOWN: Final = (Spec("node_name", "u32"), Spec("nominated_name", "u32"), Spec("own_devices", "f64"))
"""Values of a pod besides its columns, kept so that its row need not be kept as well."""
_STRINGS: Final = {
    NODES: ("name", "zone", "taints"),
    PODS: ("name", "ns", "owner", "role", "reason", "node_name", "nominated_name"),
}
"""Columns whose values are numbers of strings."""
UNUSED_MAX: Final = 50_000
_U16_MAX: Final = 65_535
_ROWS_BEGUN: Final = 64

Row = PodRow | NodeRow | NumaRow | rows.SliceRow | rows.ClaimRow


class Change(msgspec.Struct, frozen=True):
    """Change of one object. `body`: its JSON, or the document; None if it is not recorded: then `facts` are the fields
    from the event log. `owners`: uids, None to read them from the body. `row`: that of the body, if it is known.
    """

    type: str
    resource: str
    kind: str
    namespace: str
    name: str
    uid: str
    body: bytes | Document | None = None
    facts: Mapping[str, Any] = {}
    owners: tuple[str, ...] | None = None
    row: Row | None = None


class Table:
    """Columns that grow, and the list of their free rows. They are stored row by row, so that a row is read and
    written at once.
    """

    def __init__(self, specs: tuple[Spec, ...], unshown: tuple[Spec, ...] = ()) -> None:
        """`unshown`: columns that `of` and `all` leave out."""
        self.shown, self.specs = tuple(spec.name for spec in specs), specs + unshown
        self.size = 0
        """So many rows were ever used at one time."""
        self.slots: dict[str, int] = {}
        """By uid."""
        self.changed: dict[int, None] = {}
        self._free: list[int] = []
        self._dtype = np.dtype(
            [(each.name, frames.TYPES[each.type], each.width if each.width > 1 else ()) for each in self.specs]
        )
        self._hold(np.zeros(_ROWS_BEGUN, self._dtype))

    def _hold(self, rows: Array) -> None:
        self._rows, self._columns = rows, {spec.name: rows[spec.name] for spec in self.specs}

    def __getitem__(self, name: str) -> Array:
        return self._columns[name][: self.size]

    def take(self, uid: str) -> int:
        """Return the row of that uid; for a new uid the lowest free row."""
        if (slot := self.slots.get(uid)) is not None:
            return slot
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            slot = self.size
            self.size += 1
            if self.size > len(self._rows):
                self._hold(np.concatenate((self._rows, np.zeros_like(self._rows))))
        self.slots[uid] = slot
        return slot

    def restore(self, size: int, slots: Array, columns: Mapping[str, Array]) -> None:
        """Replace all rows by these, in these slots; `name` assigns the uids."""
        self.size = size
        self._hold(np.zeros(max(size, _ROWS_BEGUN), self._dtype))
        for name, values in columns.items():
            self._columns[name][slots] = values

    def name(self, slots: Mapping[str, int]) -> None:
        """Assign uids to the rows after `restore`."""
        self.slots = dict(slots)
        self._free = sorted(set(range(self.size)) - set(self.slots.values()))

    def release(self, uid: str) -> int | None:
        """Free the row of that uid; return its number, None if it had none."""
        slot = self.slots.pop(uid, None)
        if slot is not None:
            heapq.heappush(self._free, slot)
            self._rows[slot] = 0
            self.changed[slot] = None
        return slot

    def set(self, slot: int, values: Mapping[str, Any]) -> None:
        """Set columns of a row."""
        for name, value in values.items():
            self._columns[name][slot] = value
        self.changed[slot] = None

    def row(self, slot: int) -> tuple[Any, ...]:
        """Return a row as plain Python values, in the order of `specs`."""
        found: tuple[Any, ...] = self._rows.item(slot)
        return found

    def put(self, slot: int, row: tuple[Any, ...]) -> None:
        """Set a row to values in the order of `specs`."""
        self._rows[slot] = row
        self.changed[slot] = None

    def fill(self, slots: Sequence[int], values: Mapping[str, Any]) -> None:
        """Set columns of several rows, each column's values in the order of `slots`."""
        for name, column in values.items():
            self._columns[name][slots] = column
        self.changed.update(dict.fromkeys(slots))

    def of(self, rows_wanted: Array) -> dict[str, Array]:
        """Return these rows."""
        found = self._rows[rows_wanted]
        return {name: found[name] for name in self.shown}

    def all(self) -> dict[str, Array]:
        """Return all rows, free ones included."""
        return {name: self._columns[name][: self.size] for name in self.shown}


class _Use:
    """Sums over the pods that name a node."""

    __slots__ = ("cpu", "devices", "held_cpu", "held_memory", "memory", "phases", "requesting")

    def __init__(self) -> None:
        self.cpu = self.memory = self.devices = self.requesting = self.held_cpu = self.held_memory = 0
        self.phases = [0] * len(rows.PHASES)

    def add(self, pod: "_Pod", sign: int) -> None:
        self.phases[pod.phase] += sign
        if pod.phase not in ENDED:
            self.cpu += sign * int(pod.cpu_m)
            self.memory += sign * int(pod.mem)
            self.devices += sign * int(pod.own_devices)
            self.requesting += sign
            self.held_cpu += sign * int(pod.held_cpu_m)
            self.held_memory += sign * int(pod.held_mem)


class _Devices:
    """Devices that drivers publish for nodes, and devices allocated to claims; of each pool the newest generation."""

    def __init__(self) -> None:
        self._slices: dict[tuple[str, str], dict[str, rows.SliceRow]] = {}
        self._pool_of: dict[str, tuple[str, str]] = {}
        self._claims: dict[tuple[str, str], rows.ClaimRow] = {}
        self._held: dict[tuple[str, str], dict[str, int]] = {}
        self._by_node: dict[str, dict[tuple[str, str], None]] = {}

    def on_slice(self, row: rows.SliceRow | None, name: str) -> set[str]:
        """Take a slice, or None that it is gone; return the nodes whose devices may have changed."""
        touched: set[str] = set()
        pool = self._pool_of.pop(name, None)
        if pool is not None:
            touched |= self._nodes_of(pool)
            self._slices[pool].pop(name, None)
        if row is not None:
            pool = self._pool_of[name] = row.driver, row.pool
            self._slices.setdefault(pool, {})[name] = row
            touched |= self._nodes_of(pool)
            self._by_node.setdefault(row.node, {})[pool] = None
        return touched

    def on_claim(self, row: rows.ClaimRow | None, namespace: str, name: str) -> set[str]:
        """Take a claim, or None that it is gone; return the nodes whose devices may have changed."""
        touched: set[str] = set()
        before = self._claims.pop((namespace, name), None)
        for claim_row, sign in ((before, -1), (row, 1)):
            for driver, pool, device in claim_row.devices if claim_row is not None else ():
                held = self._held.setdefault((driver, pool), {})
                held[device] = held.get(device, 0) + sign
                touched |= self._nodes_of((driver, pool))
        if row is not None:
            self._claims[namespace, name] = row
        return touched

    @property
    def is_known(self) -> bool:
        """Whether there are any slices."""
        return bool(self._pool_of)

    def of(self, node: str) -> tuple[int, int]:
        """Return how many devices are published for a node, and how many of these some claim has."""
        published = used = 0
        for pool in self._by_node.get(node, {}):
            slices = self._slices.get(pool, {}).values()
            newest = max((each.generation for each in slices), default=0)
            names = {
                device for each in slices if each.generation == newest and each.node == node for device in each.devices
            }
            held = self._held.get(pool, {})
            published += len(names)
            used += sum(1 for name in names if held.get(name, 0) > 0)
        return published, used

    def keys(self, resource: str) -> list[tuple[str, str]]:
        """Return namespace and name of all slices or claims."""
        if resource == SLICES:
            return [("", name) for name in self._pool_of]
        return list(self._claims) if resource == CLAIMS else []

    def _nodes_of(self, pool: tuple[str, str]) -> set[str]:
        return {each.node for each in self._slices.get(pool, {}).values() if each.node}


class _Pod(NamedTuple):
    """A row of the pods' table: POD_COLUMNS and `_UNSHOWN`."""

    name: int
    ns: int
    node: int
    phase: int
    pool: int
    priority: int
    cpu_m: float
    mem: float
    owner: int
    role: int
    role_number: int
    flags: int
    reason: int
    created: float
    nominated: int
    held_cpu_m: float
    held_mem: float
    node_name: int
    nominated_name: int
    own_devices: float

    @property
    def sum_fields(self) -> tuple[float, ...]:
        """What its node's sums are made of."""
        return (self.node_name, self.phase, self.cpu_m, self.mem, self.own_devices, self.held_cpu_m, self.held_mem)


_NO_POD: Final = _Pod(0, 0, -1, *(0,) * 11, -1, *(0,) * 5)
assert _Pod._fields == tuple(spec.name for spec in (*POD_COLUMNS, *_UNSHOWN))


class _Restored(NamedTuple):
    """Data from which a model was restored."""

    strings: list[str]
    nodes: Mapping[str, Array]
    pods: Mapping[str, Array]
    pools: Array


def _pod_rows(strings: list[str], table: Mapping[str, Array]) -> Iterator[tuple[PodRow, int]]:
    names = ("name", "ns", "uid", "node_name", "owner", "reason", "nominated_name")
    texts = [[strings[number] for number in table[name].tolist()] for name in names]
    others = ("phase", "priority", "cpu_m", "mem", "own_devices", "flags", "created", "held_cpu_m", "held_mem", "slot")
    values = [table[name].tolist() for name in others]
    for (name, ns, uid, node, owner, reason, nominated), (
        phase,
        priority,
        cpu,
        memory,
        devices,
        flags,
        created,
        held_cpu,
        held_memory,
        slot,
    ) in zip(zip(*texts, strict=True), zip(*values, strict=True), strict=True):
        sizes, held = (int(cpu), int(memory), int(devices)), (int(held_cpu), int(held_memory))
        yield (
            PodRow(name, ns, uid, node, phase, priority, *sizes, owner, flags, reason, created, nominated, *held),
            slot,
        )


def _node_rows(strings: list[str], table: Mapping[str, Array]) -> Iterator[tuple[NodeRow, int]]:
    texts = [[strings[number] for number in table[name].tolist()] for name in ("name", "uid", "zone", "taints")]
    others = ("ready", "unschedulable", "cpu_m", "mem", "all_pods", "own_devices", "created", "slot")
    values = [table[name].tolist() for name in others]
    for (name, uid, zone, taints), (ready, is_off, cpu, memory, pods, devices, created, slot) in zip(
        zip(*texts, strict=True), zip(*values, strict=True), strict=True
    ):
        sizes = int(cpu), int(memory), int(pods), int(devices)
        yield NodeRow(name, uid, zone, ready, bool(is_off), taints, *sizes, created), slot


def _owners(change: Change) -> tuple[str, ...]:
    """Return the uids of the owners of a changed object."""
    if change.owners is not None:
        return change.owners
    return rows.owners_of(change.body) if change.body is not None else ()


class Model:
    """State of nodes and pods after the versions that were applied.

    `rv`, `time`: of the newest version, in seconds of the recording's clock; `is_in_group`: the group that was
    committed together with it is not complete.
    """

    def __init__(self, roles: Roles | None = None) -> None:
        self.rv, self.time, self.is_in_group = 0, 0.0, False
        self.strings: list[str] = [""]
        self.nodes, self.pods = Table(NODE_COLUMNS), Table(POD_COLUMNS, _UNSHOWN)
        self.roles = roles if roles is not None else Roles()
        self._numbers: dict[str, int] = {"": 0}
        self._sent_strings = 0
        self._pod_uids: dict[str, dict[str, str]] = {}
        """By namespace and name."""
        self._pools: dict[str, int] = {}
        self._node_rows: dict[str, NodeRow] = {}
        """By name."""
        self._uses: dict[str, _Use] = {}
        self._numa: dict[str, NumaRow] = {}
        self._devices = _Devices()
        self._stale: dict[str, None] = {}
        """Nodes whose sums are not in their columns yet."""
        self._restored: _Restored | None = None

    # -- changes ---------------------------------------------------------------------------------------

    def apply(self, rv: int, t: float, group_end: bool, changes: Iterable[Change]) -> None:
        """Apply the changes committed as version `rv` at `t`; `group_end` False: the group continues."""
        self._know()
        self.rv, self.time, self.is_in_group = rv, t, not group_end
        for change in changes:
            self._apply(change)

    def move(self, uid: str, pool: str, t: float | None = None) -> None:
        """Move a pod to that pool of the scheduling queue; "": to no pool."""
        self._know()
        self.time = self.time if t is None else t
        number = POOLS.index(pool) if pool in POOLS else 0
        if number:
            self._pools[uid] = number
        else:
            self._pools.pop(uid, None)
        slot = self.pods.slots.get(uid)
        if slot is not None:
            self.pods.set(slot, {"pool": number})

    def pool_of(self, uid: str) -> str:
        """Return the pod's pool of the scheduling queue; empty string if it is in none."""
        self._know()
        return POOLS[self._pools.get(uid, 0)]

    def uid_of(self, namespace: str, name: str) -> str:
        """Return the uid of a pod; empty string if there is no such pod."""
        self._know()
        return self._pod_uids.get(namespace, {}).get(name, "")

    def pod_row(self, namespace: str, name: str) -> PodRow | None:
        """Return the row of a pod, None when there is none."""
        return self._row_of_pod(self.uid_of(namespace, name))

    def _pod(self, uid: str) -> _Pod | None:
        """Return the columns of a pod, None when there is none with that uid."""
        slot = self.pods.slots.get(uid)
        return _Pod._make(self.pods.row(slot)) if slot is not None else None

    def _row_of_pod(self, uid: str) -> PodRow | None:
        """Return what the columns say of a pod, None when there is none with that uid."""
        pod = self._pod(uid)
        if pod is None:
            return None
        text = self.strings
        return PodRow(
            name=text[pod.name],
            namespace=text[pod.ns],
            uid=uid,
            node=text[pod.node_name],
            phase=pod.phase,
            priority=pod.priority,
            cpu=int(pod.cpu_m),
            memory=int(pod.mem),
            devices=int(pod.own_devices),
            owner=text[pod.owner],
            flags=pod.flags,
            reason=text[pod.reason],
            created=pod.created,
            nominated=text[pod.nominated_name],
            held_cpu=int(pod.held_cpu_m),
            held_memory=int(pod.held_mem),
        )

    def role_of(self, uid: str) -> str:
        """Return the role of a pod; empty string if no pod has that uid."""
        pod = self._pod(uid)
        return role_of_parts(self.strings[pod.role], pod.role_number) if pod is not None else ""

    def keys(self, resource: str) -> list[tuple[str, str]]:
        """Return namespace and name of all objects of a kind that have rows."""
        self._know()
        match resource:
            case "pods":
                return [(namespace, name) for namespace, names in self._pod_uids.items() for name in names]
            case "nodes":
                return [("", name) for name in self._node_rows]
            case rows.TOPOLOGIES:
                return [("", name) for name in self._numa]
        return self._devices.keys(resource)

    def node_row(self, name: str) -> NodeRow | None:
        """Return the row of a node, None when there is none."""
        self._know()
        return self._node_rows.get(name)

    def _apply(self, change: Change) -> None:
        # The role of a pod is in its columns; what owns nothing has none that is asked for.
        if change.resource != PODS and change.kind not in OWN_NOTHING:
            if change.type == DELETED:
                self.roles.depart(change.uid)
            elif change.uid and not self.roles.knows(change.uid):
                self.roles.learn(change.uid, change.kind, change.namespace, change.name, _owners(change))
        if change.resource not in SHOWN:
            return
        row = None if change.type == DELETED else self.row_of(change)
        match change.resource:
            case "pods":
                self._set_pod(change, row if isinstance(row, PodRow) else None)
            case "nodes":
                self._set_node(change.name, row if isinstance(row, NodeRow) else None)
            case rows.TOPOLOGIES:
                if isinstance(row, NumaRow):
                    self._numa[change.name] = row
                else:
                    self._numa.pop(change.name, None)
                self._stale[change.name] = None
            case rows.SLICES:
                slice_row = row if isinstance(row, rows.SliceRow) else None
                self._stale |= dict.fromkeys(sorted(self._devices.on_slice(slice_row, change.name)))
            case rows.CLAIMS:
                claim = row if isinstance(row, rows.ClaimRow) else None
                self._stale |= dict.fromkeys(sorted(self._devices.on_claim(claim, change.namespace, change.name)))

    def row_of(self, change: Change) -> Row | None:
        """Return the row for a change that is no deletion; None if it cannot be read."""
        if change.row is not None:
            return change.row
        body = change.body
        match change.resource:
            case "pods" if body is None:
                before = self._row_of_pod(change.uid)
                return rows.pod_row_of_facts(change.namespace, change.name, change.uid, dict(change.facts), before)
            case "nodes" if body is None:
                known = self._node_rows.get(change.name)
                return rows.node_row_of_facts(change.name, change.uid, dict(change.facts), known)
        if body is None:
            return None
        readers: dict[str, Any] = {
            PODS: rows.pod_row,
            NODES: rows.node_row,
            TOPOLOGIES: rows.numa_row,
            SLICES: rows.slice_row,
            CLAIMS: rows.claim_row,
        }
        row: Row | None = readers[change.resource](body)
        return row

    def _set_pod(self, change: Change, row: PodRow | None) -> None:
        before = self._pod(row.uid) if row is not None else None
        if before is None:
            names = self._pod_uids.setdefault(change.namespace, {})
            # A uid that is another one than was known: the deletion between them was not seen.
            if (known := names.pop(change.name, None)) is not None:
                self._drop_pod(known)
            if row is not None:
                self._add_pod(change, row, names)
            elif not names:
                del self._pod_uids[change.namespace]
            return
        assert row is not None
        pod = self._pod_of(row, before)
        if pod == before:
            return
        if pod.sum_fields != before.sum_fields:
            self._count_pod(before, -1)
            self._count_pod(pod, 1)
        self.pods.put(self.pods.slots[row.uid], pod)

    def _add_pod(self, change: Change, row: PodRow, names: dict[str, str]) -> None:
        pod = self._pod_of(row, _NO_POD._replace(name=self.number(row.name), ns=self.number(row.namespace)))
        # One text, whoever holds it.
        names[self.strings[pod.name]] = row.uid
        role = self.roles.of_pod(row.uid, change.namespace, change.name, _owners(change), self.role_of)
        stem, role_number = parts_of(role)
        pod = pod._replace(role=self.number(stem), role_number=role_number, pool=self._pools.get(row.uid, 0))
        self._count_pod(pod, 1)
        self.pods.put(self.pods.take(row.uid), pod)

    def _pod_of(self, row: PodRow, before: _Pod) -> _Pod:
        """Return the columns of a row. `before`: of the same pod; what stays as it is, is taken from there."""
        number = self.number
        owner, reason, node_name = number(row.owner), number(row.reason), number(row.node)
        return _Pod(
            before.name,
            before.ns,
            before.node if node_name == before.node_name else self._slot_of_node(row.node),
            row.phase,
            before.pool,
            row.priority,
            row.cpu,
            row.memory,
            owner,
            before.role,
            before.role_number,
            row.flags,
            reason,
            row.created,
            self._slot_of_node(row.nominated),
            row.held_cpu,
            row.held_memory,
            node_name,
            number(row.nominated),
            row.devices,
        )

    def _drop_pod(self, uid: str) -> None:
        pod = self._pod(uid)
        assert pod is not None
        self._pools.pop(uid, None)
        self.pods.release(uid)
        self._count_pod(pod, -1)

    def _count_pod(self, pod: _Pod, sign: int) -> None:
        node = self.strings[pod.node_name]
        if not node:
            return
        use = self._uses.get(node)
        if use is None:
            use = self._uses[node] = _Use()
        use.add(pod, sign)
        if sign < 0 and not any(use.phases):
            del self._uses[node]
        self._stale[node] = None

    def _set_node(self, name: str, row: NodeRow | None) -> None:
        before = self._node_rows.get(name)
        if before is not None and (row is None or row.uid != before.uid):
            del self._node_rows[name]
            self.nodes.release(before.uid)
            self._point_at(name, -1)
        if row is None:
            return
        is_new = name not in self._node_rows
        slot = self.nodes.take(row.uid)
        self._node_rows[name] = row
        number = self.number
        self.nodes.set(
            slot,
            {
                "name": number(row.name),
                "zone": number(row.zone),
                "ready": row.ready,
                "unschedulable": row.unschedulable,
                "taints": number(row.taints),
                "cpu_m": row.cpu,
                "mem": row.memory,
                "pods": min(row.pods, _U16_MAX),
                "created": row.created,
            },
        )
        self._stale[name] = None
        if is_new:
            self._point_at(name, slot)

    def _point_at(self, name: str, slot: int) -> None:
        """Have the pods that name a node point at its row, -1 when it has none."""
        number = self._numbers.get(name, 0)
        for column, named in (("node", "node_name"), ("nominated", "nominated_name")) if number else ():
            for pod in np.flatnonzero(self.pods[named] == number).tolist():
                self.pods.set(pod, {column: slot})

    def _slot_of_node(self, name: str) -> int:
        row = self._node_rows.get(name) if name else None
        return self.nodes.slots[row.uid] if row is not None else -1

    def number(self, text: str) -> int:
        """Return the number of a string; a new string gets a new number."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.strings)
            self.strings.append(text)
        return number

    def _settle(self) -> None:
        """Write the sums of nodes into their columns."""
        names = [name for name in self._stale if name in self._node_rows]
        if names:
            rows_of = [self._node_rows[name] for name in names]
            none, idle = NumaRow(""), _Use()
            numa = [self._numa.get(name, none) for name in names]
            uses = [self._uses.get(name, idle) for name in names]
            devices = [self._devices.of(name) for name in names]
            self.nodes.fill(
                [self.nodes.slots[row.uid] for row in rows_of],
                {
                    "numa": np.array([each.allocatable for each in numa]) / 1000,
                    "devices": [row.devices + published for row, (published, _) in zip(rows_of, devices, strict=True)],
                    "req_cpu_m": [use.cpu for use in uses],
                    "req_mem": [use.memory for use in uses],
                    "req_pods": [min(use.requesting, _U16_MAX) for use in uses],
                    "used_devices": [use.devices + held for use, (_, held) in zip(uses, devices, strict=True)],
                    "phases": np.minimum([use.phases for use in uses], _U16_MAX),
                    "numa_req": np.array([each.allocated for each in numa]) / 1000,
                    "held_cpu_m": [use.held_cpu for use in uses],
                    "held_mem": [use.held_memory for use in uses],
                },
            )
        self._stale.clear()

    # -- a state that was not folded ---------------------------------------------------------------------

    def restore(
        self,
        strings: list[str],
        known: int,
        nodes: Mapping[str, Array],
        pods: Mapping[str, Array],
        sizes: tuple[int, int],
        pools: Array,
        others: Iterable[tuple[str, Row]],
    ) -> None:
        """Set the state to given rows of nodes, pods, and the other kinds.

        `nodes` and `pods` are columns of `index.NODE_ROWS` and `POD_ROWS`, `sizes` those of the tables. The first
        `known` of the strings are known; the others are uids, and strings of later versions. `pools`: by the number of
        a uid. `others`: rows of topologies, slices and claims.
        """
        self.strings = strings[:known]
        for resource, row in others:
            match row:
                case NumaRow():
                    self._numa[row.node] = row
                case rows.SliceRow():
                    self._devices.on_slice(row, row.name)
                case rows.ClaimRow():
                    self._devices.on_claim(row, row.namespace, row.name)
                case _:
                    raise ValueError(f"{resource}: no kind that a node is shown with")
        slots = np.full(len(strings), -1, np.int32)
        slots[nodes["name"]] = nodes["slot"]
        slots[0] = -1
        own = {spec.name: nodes[spec.name] for spec in NODE_COLUMNS if spec.name in nodes}
        self.nodes.restore(sizes[0], nodes["slot"], own | self._sums(nodes, pods))
        own = {spec.name: pods[spec.name] for spec in self.pods.specs if spec.name in pods}
        pointing = {name: slots[pods[f"{name}_name"]] for name in ("node", "nominated")}
        self.pods.restore(sizes[1], pods["slot"], own | pointing | {"pool": pools[pods["uid"]]})
        self._sent_strings = known
        self._restored = _Restored(strings, nodes, pods, pools)

    def _sums(self, nodes: Mapping[str, Array], pods: Mapping[str, Array]) -> dict[str, Array]:
        """Return what nodes have of their pods, topologies and devices, as `_settle` computes it for one."""
        count, at = len(self.strings), nodes["name"]
        requesting = ~np.isin(pods["phase"], ENDED)
        named = pods["node_name"][requesting]

        def sum_by_node(column: str) -> Array:
            found: Array = np.bincount(named, pods[column][requesting], count)[at]
            return found

        phases = [np.bincount(pods["node_name"][pods["phase"] == number], None, count)[at] for number in range(5)]
        devices = [self._devices.of(self.strings[number]) if self._devices.is_known else (0, 0) for number in at]
        published, held = np.asarray(devices, np.float64).reshape(-1, 2).T
        none = NumaRow("")
        numa = [self._numa.get(self.strings[number], none) for number in at] if self._numa else [none] * len(at)
        return {
            "req_cpu_m": sum_by_node("cpu_m"),
            "req_mem": sum_by_node("mem"),
            "req_pods": np.minimum(np.bincount(named, None, count)[at], _U16_MAX),
            "phases": np.minimum(np.stack(phases, axis=1), _U16_MAX),
            "devices": nodes["own_devices"] + published,
            "used_devices": sum_by_node("own_devices") + held,
            "held_cpu_m": sum_by_node("held_cpu_m"),
            "held_mem": sum_by_node("held_mem"),
            "numa": np.asarray([each.allocatable for each in numa], np.float64).reshape(-1, rows.NUMA_NODES) / 1000,
            "numa_req": np.asarray([each.allocated for each in numa], np.float64).reshape(-1, rows.NUMA_NODES) / 1000,
        }

    def _know(self) -> None:
        """Know what is needed to go on from a state that was restored; to show it, it is not."""
        if self._restored is None:
            return
        (strings, nodes, pods, pools), self._restored = self._restored, None
        self._numbers = {text: number for number, text in enumerate(self.strings)}
        self._pools = {strings[number]: int(pools[number]) for number in np.flatnonzero(pools)}
        for row, slot in _node_rows(strings, nodes):
            self._node_rows[row.name] = row
            self.nodes.slots[row.uid] = slot
        self.nodes.name(self.nodes.slots)
        for pod, slot in _pod_rows(strings, pods):
            self._pod_uids.setdefault(pod.namespace, {})[pod.name] = pod.uid
            self.pods.slots[pod.uid] = slot
            self._count_pod(_Pod._make(self.pods.row(slot)), 1)
        self.pods.name(self.pods.slots)
        self._stale.clear()

    # -- strings ---------------------------------------------------------------------------------------

    def compact(self) -> bool:
        """Forget strings that no row uses, once there are `UNUSED_MAX` more strings than rows; return whether any were.

        Strings then have other numbers: send `frames` to all readers.
        """
        self._know()
        if len(self.strings) <= UNUSED_MAX + 2 * (len(self.pods.slots) + len(self.nodes.slots)):
            return False
        columns = [(table, name) for table, of in ((self.nodes, NODES), (self.pods, PODS)) for name in _STRINGS[of]]
        used = np.unique(np.concatenate([np.zeros(1, np.uint32), *(table[name] for table, name in columns)]))
        places = np.zeros(len(self.strings), np.uint32)
        places[used] = np.arange(len(used), dtype=np.uint32)
        for table, name in columns:
            table[name][:] = places[table[name]]
        self.strings = [self.strings[number] for number in used.tolist()]
        self._numbers = {text: number for number, text in enumerate(self.strings)}
        self._sent_strings = len(self.strings)
        return True

    # -- frames ----------------------------------------------------------------------------------------

    @property
    def _flags(self) -> int:
        return frames.IN_GROUP if self.is_in_group else 0

    def columns(self, table: str) -> dict[str, Array]:
        """Return all rows of `nodes` or `pods`, as views that change with later changes."""
        self._settle()
        return (self.nodes if table == NODES else self.pods).all()

    def frames(self) -> list[bytes]:
        """Return the whole state: strings, nodes, pods.

        A reader that had nothing before may apply the next `delta` after it.
        """
        self._settle()
        flags = self._flags | frames.REPLACES
        return [
            frames.strings_frame(self.strings[1:], 1, self.rv, self.time, flags),
            frames.table_frame(NODES, self.nodes.all(), self.rv, self.time, flags),
            frames.table_frame(PODS, self.pods.all(), self.rv, self.time, flags),
        ]

    def forget_changes(self) -> None:
        """Reset `delta`, so that it returns only changes from now on."""
        self._settle()
        self._sent_strings = len(self.strings)
        for table in (self.nodes, self.pods):
            table.changed.clear()

    def delta(self) -> list[bytes]:
        """Return the changes since the last call: new strings and changed rows.

        If neither nodes nor pods changed, it is a frame without rows, which gives the version.
        """
        self._settle()
        delta_frames: list[bytes] = []
        if self._sent_strings < len(self.strings):
            begin = max(1, self._sent_strings)
            delta_frames.append(frames.strings_frame(self.strings[begin:], begin, self.rv, self.time, self._flags))
            self._sent_strings = len(self.strings)
        for name, table in ((NODES, self.nodes), (PODS, self.pods)):
            if not table.changed and (name == NODES or (len(delta_frames) > 0 and delta_frames[-1][0] == frames.DELTA)):
                continue
            changed = np.fromiter(sorted(table.changed), np.uint32, len(table.changed))
            delta_frames.append(frames.delta_frame(name, changed, table.of(changed), self.rv, self.time, self._flags))
            table.changed.clear()
        return delta_frames
