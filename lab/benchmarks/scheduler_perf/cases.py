"""The test cases and workloads of a file, read strictly, and a workload's operations with its parameters.

Keys are matched without case, as Go's encoding/json does; unknown and duplicate keys are errors with
their place. Source: kubernetes/kubernetes `test/integration/scheduler_perf/scheduler_perf.go`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from lab.benchmarks.scheduler_perf import opcodes
from lab.benchmarks.scheduler_perf.located_yaml import FileError, Located, load
from lab.benchmarks.scheduler_perf.opcodes import OPCODES, CreatePods, CreatePodSets, Op, Wrong

DEFAULT_TOPIC: Final = "default"
_PATH_IN_MESSAGE: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class LabelValues(msgspec.Struct, frozen=True, rename="camel"):
    """A label, and the values for which a metric is collected; () for all values that occur."""

    label: str = ""
    values: tuple[str, ...] = ()


class MetricsCollectorConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The histograms to collect, each split by label values or as one."""

    metrics: dict[str, list[LabelValues] | None] = msgspec.field(default_factory=dict)


class MetricSelector(msgspec.Struct, frozen=True, rename="camel"):
    """The metric that a threshold is compared with."""

    name: str = "SchedulingThroughput"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    data_bucket: str = "Average"
    expect_lower: bool = False


class _Workload(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    labels: list[str] = msgspec.field(default_factory=list)
    threshold: float | dict[str, float] = 0.0
    threshold_metric_selector: MetricSelector | None = None
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)


