"""Encode columns as bytes and decode them: messages from a server to a page, and contents of a replay file. Pure.

A frame is little endian: kind u8, version u8, flags u16, rows u32, rv f64, time f64; then the length of a JSON
header as u32, the header (with spaces behind it, so that the data begins at a multiple of 8) and the data. The
layout is in docs/reference/recordings.md; the page's worker decodes the same.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.api.errors import UNREADABLE

FRAME_VERSION: Final = 1
DICT, NODES, PODS, DELTA, LINES, RATES, POOLS, JOB, ALARM, GAP = range(1, 11)
IN_GROUP, REPLACES = 1, 2
"""Flags of a frame: its version is inside a group that is not complete yet; it replaces everything known before."""
HEAD: Final = struct.Struct("<BBHIdd")
_LENGTH: Final = struct.Struct("<I")
ALIGNED: Final = 8
ROW: Final = "row"
SAME: Final = "same"
"""Encoding of a column in which all rows are equal: one row of values."""
TYPES: Final[dict[str, np.dtype[Any]]] = {
    "i8": np.dtype("<i1"),
    "u8": np.dtype("<u1"),
    "i16": np.dtype("<i2"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
    "i32": np.dtype("<i4"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}
_NARROW: Final = ("u8", "i8", "u16", "i16", "u32", "i32", "f32")
"""Smaller types in which a column may be stored, the smallest first."""
Array = NDArray[Any]


class FrameError(ValueError):
    """The bytes are no frame."""


class Spec(NamedTuple):
    """A column: its name, its type (a key of TYPES), and its number of values per row."""

    name: str
    type: str
    width: int = 1


NODE_COLUMNS: Final = (
    Spec("name", "u32"),
    Spec("zone", "u32"),
    Spec("ready", "u8"),
    Spec("unschedulable", "u8"),
    Spec("taints", "u32"),
    Spec("cpu_m", "f64"),
    Spec("mem", "f64"),
    Spec("pods", "u16"),
    Spec("numa", "f32", 8),
    Spec("devices", "f32"),
    Spec("created", "f64"),
    Spec("req_cpu_m", "f64"),
    Spec("req_mem", "f64"),
    Spec("req_pods", "u16"),
    Spec("used_devices", "f32"),
    Spec("phases", "u16", 5),
    Spec("numa_req", "f32", 8),
    Spec("held_cpu_m", "f64"),
    Spec("held_mem", "f64"),
)
POD_COLUMNS: Final = (
    Spec("name", "u32"),
    Spec("ns", "u32"),
    Spec("node", "i32"),
    Spec("phase", "u8"),
    Spec("pool", "u8"),
    Spec("priority", "i32"),
    Spec("cpu_m", "f64"),
    Spec("mem", "f64"),
    Spec("owner", "u32"),
    Spec("role", "u32"),
    Spec("role_number", "u32"),
    Spec("flags", "u16"),
    Spec("reason", "u32"),
    Spec("created", "f64"),
    Spec("nominated", "i32"),
    Spec("held_cpu_m", "f64"),
    Spec("held_mem", "f64"),
)
TABLES: Final = {"nodes": NODE_COLUMNS, "pods": POD_COLUMNS}
_FULL: Final = {"nodes": NODES, "pods": PODS}


class Frame(NamedTuple):
    """A decoded frame. `columns`: one value per row, or (rows, width); views into its bytes if stored whole."""

    kind: int
    flags: int
    rows: int
    rv: int
    time: float
    header: dict[str, Any]
    columns: dict[str, Array]


def strings_frame(strings: Sequence[str], first: int, rv: int, t: float, flags: int = 0) -> bytes:
    """Return a frame of the strings that a reader does not know yet, numbered from `first` on."""
    return _frame(DICT, flags, 0, rv, t, {"strings": list(strings), "from": first})


def table_frame(table: str, columns: Mapping[str, Array], rv: int, t: float, flags: int = 0) -> bytes:
    """Return a frame of all rows of a table, by column name; each column in the smallest type that holds its values."""
    return _columns_frame(_FULL[table], {}, TABLES[table], columns, rv, t, flags, is_narrow=True)


def delta_frame(table: str, rows: Array, columns: Mapping[str, Array], rv: int, t: float, flags: int = 0) -> bytes:
    """Return a frame of the changed rows, with all their columns; `rows` are their numbers."""
    specs = (Spec(ROW, "u32"), *TABLES[table])
    return _columns_frame(DELTA, {"table": table}, specs, {ROW: rows, **columns}, rv, t, flags)


def rows_frame(specs: Sequence[Spec], columns: Mapping[str, Array]) -> bytes:
    """Return a frame of any columns; its kind is 0, which is never sent to a page."""
    return _columns_frame(0, {}, specs, columns, 0, 0.0, 0)


def document_frame(kind: int, document: Mapping[str, Any], rv: int, t: float, flags: int = 0) -> bytes:
    """Return a frame with only a header: lines, rates, pools, jobs, alarms, gaps."""
    return _frame(kind, flags, 0, rv, t, dict(document))


def _columns_frame(
    kind: int,
    header: dict[str, Any],
    specs: Sequence[Spec],
    columns: Mapping[str, Array],
    rv: int,
    t: float,
    flags: int,
    *,
    is_narrow: bool = False,
) -> bytes:
    rows, described, pieces, offset = 0, [], [], 0
    for spec in specs:
        values = np.ascontiguousarray(columns[spec.name], dtype=TYPES[spec.type])
        rows = len(values)
        about: list[Any] = [spec.name, spec.type, spec.width, offset]
        if is_narrow:
            stored, values = _narrow_values(values, spec.type)
            about += [stored] if stored != spec.type else []
        described.append(about)
        raw = values.tobytes()
        padding = -len(raw) % ALIGNED
        pieces += [raw, b"\0" * padding]
        offset += len(raw) + padding
    return _frame(kind, flags, rows, rv, t, {**header, "columns": described}, pieces)


def _narrow_values(values: Array, type_: str) -> tuple[str, Array]:
    """Return as what a column is stored, SAME or a type, and the values as they are stored."""
    if len(values) > 1 and (values == values[0]).all():
        return SAME, values[:1]
    if not len(values):
        return type_, values
    low, high = values.min(), values.max()
    for name in _NARROW:
        narrow = TYPES[name]
        if narrow.itemsize >= values.dtype.itemsize:
            continue
        if narrow.kind != "f" and not np.iinfo(narrow).min <= low <= high <= np.iinfo(narrow).max:
            continue
        with np.errstate(over="ignore"):
            stored = values.astype(narrow)
        if (stored == values).all():
            return name, stored
    return type_, values


def _frame(
    kind: int, flags: int, rows: int, rv: int, t: float, header: dict[str, Any], pieces: Iterable[bytes] = ()
) -> bytes:
    text = msgspec.json.encode(header)
    text += b" " * (-(HEAD.size + _LENGTH.size + len(text)) % ALIGNED)
    head = HEAD.pack(kind, FRAME_VERSION, flags, rows, float(rv), t)
    return b"".join((head, _LENGTH.pack(len(text)), text, *pieces))


def read_frame(data: bytes) -> Frame:
    """Return the decoded frame. Raises: FrameError."""
    begin = HEAD.size + _LENGTH.size
    if len(data) < begin:
        raise FrameError(f"a frame has at least {begin} bytes, this has {len(data)}")
    kind, version, flags, rows, rv, t = HEAD.unpack_from(data)
    (length,) = _LENGTH.unpack_from(data, HEAD.size)
    if version != FRAME_VERSION:
        raise FrameError(f"a frame of version {version}; this reads version {FRAME_VERSION}")
    try:
        header: dict[str, Any] = msgspec.json.decode(data[begin : begin + length], type=dict[str, Any])
    except UNREADABLE as error:
        raise FrameError(f"the header of a frame of kind {kind}: {error}") from None
    columns: dict[str, Array] = {}
    start = begin + length
    for name, type_, width, offset, *narrow in header.get("columns", ()):
        stored = narrow[0] if narrow else type_
        dtype, count = TYPES[type_ if stored == SAME else stored], (1 if stored == SAME else rows) * width
        if start + offset + count * dtype.itemsize > len(data):
            raise FrameError(f"column {name} of a frame of kind {kind} ends after the frame")
        values = np.frombuffer(data, dtype, count, start + offset)
        if stored == SAME:
            values = np.tile(values, rows)
        values = values.astype(TYPES[type_], copy=False)
        columns[name] = values.reshape(rows, width) if width > 1 else values
    return Frame(kind, flags, rows, int(rv), t, header, columns)


class Mirror:
    """State of a page after the frames it was sent: strings, and rows of nodes and pods. The page's worker does the
    same in JavaScript.
    """

    def __init__(self) -> None:
        self.strings: list[str] = [""]
        self.tables: dict[str, dict[str, Array]] = {name: empty(specs) for name, specs in TABLES.items()}
        self.rv, self.time, self.is_in_group = 0, 0.0, False

    def take(self, data: bytes) -> Frame:
        """Decode the next frame and apply it. Raises: FrameError."""
        frame = read_frame(data)
        match frame.kind:
            case 1:  # DICT
                if frame.flags & REPLACES:
                    self.strings = [""]
                del self.strings[frame.header["from"] :]
                self.strings += frame.header["strings"]
            case 2 | 3:  # NODES, PODS
                name = "nodes" if frame.kind == NODES else "pods"
                self.tables[name] = {column: values.copy() for column, values in frame.columns.items()}
            case 4:  # DELTA
                self._change(frame)
        if frame.kind <= DELTA:
            self.rv, self.time, self.is_in_group = frame.rv, frame.time, bool(frame.flags & IN_GROUP)
        return frame

    def _change(self, frame: Frame) -> None:
        name = frame.header["table"]
        held = self.tables[name]
        if not frame.rows:
            return
        rows = frame.columns[ROW]
        needed = int(rows.max()) + 1
        if needed > len(held["name"]):
            held = self.tables[name] = {
                column: np.concatenate((values, np.zeros((needed - len(values), *values.shape[1:]), values.dtype)))
                for column, values in held.items()
            }
        for column, values in held.items():
            values[rows] = frame.columns[column]


def empty(specs: Sequence[Spec], rows: int = 0) -> dict[str, Array]:
    """Return columns of zeros."""
    return {spec.name: np.zeros((rows, spec.width) if spec.width > 1 else rows, TYPES[spec.type]) for spec in specs}
