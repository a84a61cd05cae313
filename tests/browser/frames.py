"""Frames written a second time, from docs alone: what the page is fed in tests that need no mesh."""

import json
import struct

import numpy as np

DICT, NODES, PODS, DELTA, LINES, RATES, POOLS, JOB, ALARM, GAP = range(1, 11)
IN_GROUP, REPLACES = 1, 2
TYPES = {"i8": "<i1", "u8": "<u1", "i16": "<i2", "u16": "<u2", "u32": "<u4", "i32": "<i4", "f32": "<f4", "f64": "<f8"}
NODE_COLUMNS = (
    ("name", "u32", 1),
    ("zone", "u32", 1),
    ("ready", "u8", 1),
    ("unschedulable", "u8", 1),
    ("taints", "u32", 1),
    ("cpu_m", "f64", 1),
    ("mem", "f64", 1),
    ("pods", "u16", 1),
    ("numa", "f32", 8),
    ("devices", "f32", 1),
    ("created", "f64", 1),
    ("req_cpu_m", "f64", 1),
    ("req_mem", "f64", 1),
    ("req_pods", "u16", 1),
    ("used_devices", "f32", 1),
    ("phases", "u16", 5),
    ("numa_req", "f32", 8),
    ("held_cpu_m", "f64", 1),
    ("held_mem", "f64", 1),
)
POD_COLUMNS = (
    ("name", "u32", 1),
    ("ns", "u32", 1),
    ("node", "i32", 1),
    ("phase", "u8", 1),
    ("pool", "u8", 1),
    ("priority", "i32", 1),
    ("cpu_m", "f64", 1),
    ("mem", "f64", 1),
    ("owner", "u32", 1),
    ("role", "u32", 1),
    ("role_number", "u32", 1),
    ("flags", "u16", 1),
    ("reason", "u32", 1),
    ("created", "f64", 1),
    ("nominated", "i32", 1),
    ("held_cpu_m", "f64", 1),
    ("held_mem", "f64", 1),
)


def frame(kind, header, *, rows=0, rv=0.0, time=0.0, flags=0, data=b""):
    """One frame: 24 bytes, the header's length, the header padded so that the data begins at a multiple of 8, the data."""
    text = json.dumps(header).encode()
    text += b" " * (-(24 + 4 + len(text)) % 8)
    return struct.pack("<BBHIddI", kind, 1, flags, rows, rv, time, len(text)) + text + data


def columns(kind, arrays, spec, *, more=None, stored=lambda name, kind, values: kind, **about):
    """A frame of columns: `arrays` by name; each begins at a multiple of 8. `stored` says as what a column is stored."""
    listed, parts, offset = [], [], 0
    for name, kind_of, width in spec:
        values = np.ascontiguousarray(arrays[name], dtype=TYPES[kind_of])
        how = stored(name, kind_of, values)
        listed.append([name, kind_of, width, offset, *([how] if how != kind_of else [])])
        body = (values[:1] if how == "same" else values.astype(TYPES[how])).tobytes()
        body += b"\0" * (-len(body) % 8)
        parts.append(body)
        offset += len(body)
    rows = len(arrays[spec[0][0]])
    return frame(kind, {**(more or {}), "columns": listed}, rows=rows, data=b"".join(parts), **about)


def delta(table, rows, arrays, spec, **about):
    """A delta: whole rows, named by number."""
    return columns(DELTA, {"row": rows, **arrays}, (("row", "u32", 1), *spec), more={"table": table}, **about)


def smallest(name, kind, values):
    """As what a column of all rows is stored: one row that all have, or the smallest type that has the values."""
    if len(values) > 1 and len(np.unique(values, axis=0)) == 1:
        return "same"
    sizes = ("u8", "i8", "u16", "i16", "u32", "i32", "f32")
    with np.errstate(invalid="ignore"):
        fits = [each for each in sizes if np.array_equal(values.astype(TYPES[each]).astype(TYPES[kind]), values)]
    smaller = [each for each in fits if np.dtype(TYPES[each]).itemsize < values.dtype.itemsize]
    return smaller[0] if smaller else kind


def stream(frames):
    """Frames, each with its length before it."""
    return b"".join(struct.pack("<I", len(each)) + each for each in frames)
