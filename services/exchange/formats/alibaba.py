"""Alibaba's GPU cluster of 2023: a table of nodes and a table of pods, CSV each.

GPUs are `nvidia.com/gpu`, their model a label. A pod that shares a GPU has `gpu_milli` of one: it is rounded up to a
whole one, or (`gpu-share=milli`) GPUs are counted in thousandths over the node, without regard to which GPU has them.
Pure but for reading the files and putting rows in order. Its columns: alibaba/clusterdata,
`cluster-trace-gpu-v2023/README.md`. Source: simulator 10.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.api.meta import Document
from services.exchange.format import Format, Reading
from services.exchange.reading import Source
from services.exchange.stream import Change, Origin, Place, Placed, Refused, Stream
from services.exchange.traces.public import (
    PART_OPTIONS,
    Part,
    created,
    is_none,
    label_of,
    name_of,
    node,
    number,
    pod,
    priority_class,
    quantity,
)
from services.exchange.traces.sorter import Sorter

NODE_COLUMNS: Final = frozenset(("sn", "cpu_milli", "memory_mib", "gpu", "model"))
POD_COLUMNS: Final = frozenset(
    (
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "gpu_spec",
        "qos",
        "pod_phase",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    )
)
GPU, GPU_MILLI, MODEL = "nvidia.com/gpu", "keplab.dev/gpu-milli", "nvidia.com/gpu.product"
QOS: Final = "keplab.dev/qos"
CLASSES: Final = {"be": 0, "burstable": 1000, "guaranteed": 2000, "ls": 3000}
PODS_PER_NODE: Final = "256"
SHARES: Final = ("up", "milli")
LINE_MAX: Final = 1 << 16
_MIB: Final = 1 << 20
SOURCE: Final = (
    "Alibaba cluster-trace-gpu-v2023, github.com/alibaba/clusterdata; that repository states the terms of use. "
    "Cite: Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, "
    "USENIX ATC 2023."
)


def _columns(line: bytes) -> set[str]:
    return {each.strip().strip('"') for each in line.decode("utf-8", "replace").split(",")}


def _fits(head: bytes) -> bool:
    columns = _columns(head.split(b"\n", 1)[0])
    return columns >= NODE_COLUMNS or columns >= POD_COLUMNS


def rows_of(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV file with their places. Raises: Refused: a row has more or fewer cells than columns."""
    with source.open() as raw:
        text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
        try:
            lines = csv.reader(text, strict=True)
            header = [name.strip() for name in next(lines, [])]
            for count, cells in enumerate(lines, 1):
                if not cells:
                    continue
                where = str(Place(source.file, count, lines.line_num))
                if len(cells) != len(header):
                    raise Refused(f"{where}: {len(cells)} cells where the header has {len(header)}")
                if sum(map(len, cells)) > LINE_MAX:
                    raise Refused(f"{where}: longer than {LINE_MAX >> 10} KiB")
                yield where, dict(zip(header, cells, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refused(f"{source.file}: {error}") from None
        finally:
            text.detach()


@dataclass(frozen=True)
class _Wanted:
    part: Part
    share: str
    is_lenient: bool


def _read_many(sources: Sequence[Source], reading: Reading) -> Stream:
    share = reading.options.get("gpu-share", "up")
    if share not in SHARES:
        raise Refused(f"--gpu-share {share}: want {' or '.join(SHARES)}")
    wanted = _Wanted(Part.of(reading.options, sources[0].file), share, reading.is_lenient)
    notes: dict[str, int] = {}
    nodes = [each for each in sources if _columns(each.head().split(b"\n", 1)[0]) >= NODE_COLUMNS]
    tables = [each for each in sources if each not in nodes]
    objects = _objects(nodes, tables, wanted, notes)
    return Stream(objects, _changes(tables, wanted, notes), Origin("alibaba"), notes=notes)


def _objects(
    nodes: Sequence[Source], tables: Sequence[Source], wanted: _Wanted, notes: dict[str, int]
) -> Iterator[Placed]:
    for source in nodes:
        for where, row in rows_of(source):
            try:
                yield Placed(_node(row, where, wanted.share), where)
            except Refused:
                if not wanted.is_lenient:
                    raise
                _count(notes, "rows of nodes that cannot be read")
    for name, value in CLASSES.items() if tables else ():
        yield Placed(priority_class(name, value), tables[0].file)


def _count(notes: dict[str, int], what: str) -> None:
    notes[what] = notes.get(what, 0) + 1


def _node(row: Mapping[str, Any], where: str, share: str) -> Document:
    gpus = int(number(row, "gpu", where, default=0))
    resources = {
        "cpu": quantity(number(row, "cpu_milli", where), milli=True),
        "memory": quantity(number(row, "memory_mib", where) * _MIB),
        "pods": PODS_PER_NODE,
    }
    if gpus:
        resources[GPU if share == "up" else GPU_MILLI] = str(gpus if share == "up" else gpus * 1000)
    if is_none(row["sn"]):
        raise Refused(f"{where}: sn: nothing: want the name of a node")
    labels = {} if is_none(row["model"]) else {MODEL: label_of(row["model"].strip())}
    return node(name_of(row["sn"]), resources, labels)


def _changes(tables: Sequence[Source], wanted: _Wanted, notes: dict[str, int]) -> Iterator[Change]:
    sorter = Sorter()
    for source in tables:
        for where, row in rows_of(source):
            try:
                _check(row, where)
                if wanted.part.has(row["name"]):
                    sorter.put("", number(row, "creation_time", where), [where, row])
                else:
                    _count(notes, "pods that are not in the sample")
            except Refused:
                if not wanted.is_lenient:
                    raise
                _count(notes, "rows of pods that cannot be read")
    # Its clock begins somewhere; a window is counted from the first pod.
    first = sorter.first()
    for _, at, (where, row) in sorter.by_time():
        submitted, scheduled, ended = (
            at - first,
            _moment(row, "scheduled_time", first),
            _moment(row, "deletion_time", first),
        )
        is_pending = str(row["pod_phase"]).strip() == "Pending"
        if is_pending:
            ended = None
        placed = wanted.part.placed(submitted, scheduled if scheduled is not None else submitted, ended)
        if placed is None:
            _count(notes, "pods outside the window of time")
            continue
        if is_pending:
            _count(notes, "pods that were Pending to the end: here they run for ever once there is a node")
        elif ended is None:
            _count(notes, "pods without a deletion time: they run for ever")
        yield created(placed[0], _pod(row, where, placed[1], wanted.share), where)


def _moment(row: Mapping[str, Any], field: str, first: float) -> float | None:
    return None if is_none(row[field]) else float(row[field]) - first


def _check(row: Mapping[str, Any], where: str) -> None:
    if is_none(row["name"]):
        raise Refused(f"{where}: name: nothing: want the name of a pod")
    created_at = number(row, "creation_time", where)
    scheduled = number(row, "scheduled_time", where, default=created_at)
    deleted = number(row, "deletion_time", where, default=max(scheduled, created_at))
    if scheduled < created_at:
        raise Refused(f"{where}: scheduled_time {scheduled:g}: want creation_time {created_at:g} or later")
    if deleted < created_at:
        raise Refused(f"{where}: deletion_time {deleted:g}: want creation_time {created_at:g} or later")
    for field in ("cpu_milli", "memory_mib"):
        number(row, field, where)
    for field in ("num_gpu", "gpu_milli"):
        number(row, field, where, default=0)


def _pod(row: Mapping[str, Any], where: str, run_s: float | None, share: str) -> Document:
    gpus, milli = int(number(row, "num_gpu", where, default=0)), number(row, "gpu_milli", where, default=0)
    limits: dict[str, str] = {}
    if gpus and share == "up":
        limits[GPU] = str(gpus)
    elif gpus:
        limits[GPU_MILLI] = str(round(milli) if gpus == 1 and 0 < milli < 1000 else gpus * 1000)
    models = [] if is_none(row["gpu_spec"]) else [label_of(each.strip()) for each in row["gpu_spec"].split("|")]
    terms = [{"key": MODEL, "operator": "In", "values": models}] if models else None
    qos = "" if is_none(row["qos"]) else str(row["qos"]).strip()
    return pod(
        name_of(row["name"]),
        run_s,
        {
            "cpu": quantity(number(row, "cpu_milli", where), milli=True),
            "memory": quantity(number(row, "memory_mib", where) * _MIB),
        },
        labels={QOS: label_of(qos)} if qos else None,
        limits=limits,
        exit_code=1 if str(row["pod_phase"]).strip() == "Failed" else 0,
        priority_class_name=qos.lower() if qos.lower() in CLASSES else "",
        terms=terms,
    )


FORMAT = Format(
    name="alibaba",
    title="Alibaba's GPU cluster of 2023",
    fits=_fits,
    read=lambda source, reading: _read_many([source], reading),
    read_many=_read_many,
    has_changes=True,
    options=(*PART_OPTIONS, "gpu-share"),
    source=SOURCE,
    is_virtual=True,
)
