"""Columns at any version: one row for each version of a pod or node, with the version that replaces it. Pure.

The state at a version is all rows that are not replaced by then, so that no versions have to be folded to show
it: one pass over all rows, in C, finds it, however far away it is. A complete recording contains these rows;
for one that is torn, or grows, they are made from its bodies. Rows have the slots that folding gives them, so
both give the same columns.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from lab.recordings import frames, rows
from lab.recordings.format import DELETED, Version
from lab.recordings.frames import NODE_COLUMNS, POD_COLUMNS, Array, FrameError, Spec
from lab.recordings.model import Change, Model
from lab.recordings.moves import Move
from lab.recordings.roles import KnownRoles
from lab.recordings.rows import PODS, POOLS, ClaimRow, NumaRow, SliceRow
from services.api.errors import UNREADABLE

NEVER: Final = 2.0**63
_COMMON: Final = (
    Spec("rv", "f64"),
    Spec("over", "f64"),
    Spec("slot", "u32"),
    Spec("strings", "u32"),
    Spec("uid", "u32"),
)
"""Common columns of rows: the version, the one that replaces it, the slot, the number of strings known with it,
and the uid, whose number is after all strings that a page knows.
"""
_DERIVED: Final = frozenset(
    (
        "node",
        "nominated",
        "pool",
        "numa",
        "devices",
        "used_devices",
        "numa_req",
        "phases",
        "req_cpu_m",
        "req_mem",
        "req_pods",
    )
)
_SUMS_OF_NODES: Final = frozenset(("held_cpu_m", "held_mem"))
"""Columns that are derived for nodes but stored for pods."""
_POD_OWN: Final = tuple(each for each in POD_COLUMNS if each.name not in _DERIVED)
_NODE_OWN: Final = tuple(each for each in NODE_COLUMNS if each.name not in _DERIVED | _SUMS_OF_NODES)
POD_ROWS: Final = (
    *_COMMON,
    *_POD_OWN,
    Spec("node_name", "u32"),
    Spec("nominated_name", "u32"),
    Spec("own_devices", "f64"),
)
NODE_ROWS: Final = (*_COMMON, *_NODE_OWN, Spec("own_devices", "f64"), Spec("all_pods", "f64"))
MOVE_ROWS: Final = (Spec("t", "f64"), Spec("uid", "u32"), Spec("pool", "u8"))
_OTHERS: Final[dict[str, type[Any]]] = {rows.TOPOLOGIES: NumaRow, rows.SLICES: SliceRow, rows.CLAIMS: ClaimRow}


class Source(Protocol):
    """Source of the rows: a recording."""

    def versions(self, after_rv: int = 0) -> Iterable[Version]:
        """Yield the versions."""

    def change(self, version: Version) -> Change:
        """Return the change that a version made."""

    def moves(self) -> Iterable[Move]:
        """Yield the moves of pods in the scheduling queue."""


class Other(NamedTuple):
    """A row of a kind that is shown only with nodes: its version, the one that replaces it, its object and values."""

    rv: int
    over: float
    resource: str
    namespace: str
    name: str
    row: Any


class _Growing:
    """A table of rows under construction."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = specs
        self._values: dict[str, list[Any]] = {spec.name: [] for spec in specs}
        self._newest: dict[str, int] = {}

    def add(self, key: str, values: Mapping[str, Any]) -> None:
        """Add the newest row of that key."""
        self._newest[key] = len(self._values["over"])
        for name, found in self._values.items():
            found.append(values[name])

    def end(self, key: str, rv: int) -> None:
        """Have the newest row of that key be over."""
        place = self._newest.pop(key, None)
        if place is not None:
            self._values["over"][place] = rv

    def arrays(self) -> dict[str, Array]:
        return {spec.name: np.asarray(self._values[spec.name], frames.TYPES[spec.type]) for spec in self.specs}


class PastColumns:
    """The rows of all versions. `count`: the number of versions from which they were made."""

    def __init__(
        self,
        count: int,
        strings: list[str],
        pods: dict[str, Array],
        nodes: dict[str, Array],
        moves: dict[str, Array],
        others: Sequence[Other],
        roles: Mapping[str, str],
    ) -> None:
        self.count, self.strings, self.pods, self.nodes, self.moves = count, strings, pods, nodes, moves
        self.others, self.roles = others, roles
        self._sizes = {id(table): np.maximum.accumulate(table["slot"].astype(np.int64) + 1) for table in (pods, nodes)}
        self._other_rvs = np.fromiter((each.rv for each in others), np.float64, len(others))
        self._other_overs = np.fromiter((each.over for each in others), np.float64, len(others))

    def model_at(self, rv: int, t: float) -> Model:
        """Return the model at a version that ends a group and was committed at `t`."""
        model = Model(KnownRoles(self.roles))
        model.rv, model.time = rv, t
        nodes, pods = self._live(self.nodes, rv), self._live(self.pods, rv)
        known = max(self._strings_at(self.nodes, rv), self._strings_at(self.pods, rv))
        others = [self.others[i] for i in np.flatnonzero((self._other_rvs <= rv) & (self._other_overs > rv)).tolist()]
        pools = np.zeros(len(self.strings), np.uint8)
        moved = int(np.searchsorted(self.moves["t"], t, "right"))
        pools[self.moves["uid"][:moved]] = self.moves["pool"][:moved]
        sizes = (self._size(self.nodes, rv), self._size(self.pods, rv))
        model.restore(self.strings, known, nodes, pods, sizes, pools, [(each.resource, each.row) for each in others])
        return model

    @staticmethod
    def _strings_at(table: dict[str, Array], rv: int) -> int:
        count = int(np.searchsorted(table["rv"], rv, "right"))
        return int(table["strings"][count - 1]) if count else 1

    def _size(self, table: dict[str, Array], rv: int) -> int:
        count = int(np.searchsorted(table["rv"], rv, "right"))
        return int(self._sizes[id(table)][count - 1]) if count else 0

    @staticmethod
    def _live(table: dict[str, Array], rv: int) -> dict[str, Array]:
        count = int(np.searchsorted(table["rv"], rv, "right"))
        live = np.flatnonzero(table["over"][:count] > rv)
        return {name: values[live] for name, values in table.items()}

    def encode(self) -> bytes:
        """Return the rows as a member of a recording: frames, each preceded by its length."""
        others = [[each.rv, each.over, each.resource, each.namespace, each.name, each.row] for each in self.others]
        parts = [
            frames.strings_frame(self.strings, 0, self.count, 0.0),
            frames.rows_frame(POD_ROWS, self.pods),
            frames.rows_frame(NODE_ROWS, self.nodes),
            frames.rows_frame(MOVE_ROWS, self.moves),
            frames.document_frame(0, {"others": msgspec.to_builtins(others), "roles": dict(self.roles)}, 0, 0.0),
        ]
        return b"".join(len(each).to_bytes(4, "little") + each for each in parts)


