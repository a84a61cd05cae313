"""Google's Borg cells of 2019: tables of machine, attribute, collection and instance events, JSON lines or CSV.

Resources are shares of the greatest machine, so a scale is needed. An instance becomes a pod that is created
when the instance was submitted, and that runs as long as its last run did. Evictions by the cell's own
scheduler are not replayed, but counted. Machines come, go and change their capacity and attributes at their
times. Pure but for reading the files and putting rows in order.
Its fields: google/cluster-data, `clusterdata_trace_format_v3.proto`. Source: simulator 10.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lab.exchange.format import Format, Reading
from lab.exchange.reading import Source, csv_rows, json_value, lines
from lab.exchange.stream import Change, Origin, Place, Placed, Refused, Stream
from lab.exchange.traces.public import (
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
    scale_of,
)
from lab.exchange.traces.sorter import Sorter
from services.api.errors import UNREADABLE
from services.api.meta import Document

US: Final = 1_000_000
EVENTS: Final = (
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
)
MACHINE_EVENTS: Final = ("EVENT_TYPE_UNKNOWN", "ADD", "REMOVE", "UPDATE")
RELATIONS: Final = (
    "EQUAL",
    "NOT_EQUAL",
    "LESS_THAN",
    "GREATER_THAN",
    "LESS_THAN_EQUAL",
    "GREATER_THAN_EQUAL",
    "PRESENT",
    "NOT_PRESENT",
)
ATTRIBUTE: Final = "attribute.keplab.dev"
PLATFORM, SWITCH, COLLECTION = "keplab.dev/platform", "keplab.dev/switch", "keplab.dev/collection"
PODS_PER_NODE: Final = "256"
SOURCE: Final = (
    "Google cluster-usage traces v3 (ClusterData2019), github.com/google/cluster-data, CC-BY 4.0. Cite: Tirmazi et "
    "al., Borg: the Next Generation, EuroSys 2020."
)
_TABLES: Final = (
    # By what each has and no other: in this order.
    ("usage", ("average_usage",)),
    ("instances", ("instance_index",)),
    ("collections", ("collection_id",)),
    ("attributes", ("machine_id", "name")),
    ("machines", ("machine_id",)),
)
_KNOWN: Final = frozenset(("time", "type", "machine_id", "collection_id", "start_time"))


def _fields(head: bytes) -> set[str]:
    line = head.split(b"\n", 1)[0].strip()
    if line.startswith(b"{"):
        try:
            document = msgspec.json.decode(line)
        except UNREADABLE:
            return set(re.findall(r'"(\w+)"\s*:', line.decode("utf-8", "replace")))
        return set(document) if isinstance(document, dict) else set()
    return {each.strip().strip('"').partition(".")[0] for each in line.decode("utf-8", "replace").split(",")}


def _table(head: bytes) -> str:
    fields = _fields(head)
    if not fields & {"time", "start_time"} or not fields & {"machine_id", "collection_id"}:
        return ""
    if "apiVersion" in fields:
        return ""
    return next((name for name, own in _TABLES if fields.issuperset(own)), "")


def _fits(head: bytes) -> bool:
    return bool(_table(head))


def _rows(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    if not source.head(1).startswith(b"{"):
        yield from csv_rows(source)
        return
    for text, place, _ in lines(source):
        row = json_value(text, place)
        if not isinstance(row, dict):
            raise Refused(f"{place}: want an object, not {text[:40].decode('utf-8', 'replace').strip()}")
        yield str(place), row


def _enum(row: Mapping[str, Any], name: str, names: Sequence[str], where: str) -> str:
    """Return a member of an enumeration, that rows have as a name or a number; proto2 leaves out nothing but 0."""
    value = row.get(name)
    text = "0" if is_none(value) else str(value).strip()
    if text in names:
        return text
    if re.fullmatch(r"\d{1,3}(\.0)?", text) and int(float(text)) < len(names):
        return names[int(float(text))]
    raise Refused(f"{where}: {name} {text!r}: want 0 to {len(names) - 1}, or one of {', '.join(names)}")


def _resources(row: Mapping[str, Any], name: str, where: str) -> tuple[float, float] | None:
    """Return shares of cpu and memory; None: the row does not say them."""
    value = row.get(name)
    if isinstance(value, str) and value.strip().startswith("{"):
        value = json_value(value.encode(), Place(where))
    if not isinstance(value, dict):
        value = {each: row.get(f"{name}.{each}", row.get(f"{name}_{each}")) for each in ("cpus", "memory")}
    if all(is_none(value.get(each)) for each in ("cpus", "memory")):
        return None
    return tuple(amount(value, each, f"{where}: {name}", default=0.0) for each in ("cpus", "memory"))  # type: ignore[return-value]  # two of them


@dataclass
class _Reader:
    """One reading of the tables."""

    part: Part
    scale: tuple[float, float]
    is_lenient: bool
    notes: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + by

    def rows(self, sources: Sequence[Source]) -> Iterator[tuple[str, float, dict[str, Any]]]:
        for source in sources:
            for where, row in _rows(source):
                at = math.nan
                with self.tolerating():
                    at = number(row, "time", where, default=0.0) / US
                if not math.isnan(at):
                    # "Later than the end of the trace" is the greatest number of 63 bits.
                    yield where, math.inf if at >= 2**62 / US else at, row

    @contextmanager
    def tolerating(self) -> Iterator[None]:
        """Count a row that cannot be read instead of refusing it, where that is wanted."""
        try:
            yield
        except Refused:
            if not self.is_lenient:
                raise
            self.count("rows that cannot be read")

    # Machines

    def nodes(self, machines: Sequence[Source], attributes: Sequence[Source], later: Sorter) -> Iterator[Placed]:
        """Yield a node for each machine that is there when the window begins, and put what becomes of machines within
        it into `later`, by its time in the stream."""
        sorter = Sorter()
        for where, at, row in self.rows(machines):
            with self.tolerating():
                if at >= self.part.end_s:
                    self.count("events of machines after the window of time")
                    continue
                kind = _enum(row, "type", MACHINE_EVENTS, where)
                if kind == MACHINE_EVENTS[0]:
                    self.count(f"events of machines that say {kind}")
                    continue
                if str(row.get("missing_data_reason") or "0") not in ("0", "MISSING_DATA_REASON_NONE"):
                    self.count(
                        "events of machines that the trace infers (missing_data_reason): they are replayed as others"
                    )
                shares = _resources(row, "capacity", where)
                hardware = (row.get("platform_id"), row.get("switch_id"))
                sorter.put(_identity(row, "machine_id", where), at, ["m", where, kind, shares, *hardware])
        for where, at, row in self.rows(attributes):
            with self.tolerating():
                if at < self.part.end_s and not is_none(row.get("name")):
                    is_gone = str(row.get("deleted")).lower() in ("true", "1")
                    value = None if is_gone or is_none(row.get("value")) else str(row.get("value"))
                    sorter.put(_identity(row, "machine_id", where), at, ["a", where, str(row["name"]), value])
        for name, group in itertools.groupby(sorter.by_group(), key=lambda entry: entry[0]):
            machine = _Machine(self, name)
            for _, at, (table, where, *rest) in group:
                if at > self.part.begin_s and not machine.is_begun:
                    yield from machine.begin()
                offset = max(at - self.part.begin_s, 0.0) / self.part.compress
                event = machine.attribute(where, *rest) if table == "a" else machine.event(where, *rest)
                if machine.is_begun and event is not None:
                    later.put("", offset, event)
            if not machine.is_begun:
                yield from machine.begin()

    def resources(self, shares: Sequence[float]) -> dict[str, str]:
        """Return what a machine of these shares has."""
        cpu, memory = (share * whole for share, whole in zip(shares, self.scale, strict=True))
        return {"cpu": quantity(cpu * 1000, milli=True), "memory": quantity(memory), "pods": PODS_PER_NODE}

    # Instances

    def gather_pods(self, instances: Sequence[Source], collections: Sequence[Source]) -> tuple[Sorter, set[int]]:
        """Return the pods, by the time at which they begin, and which priorities they have."""
        spread = self._spread_collections(collections)
        sorter = Sorter()
        for where, at, row in self.rows(instances):
            with self.tolerating():
                collection = _identity(row, "collection_id", where)
                if str(row.get("collection_type") or "0") in ("1", "ALLOC_SET"):
                    self.count("events of alloc sets")
                    continue
                if not self.part.has(collection):
                    self.count("instance events of collections that are not in the sample")
                    continue
                index = int(number(row, "instance_index", where))
                kind = _enum(row, "type", EVENTS, where)
                constraints = row.get("constraint") or ()
                if isinstance(constraints, str):
                    constraints = json_value(constraints.encode(), Place(where)) if constraints.strip() else ()
                priority = int(number(row, "priority", where, default=0.0))
                is_in_alloc = str(row.get("alloc_collection_id") or "0") not in ("0", "0.0", "")
                request = _resources(row, "resource_request", where)
                at = min(at, 1e18)
                sorter.put(f"{collection} {index:09}", at, [where, kind, request, constraints, priority, is_in_alloc])
        pods, priorities = Sorter(), set[int]()
        for place, group in itertools.groupby(sorter.by_group(), key=lambda entry: entry[0]):
            collection, index = place.split(" ")
            with self.tolerating():
                for entry in self._instance(collection, int(index), group, spread):
                    priorities.add(entry[1][5])
                    pods.put("", entry[0], entry[1])
        return pods, priorities

    def _spread_collections(self, collections: Sequence[Source]) -> set[str]:
        """Return the collections that may have one instance on a machine alone."""
        alone: set[str] = set()
        for where, _, row in self.rows(collections):
            with self.tolerating():
                collection = _identity(row, "collection_id", where)
                most = int(number(row, "max_per_machine", where, default=0.0))
                if most == 1:
                    alone.add(collection)
                elif most > 1:
                    self.count("limits of several instances a machine (max_per_machine), which no affinity says")
                if number(row, "max_per_switch", where, default=0.0) > 0:
                    self.count("limits of instances a switch (max_per_switch)")
        return alone

    def _instance(
        self, collection: str, index: int, events: Iterator[tuple[str, float, list[Any]]], spread: set[str]
    ) -> Iterator[tuple[float, list[Any]]]:
        submitted = started = ended = None
        request: Any = None
        constraints: Any = ()
        priority, exit_code, is_in_alloc, where = 0, 0, False, ""
        resizes: list[tuple[float, Any]] = []
        for _, at, (place, kind, shares, wanted, rank, in_alloc) in events:
            where, priority, is_in_alloc = place, rank, is_in_alloc or in_alloc
            if submitted is None:
                submitted = at
            if shares is not None and (kind != "UPDATE_RUNNING" or request is None):
                request = shares
            if wanted:
                constraints = wanted
            if kind == "SCHEDULE":
                started, ended, exit_code = at, None, 0
            elif kind == "UPDATE_RUNNING" and shares is not None:
                resizes.append((at, shares))
            elif kind == "EVICT":
                self.count("evictions by the cell's own scheduler")
                ended = None
            elif kind in ("FINISH", "FAIL", "KILL", "LOST"):
                ended, exit_code = at, int(kind == "FAIL")
        if submitted is None:
            return
        if request is None:
            self.count("instances that say no request")
            return
        if is_in_alloc:
            self.count("instances that ran within alloc sets, and run as others here")
        placed = self.part.place_run(submitted, started if started is not None else submitted, ended)
        if placed is None:
            self.count("instances outside the window of time")
            return
        terms = [constraint_term(each, where) for each in constraints]
        row = [where, collection, index, placed[1], request, priority, exit_code, terms, collection in spread, None]
        yield placed[0], row
        for at, shares in resizes:
            if at >= self.part.begin_s and (ended is None or at < ended) and at < self.part.end_s:
                offset = (at - self.part.begin_s) / self.part.compress
                yield offset, [where, collection, index, None, shares, priority, 0, [], False, offset]

    def changes(self, machines: Sorter, pods: Sorter) -> Iterator[Change]:
        """Yield what becomes of machines and pods, by time; machines first where it is the same."""
        return heapq.merge(self._of_machines(machines), self._of_pods(pods), key=lambda change: change.at_s)

    def _of_machines(self, machines: Sorter) -> Iterator[Change]:
        for _, at_s, (where, method, name, document) in machines.by_time():
            patch_type = "strategic" if method == "patch" else ""
            yield Change(at_s, method, "nodes", "", name, document, patch_type, where)

    def _of_pods(self, pods: Sorter) -> Iterator[Change]:
        for _, at_s, row in pods.by_time():
            where, collection, index, run_s, request, priority, exit_code, terms, is_alone, resized = row
            requests = {
                "cpu": quantity(max(request[0] * self.scale[0] * 1000, 1), milli=True),
                "memory": quantity(request[1] * self.scale[1]),
            }
            name = name_of("c", collection, index)
            if resized is not None:
                body: Document = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
                yield Change(at_s, "patch", "pods", "default", name, body, "strategic", where)
                continue
            document = pod(
                name,
                run_s,
                requests,
                labels={COLLECTION: label_of(collection)},
                exit_code=exit_code,
                priority_class_name=_class(priority),
                terms=terms,
                anti_affinity={COLLECTION: label_of(collection)} if is_alone else None,
            )
            yield pod_creation(at_s, document, where)


class _Machine:
    """State of a machine while its events are read in order of time. `is_begun`: the window of time has begun;
    from then on each event of the machine becomes a change: [where, method, name, document].
    """

    def __init__(self, reader: _Reader, machine: str) -> None:
        self._reader, self._name = reader, name_of("machine", machine)
        self._shares: Sequence[float] | None = None
        self._labels: dict[str, str] = {}
        self._is_there = self.is_begun = False
        self._where = ""

    def begin(self) -> Iterator[Placed]:
        """Yield its node, if it is there when the window begins."""
        self.is_begun = True
        if self._is_there:
            yield Placed(self._node(), self._where)

    def _node(self) -> Document:
        assert self._shares is not None, "a machine without a capacity is not there"
        return node(self._name, self._reader.resources(self._shares), self._labels)

    def attribute(self, where: str, name: str, value: str | None) -> list[Any] | None:
        """Take an attribute's new value, None for one that is gone."""
        key = attribute_key(name)
        if value is None:
            self._labels.pop(key, None)
        else:
            self._labels[key] = label_of(value)
        if not self._is_there:
            return None
        self._count("times: machines change an attribute")
        return [where, "patch", self._name, {"metadata": {"labels": {key: self._labels.get(key)}}}]

    def event(self, where: str, kind: str, shares: Any, platform: Any, switch: Any) -> list[Any] | None:
        """Take ADD, REMOVE or UPDATE."""
        self._where = where
        before, self._shares = self._shares, self._shares if shares is None else shares
        for key, value in ((PLATFORM, platform), (SWITCH, switch)):
            if not is_none(value):
                self._labels[key] = label_of(str(value))
        if kind == "REMOVE":
            return self._remove(where)
        if self._shares is None:
            self._reader.count("events of machines that say no capacity: left out")
            return None
        if kind == "UPDATE" and not self._is_there:
            self._count("updates of machines before they come: they have it then")
            return None
        if self._is_there and self._shares == before:
            self._count("events of machines that change nothing")
            return None
        if not self._is_there:
            self._is_there = True
            self._count("times: machines come")
            return [where, "create", self._name, self._node()]
        self._count("times: machines change their capacity")
        resources = self._reader.resources(self._shares)
        return [where, "patch", self._name, {"status": {"capacity": resources, "allocatable": dict(resources)}}]

    def _remove(self, where: str) -> list[Any] | None:
        was_there, self._is_there = self._is_there, False
        self._count("times: machines go" if was_there else "removals of machines that are not there")
        return [where, "delete", self._name, None] if was_there else None

    def _count(self, what: str) -> None:
        """Note what became of a machine within the window."""
        if self.is_begun:
            self._reader.count(what)