class _Case(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    metrics_collector_config: MetricsCollectorConfig | None = None
    workload_template: list[Any] = msgspec.field(default_factory=list)
    workloads: list[_Workload] = msgspec.field(default_factory=list)
    scheduler_config_path: str = ""
    default_pod_template_path: str | None = None
    labels: list[str] = msgspec.field(default_factory=list)
    default_threshold_metric_selector: MetricSelector | None = None


@dataclass(frozen=True)
class Step:
    """An operation with its number in the template, and its line and column."""

    number: int
    op: Op
    place: tuple[int, int]


@dataclass(frozen=True)
class Workload:
    """One workload of a case. `gates`: the feature gates of the case, overridden by its own. `place`: where it
    begins in the file; `gate_places`, `parameter_places`: where each gate and parameter is named.
    """

    file: CaseFile
    case: str
    name: str
    labels: tuple[str, ...]
    parameters: Mapping[str, Any]
    gates: Mapping[str, bool]
    thresholds: float | Mapping[str, float]
    selector: MetricSelector
    template: tuple[Step, ...]
    collector: MetricsCollectorConfig | None
    scheduler_config: Path | None
    default_pod_template: str | None
    place: tuple[int, int]
    gate_places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    parameter_places: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`<case>/<workload>`."""
        return f"{self.case}/{self.name}"

    def threshold(self, topic: str) -> float:
        """Return the threshold of a topic; 0 if it has none."""
        found = self.thresholds
        return float(found if isinstance(found, int | float) else found.get(topic, 0.0))

    def steps(self) -> list[Step]:
        """Return the operations with this workload's parameters, sets of pods unrolled, renumbered.

        Raises: FileError: for a parameter that is undefined, of another type or unused, or an operation that is
        wrong.
        """
        used: set[str] = set()

        def parameter(name: str, wanted: type) -> Any:
            used.add(name)
            if name not in self.parameters:
                raise Wrong(f"parameter {name} is undefined")
            value = self.parameters[name]
            if wanted is int:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise Wrong(f"parameter {name} is {value!r}: want a number")
                return int(value)
            if wanted is not object and not isinstance(value, wanted):
                raise Wrong(f"parameter {name} is {value!r}: want {'a bool' if wanted is bool else 'a text'}")
            return value

        ops: list[Op] = []
        places: list[tuple[int, int]] = []
        for step in self.template:
            try:
                op = opcodes.resolve(step.op, parameter)
                step_ops: list[Op] = [op]
                if isinstance(op, CreatePodSets):
                    one = opcodes.resolve(op.create_pods_op, parameter)
                    assert isinstance(one, CreatePods)
                    names = [f"{op.namespace_prefix}-{number}" for number in range(op.count)]
                    step_ops = [msgspec.structs.replace(one, namespace=name) for name in names]
            except Wrong as error:
                raise self.error(f"op {step.number} {step.op.opcode}: {error}", step.place) from None
            ops += step_ops
            places += [step.place] * len(step_ops)
        for name in self.parameters:
            if name not in used:
                place = self.parameter_places.get(name, self.place)
                raise self.error(f"parameter {name} is not used by the workload template", place)
        return [Step(number, op, place) for number, (op, place) in enumerate(zip(ops, places, strict=True))]

    def error(self, text: str, place: tuple[int, int] | None = None) -> FileError:
        """Return an error about this workload."""
        return FileError(self.file.shown, f"{self.full_name}: {text}", *(place or self.place))


@dataclass(frozen=True)
class CaseFile:
    """A file of test cases. `shown`: its path as the user gave it."""

    path: Path
    shown: str
    workloads: list[Workload] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """Name of these cases in upstream's results file: the folder."""
        return self.path.parent.name or DEFAULT_TOPIC

    def relative(self, path: str) -> Path:
        """Return the path of a file that this one names."""
        return self.path.parent / path


def read(path: str) -> CaseFile:
    """Read a file of test cases. Raises: FileError naming the place."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except IsADirectoryError:
        raise FileError(path, "is a folder; want a file of test cases, such as performance-config.yaml in it") from None
    except UnicodeDecodeError:
        raise FileError(path, "not UTF-8") from None
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    return read_text(path, text)


def read_text(path: str, text: str) -> CaseFile:
    """Read test cases from the text of a file. Raises: FileError naming the place."""
    file = CaseFile(Path(path).absolute(), path)
    root = load(path, text)
    if root.value is not None and not isinstance(root.value, list):
        raise FileError(path, "want a list of test cases", root.line, root.column)
    if not root.value:
        raise FileError(path, "no test cases defined")
    names: set[str] = set()
    for node in root.value:
        file.workloads.extend(_case(file, node, names))
    return file


def _case(file: CaseFile, node: Located, names: set[str]) -> list[Workload]:
    at = (node.line, node.column)
    case: _Case = _convert(file.shown, node, _Case)
    places = _places(node)

    def wrong(text: str, place: tuple[int, int] = at) -> FileError:
        return FileError(file.shown, f"{case.name or 'a test case without a name'}: {text}", *place)

    if not case.name:
        raise wrong("name must be set")
    if case.name in names:
        raise wrong("name is not unique")
    names.add(case.name)
    if not case.workloads:
        raise wrong("no workloads defined")
    if not case.workload_template:
        raise wrong("no ops defined")
    ops = places["workloadtemplate"].value
    template = tuple(_step(file.shown, case.name, number, each) for number, each in enumerate(ops))
    if not any(step.op.collects for step in template):
        raise wrong("no op in the workload template collects metrics")
    workloads: dict[str, Workload] = {}
    for workload, where in zip(case.workloads, places["workloads"].value, strict=True):
        place = (where.line, where.column)
        if not workload.name:
            raise wrong("a workload without a name", place)
        if workload.name in workloads:
            raise wrong(f"workload name {workload.name} is not unique", place)
        below = _places(where)
        gates = {**_keys(places.get("featuregates")), **_keys(below.get("featuregates"))}
        values = workload.threshold
        for value in values.values() if isinstance(values, dict) else (values,):
            if value < 0:
                raise wrong(f"{workload.name}: invalid threshold {value:g}; should be non-negative", place)
        selector = workload.threshold_metric_selector or case.default_threshold_metric_selector or MetricSelector()
        if not selector.data_bucket:
            raise wrong(f"{workload.name}: dataBucket should be set for metric {selector.name}", place)
        config = case.scheduler_config_path
        workloads[workload.name] = Workload(
            file=file,
            case=case.name,
            name=workload.name,
            labels=(*case.labels, *workload.labels),
            parameters=_as_json(workload.params),
            gates={**case.feature_gates, **workload.feature_gates},
            thresholds=values,
            selector=selector,
            template=template,
            collector=case.metrics_collector_config,
            scheduler_config=file.relative(config) if config else None,
            default_pod_template=case.default_pod_template_path,
            place=place,
            gate_places=gates,
            parameter_places=_keys(below.get("params")),
        )
    return list(workloads.values())


def _as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as Go reads them from JSON: all numbers are floats."""
    numbers = {name: float(v) for name, v in parameters.items() if isinstance(v, int) and not isinstance(v, bool)}
    return {**parameters, **numbers}


def _places(node: Located) -> dict[str, Located]:
    return {name.casefold(): each for name, each in node.value.items()}


def _keys(node: Located | None) -> dict[str, tuple[int, int]]:
    return dict(node.keys) if node is not None else {}


def _step(path: str, case: str, number: int, node: Located) -> Step:
    place = (node.line, node.column)
    if not isinstance(node.value, dict):
        raise FileError(path, f"{case}: op {number}: want a mapping with an opcode", *place)
    named = [each for name, each in node.value.items() if name.casefold() == "opcode"]
    opcode = named[0].value if named else ""
    kind = OPCODES.get(opcode) if isinstance(opcode, str) else None
    if kind is None:
        where = (named[0].line, named[0].column) if named else place
        near = difflib.get_close_matches(str(opcode), OPCODES, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise FileError(path, f"{case}: op {number}: unknown opcode {opcode!r}{hint}", *where)
    op: Op = _convert(path, node, kind, f"{case}: op {number} {opcode}: ")
    try:
        op.check()
        for name in op.PARAMS:
            text = getattr(op, name)
            if text and not text.startswith(opcodes.PARAMETER_SIGN):
                raise Wrong(f"{opcodes.camel(name)} {text!r}: want $NAME")
    except Wrong as error:
        raise FileError(path, f"{case}: op {number} {opcode}: {error}", *place) from None
    return Step(number, op, place)


def _convert(path: str, node: Located, kind: type[Any], about: str = "") -> Any:
    """Return the value as that Struct. Raises: FileError for keys and types that are none of its."""
    plain = _normal(path, node, inspect.type_info(kind), about)
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        match = _PATH_IN_MESSAGE.search(text)
        steps = [a or b for a, b in _STEP.findall(match[1])] if match else []
        place = _casefold_keys(node).at(tuple(steps_folded(steps)))
        if match:
            text = text[: match.start()]
        name = next((step for step in reversed(steps) if not step.isdigit() and step != "..."), "")
        raise FileError(path, f"{about}{name + ': ' if name else ''}{text}", *place) from None


def steps_folded(steps: Sequence[str]) -> list[str]:
    """Return the names of a path in lower case."""
    return [step.casefold() for step in steps]


def _casefold_keys(node: Located) -> Located:
    """Return a tree whose names are without case."""
    if isinstance(node.value, dict):
        value: Any = {name.casefold(): _casefold_keys(each) for name, each in node.value.items()}
        return Located(value, node.line, node.column, {name.casefold(): at for name, at in node.keys.items()})
    if isinstance(node.value, list):
        return Located([_casefold_keys(each) for each in node.value], node.line, node.column, {})
    return node


def _normal(path: str, node: Located, kind: inspect.Type, about: str) -> Any:
    """Return a value with its keys as the type writes them, without nulls."""
    if isinstance(kind, inspect.UnionType):
        options = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        if node.value is None or len(options) != 1:
            return node.plain
        kind = options[0]
    if isinstance(kind, inspect.StructType) and isinstance(node.value, dict):
        return _normal_struct(path, node, kind, about)
    if isinstance(kind, inspect.ListType) and isinstance(node.value, list):
        return [_normal(path, each, kind.item_type, about) for each in node.value]
    if isinstance(kind, inspect.DictType) and isinstance(node.value, dict):
        return {name: _normal(path, each, kind.value_type, about) for name, each in node.value.items()}
    return node.plain


def _normal_struct(path: str, node: Located, kind: inspect.StructType, about: str) -> dict[str, Any]:
    fields = {each.encode_name.casefold(): each for each in kind.fields}
    values: dict[str, Any] = {}
    for name, member in node.value.items():
        known = fields.get(name.casefold())
        if known is None:
            near = difflib.get_close_matches(name, [f.encode_name for f in kind.fields], n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise FileError(path, f"{about}unknown key {name!r}{hint}", *node.keys[name])
        if known.encode_name in values:
            raise FileError(path, f"{about}key {name!r} is given twice", *node.keys[name])
        values[known.encode_name] = _normal(path, member, known.type, about) if member.value is not None else None
    return {name: value for name, value in values.items() if value is not None}