def read_past(data: bytes, count: int) -> PastColumns | None:
    """Return the rows that a recording holds for its `count` versions; None if it has none for that count."""
    if not data:
        return None
    try:
        raw, parts, place = zlib.decompress(data, 31), [], 0
        while place < len(raw):
            size = int.from_bytes(raw[place : place + 4], "little")
            parts.append(frames.read_frame(raw[place + 4 : place + 4 + size]))
            place += 4 + size
        strings, pods, nodes, moves, rest = parts
        wanted = ((pods, POD_ROWS), (nodes, NODE_ROWS), (moves, MOVE_ROWS))
        if strings.rv != count or any(spec.name not in frame.columns for frame, specs in wanted for spec in specs):
            return None
        others = [
            Other(rv, over, resource, namespace, name, msgspec.convert(row, _OTHERS[resource]))
            for rv, over, resource, namespace, name, row in rest.header["others"]
        ]
        tables = (pods.columns, nodes.columns, moves.columns)
        return PastColumns(count, strings.header["strings"], *tables, others, rest.header["roles"])
    except (zlib.error, FrameError, *UNREADABLE, ValueError, LookupError):
        return None


def past_of(source: Source) -> PastColumns:
    """Fold all versions once and keep every row."""
    model = Model()
    pods, nodes = _Growing(POD_ROWS), _Growing(NODE_ROWS)
    others: list[Other] = []
    newest: dict[tuple[str, str, str], int] = {}
    roles: dict[str, str] = {}
    uids: dict[str, int] = {}
    count = 0

    for version in source.versions():
        count += 1
        change = source.change(version)
        before = model.uid_of(version.ns, version.name) if version.resource == PODS else ""
        model.apply(version.rv, version.t, version.group_end, (change,))
        match version.resource:
            case "pods":
                row = model.pod_row(version.ns, version.name)
                if before:
                    pods.end(before, version.rv)
                if row is not None:
                    roles[row.uid] = model.role_of(row.uid)
                    values = _own(model.pods, row.uid, _POD_OWN)
                    extra = {"node_name": model.number(row.node), "nominated_name": model.number(row.nominated)}
                    common = _common(version.rv, model.pods, row.uid, model, uids)
                    pods.add(row.uid, {**values, **extra, "own_devices": row.devices, **common})
            case "nodes":
                nodes.end(version.name, version.rv)
                node = model.node_row(version.name)
                if node is not None:
                    values = _own(model.nodes, node.uid, _NODE_OWN)
                    common = _common(version.rv, model.nodes, node.uid, model, uids)
                    nodes.add(version.name, {**values, "own_devices": node.devices, "all_pods": node.pods, **common})
            case rows.TOPOLOGIES | rows.SLICES | rows.CLAIMS:
                if (place := newest.pop(version.key, None)) is not None:
                    others[place] = others[place]._replace(over=version.rv)
                other_row = None if version.type == DELETED else model.row_of(change)
                if other_row is not None:
                    newest[version.key] = len(others)
                    others.append(Other(version.rv, NEVER, version.resource, version.ns, version.name, other_row))
    moves = [(each.t, each.uid, POOLS.index(each.pool) if each.pool in POOLS else 0) for each in source.moves()]
    # Pods that no version names are in no table.
    known = sorted((move for move in moves if move[1] in uids), key=lambda move: move[0])
    columns: dict[str, Array] = {
        "t": np.asarray([t for t, _, _ in known], np.float64),
        "uid": np.asarray([uids[uid] for _, uid, _ in known], np.uint32),
        "pool": np.asarray([pool for _, _, pool in known], np.uint8),
    }
    tables = pods.arrays(), nodes.arrays(), columns
    for table in tables:
        table["uid"] += np.uint32(len(model.strings))
    return PastColumns(count, [*model.strings, *uids], *tables, others, roles)


def _common(rv: int, table: Any, uid: str, model: Model, uids: dict[str, int]) -> dict[str, Any]:
    number = uids.setdefault(uid, len(uids))
    return {"rv": rv, "over": NEVER, "slot": table.slots[uid], "strings": len(model.strings), "uid": number}


def _own(table: Any, uid: str, specs: Sequence[Spec]) -> dict[str, Any]:
    slot = table.slots[uid]
    return {spec.name: table[spec.name][slot] for spec in specs}
