"""Alibaba's GPU cluster trace of 2023: a table of nodes and a table of pods, CSV each.

GPUs are `nvidia.com/gpu`, their model is a label. A pod that shares a GPU has `gpu_milli` of one. By default
this is rounded up to a whole GPU. With `gpu-share=milli` GPUs are counted in thousandths over the node, without
regard to which GPU has them. With `gpu-share=dra` GPUs are devices in ResourceSlices, and a pod claims
thousandths of one (KEP-5075). Pure but for reading the files and putting rows in order. Its columns:
alibaba/clusterdata, `cluster-trace-gpu-v2023/README.md`. Source: simulator 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lab.exchange.format import Format, Reading
from lab.exchange.reading import Source, csv_rows
from lab.exchange.stream import Change, Origin, Placed, Refused, Stream
from lab.exchange.traces.public import (
    AMOUNT_MAX,
    NAMESPACE,
    PART_OPTIONS,
    Part,
    amount,
    is_none,
    label_of,
    name_of,
    node,
    number,
    pod,
    pod_creation,
    priority_class,
    quantity,
)
from lab.exchange.traces.sorter import Sorter
from services.api.meta import Document

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
SHARES: Final = ("up", "milli", "dra")
DRIVER: Final = "gpu.keplab.dev"
"""Name of the driver whose devices the GPUs are; also that of the DeviceClass."""
RESOURCE_API: Final = "resource.k8s.io/v1"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_MIB: Final = 1 << 20
MIB_MAX: Final = AMOUNT_MAX / _MIB
GPUS_MAX: Final = 128  # devices that a ResourceSlice may have
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


@dataclass(frozen=True)
class _CardShare:
    part: Part
    share: str
    is_lenient: bool


def _read_many(sources: Sequence[Source], reading: Reading) -> Stream:
    share = reading.options.get("gpu-share", "up")
    if share not in SHARES:
        raise Refused(f"--gpu-share {share}: want {', '.join(SHARES[:-1])} or {SHARES[-1]}")
    wanted = _CardShare(Part.of(reading.options, sources[0].file), share, reading.is_lenient)
    notes: dict[str, int] = {}
    nodes = [each for each in sources if _columns(each.head().split(b"\n", 1)[0]) >= NODE_COLUMNS]
    tables = [each for each in sources if each not in nodes]
    objects = _objects(nodes, tables, wanted, notes)
    return Stream(objects, _changes(tables, wanted, notes), Origin("alibaba"), notes=notes)


def _objects(
    nodes: Sequence[Source], tables: Sequence[Source], wanted: _CardShare, notes: dict[str, int]
) -> Iterator[Placed]:
    for source in nodes:
        for where, row in csv_rows(source):
            try:
                node_document = _node(row, where, wanted.share)
                yield Placed(node_document, where)
                if wanted.share == "dra" and (gpus := _gpus(row, "gpu", where)):
                    yield Placed(_slice(node_document["metadata"]["name"], gpus, row["model"]), where)
            except Refused:
                if not wanted.is_lenient:
                    raise
                _count(notes, "rows of nodes that cannot be read")
    if wanted.share == "dra":
        yield Placed(_device_class(), (*nodes, *tables)[0].file)
    for name, value in CLASSES.items() if tables else ():
        yield Placed(priority_class(name, value), tables[0].file)


def _count(notes: dict[str, int], what: str) -> None:
    notes[what] = notes.get(what, 0) + 1


def _node(row: Mapping[str, Any], where: str, share: str) -> Document:
    gpus = _gpus(row, "gpu", where)
    resources = {
        "cpu": quantity(amount(row, "cpu_milli", where), milli=True),
        "memory": quantity(amount(row, "memory_mib", where, most=MIB_MAX) * _MIB),
        "pods": PODS_PER_NODE,
    }
    if gpus and share != "dra":
        resources[GPU if share == "up" else GPU_MILLI] = str(gpus if share == "up" else gpus * 1000)
    if is_none(row["sn"]):
        raise Refused(f"{where}: sn: nothing: want the name of a node")
    labels = {} if is_none(row["model"]) else {MODEL: label_of(row["model"].strip())}
    return node(name_of(row["sn"]), resources, labels)


def _slice(node_name: str, gpus: int, model: str) -> Document:
    """Return what a node's driver publishes: GPUs that several claims may share by their thousandths."""
    attributes = {} if is_none(model) else {"model": {"string": label_of(model.strip())}}
    policy = {"default": "1000", "validRange": {"min": "1", "step": "1", "max": "1000"}}
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": attributes,
            "capacity": {"milli": {"value": "1000", "requestPolicy": policy}},
        }
        for number in range(gpus)
    ]
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    metadata = {"name": f"{node_name}-{DRIVER}"}
    return {"apiVersion": RESOURCE_API, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def _device_class() -> Document:
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    metadata = {"name": DRIVER}
    return {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": selectors}}


def _template(gpus: int, milli: int, models: Sequence[str]) -> Document:
    """Return the template of claims for so many GPUs, so many thousandths of each, of one of these models."""
    exactly: Document = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": gpus,
        "capacity": {"requests": {"milli": str(milli)}},
    }
    if models:
        listed = ", ".join(f"'{each}'" for each in models)
        model = f"device.attributes['{DRIVER}'].model"
        exactly["selectors"] = [{"cel": {"expression": f"has({model}) && {model} in [{listed}]"}}]
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    metadata = {"name": name_of(f"gpu-{gpus}x{milli}", *models), "namespace": NAMESPACE}
    return {"apiVersion": RESOURCE_API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def _changes(tables: Sequence[Source], wanted: _CardShare, notes: dict[str, int]) -> Iterator[Change]:
    sorter = Sorter()
    places: dict[str, str] = {}
    for source in tables:
        for where, row in csv_rows(source):
            try:
                _check(row, where)
                if (earlier := places.setdefault(name_of(row["name"]), where)) != where:
                    raise Refused(f"{where}: name {row['name']}: {earlier} has this name already")
                if wanted.part.has(row["name"]):
                    sorter.put("", number(row, "creation_time", where), [where, row])
                else:
                    _count(notes, "pods that are not in the sample")
            except Refused:
                if not wanted.is_lenient:
                    raise
                _count(notes, "rows of pods that cannot be read")
    templates: set[str] = set()
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
        placed = wanted.part.place_run(submitted, scheduled if scheduled is not None else submitted, ended)
        if placed is None:
            _count(notes, "pods outside the window of time")
            continue
        if is_pending:
            _count(notes, "pods that were Pending to the end: here they run for ever once there is a node")
        elif ended is None:
            _count(notes, "pods without a deletion time: they run for ever")
        pod_document = _pod(row, where, placed[1], wanted.share)
        if wanted.share == "dra" and (template := _claim_template(row, where)) is not None:
            name = template["metadata"]["name"]
            if name not in templates:
                templates.add(name)
                yield Change(placed[0], "create", TEMPLATES, NAMESPACE, name, template, "", where)
            pod_document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
            pod_document["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        yield pod_creation(placed[0], pod_document, where)


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
    amount(row, "cpu_milli", where)
    amount(row, "memory_mib", where, most=MIB_MAX)
    amount(row, "gpu_milli", where, default=0, most=1000)
    _gpus(row, "num_gpu", where)


def _gpus(row: Mapping[str, Any], field: str, where: str) -> int:
    return int(amount(row, field, where, default=0, most=GPUS_MAX, is_whole=True))


def _pod(row: Mapping[str, Any], where: str, run_s: float | None, share: str) -> Document:
    gpus, milli = _gpus(row, "num_gpu", where), number(row, "gpu_milli", where, default=0)
    limits: dict[str, str] = {}
    if gpus and share == "up":
        limits[GPU] = str(gpus)
    elif gpus and share == "milli":
        limits[GPU_MILLI] = str(_milli(gpus, milli) * gpus)
    models = _models(row)
    # With devices the claim says which models are meant.
    terms = [{"key": MODEL, "operator": "In", "values": models}] if models and not (gpus and share == "dra") else None
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


def _milli(gpus: int, milli: float) -> int:
    """Return the thousandths that are wanted of each GPU: of several, whole ones."""
    return round(milli) if gpus == 1 and 0 < milli < 1000 else 1000


def _models(row: Mapping[str, Any]) -> list[str]:
    return [] if is_none(row["gpu_spec"]) else [label_of(each.strip()) for each in str(row["gpu_spec"]).split("|")]


def _claim_template(row: Mapping[str, Any], where: str) -> Document | None:
    """Return the template of the claim that a pod has; None: it wants no GPU."""
    gpus = _gpus(row, "num_gpu", where)
    milli = _milli(gpus, number(row, "gpu_milli", where, default=0))
    return _template(gpus, milli, _models(row)) if gpus else None


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