def _class(priority: int) -> str:
    return f"borg-{priority}"


def _identity(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if is_none(value) or isinstance(value, dict | list):
        raise Refused(f"{where}: {name}: nothing: want a number")
    return str(value).removesuffix(".0")


def attribute_key(name: str) -> str:
    """Return the label key for a machine's attribute, whose name is not a valid label key."""
    return f"{ATTRIBUTE}/{label_of(name)}"


def constraint_term(constraint: Mapping[str, Any], where: str) -> Document:
    """Return a constraint as a node selector term on labels.

    Raises: Refused, if it compares a number that is not whole, which no label selector can.
    """
    if not isinstance(constraint, dict) or is_none(constraint.get("name")):
        raise Refused(f"{where}: constraint.name: nothing: want the name of an attribute")
    key, value = attribute_key(str(constraint["name"])), constraint.get("value")
    relation = _enum(constraint, "relation", RELATIONS, f"{where}: constraint {constraint['name']}")
    text = "" if value is None else str(value)
    match relation:
        case "PRESENT":
            return {"key": key, "operator": "Exists"}
        case "NOT_PRESENT":
            return {"key": key, "operator": "DoesNotExist"}
        case "EQUAL" | "NOT_EQUAL":
            return {"key": key, "operator": "In" if relation == "EQUAL" else "NotIn", "values": [label_of(text)]}
    if not re.fullmatch(r"-?\d{1,17}", text):
        raise Refused(f"{where}: constraint {constraint['name']} {relation} {text!r}: want a whole number")
    shifted = int(text) + {"LESS_THAN_EQUAL": 1, "GREATER_THAN_EQUAL": -1}.get(relation, 0)
    return {"key": key, "operator": "Lt" if relation.startswith("LESS") else "Gt", "values": [str(shifted)]}


def _read_many(sources: Sequence[Source], reading: Reading) -> Stream:
    tables: dict[str, list[Source]] = {name: [] for name, _ in _TABLES}
    for source in sources:
        tables[_table(source.head()) or "instances"].append(source)
    part = Part.of(reading.options, sources[0].file)
    reader = _Reader(part, scale_of(reading.options.get("scale", ""), sources[0].file), reading.is_lenient)
    if tables["usage"]:
        reader.count("files of usage samples, which are not read", len(tables["usage"]))
    kept: list[Sorter] = []
    later = Sorter()

    def objects() -> Iterator[Placed]:
        yield from reader.nodes(tables["machines"], tables["attributes"], later)
        pods, priorities = reader.gather_pods(tables["instances"], tables["collections"])
        kept.append(pods)
        for value in sorted(priorities):
            yield Placed(priority_class(_class(value), value), sources[0].file)

    snapshot = objects()

    def changes() -> Iterator[Change]:
        while not kept and next(snapshot, None) is not None:
            pass  # who wants the changes alone
        yield from reader.changes(later, kept[0]) if kept else ()

    return Stream(snapshot, changes(), Origin("borg"), notes=reader.notes)


FORMAT = Format(
    name="borg",
    title="Google's Borg cells of 2019",
    fits=_fits,
    read=lambda source, reading: _read_many([source], reading),
    read_many=_read_many,
    has_changes=True,
    has_machines=True,
    options=(*PART_OPTIONS, "scale"),
    source=SOURCE,
    is_virtual=True,
)
