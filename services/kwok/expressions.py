"""KWOK's expressions: CEL with KWOK's functions, over objects as Go has them. Pure.

Variables are `node`, `pod` and `container`. Missing fields of an object have Go's zero value. Times are
timestamps. Requests, limits, capacity and allocatable are quantities, which operators add, subtract, scale and
compare. A `Moment` answers `Now`, `Rand` and the functions of usage, so that equal moments give equal values.
Source: kubernetes-sigs/kwok pkg/utils/cel, pkg/kwok/metrics/evaluator.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from services.api.meta import Document
from services.cel.declarations import Library, Overload, of, on
from services.cel.environment import KUBERNETES, CompileError, Environment, EvaluationError, Program
from services.cel.quantities import QUANTITY, Quantity, quantity
from services.cel.times import duration_text, timestamp, timestamp_text
from services.cel.types import BOOL, DOUBLE, DYN, INT, STRING, TIMESTAMP, UINT, Type
from services.cel.values import Duration, Timestamp

NANOS: Final = 10**9
_QUANTITIES: Final = frozenset(("requests", "limits", "capacity", "allocatable", "allocatedResources", "overhead"))
_TIMES: Final = frozenset(("startTime", "startedAt", "finishedAt", "creationTimestamp", "deletionTimestamp"))
_NO_TIME: Final = Timestamp(-62135596800 * NANOS)
_METADATA: Final[Document] = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), ""),
    **{key: {} for key in ("labels", "annotations")},
    **{key: [] for key in ("ownerReferences", "finalizers")},
    "creationTimestamp": _NO_TIME,
    "generation": 0,
}
_ZEROS: Final[dict[str, dict[str, Document]]] = {
    "node": {
        "metadata": _METADATA,
        "spec": {"podCIDR": "", "podCIDRs": [], "providerID": "", "unschedulable": False, "taints": []},
        "status": {
            **{key: {} for key in ("capacity", "allocatable", "nodeInfo")},
            **{key: [] for key in ("conditions", "addresses", "images")},
            "phase": "",
        },
    },
    "pod": {
        "metadata": _METADATA,
        "spec": {
            **dict.fromkeys(("nodeName", "serviceAccountName", "schedulerName", "priorityClassName", "hostname"), ""),
            **{key: [] for key in ("containers", "initContainers", "volumes", "tolerations")},
            **dict.fromkeys(("restartPolicy", "preemptionPolicy"), ""),
            "nodeSelector": {},
            "priority": 0,
            "hostNetwork": False,
        },
        "status": {
            **dict.fromkeys(("phase", "podIP", "hostIP", "reason", "message", "qosClass", "nominatedNodeName"), ""),
            **{key: [] for key in ("conditions", "containerStatuses", "initContainerStatuses", "podIPs")},
            "startTime": _NO_TIME,
        },
    },
}
_CONTAINER: Final[Document] = {
    **dict.fromkeys(("name", "image", "workingDir", "imagePullPolicy"), ""),
    **{key: [] for key in ("command", "args", "env", "ports", "volumeMounts")},
}


def go_object(kind: str, document: Document) -> Document:
    """Return a node, pod or container with Go's zero values for missing fields, and typed times and quantities."""
    base: Document = _convert(document)
    if kind == "container":
        container_object = {**_CONTAINER, **base}
        container_object["resources"] = {"requests": {}, "limits": {}, **container_object.get("resources", {})}
        return container_object
    return {**base, **{part: {**zeros, **(base.get(part) or {})} for part, zeros in _ZEROS[kind].items()}}


def _convert(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        if name in _QUANTITIES:
            return {key: _quantity(each) for key, each in value.items()}
        return {key: _convert(each, key) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_convert(each) for each in value]
    if isinstance(value, str) and (name in _TIMES or name.endswith("Time")):
        try:
            return timestamp(value)
        except EvaluationError:
            return value
    return value


def _quantity(value: Any) -> Any:
    try:
        return quantity(str(value))
    except EvaluationError:
        return value


def as_json(value: Any) -> Any:
    """Return a CEL value as JSON: times as RFC 3339, durations as Go writes them."""
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    return value.as_float() if isinstance(value, Quantity) else value


def share_of(*words: object) -> float:
    """Return a number in [0, 1) that is a hash of these words."""
    text = "\0".join(map(str, words)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big") / (1 << 56)


@dataclass
class Moment:
    """Inputs of an evaluation besides its objects. `draw` returns the next number of [0, 1).

    `usage` and `cumulative` take resource, object (a pod or a node) and container ("": all); `started` takes the
    name of a node.
    """

    wall_s: float
    draw: Callable[[], float]
    usage: Callable[[str, Document, str], float] = lambda _resource, _of, _container: 0.0
    cumulative: Callable[[str, Document, str], float] = lambda _resource, _of, _container: 0.0
    started: Callable[[str], float] = lambda _node: 0.0


@dataclass
class Draws:
    """Random draws of one evaluation: equal words give equal numbers."""

    words: tuple[object, ...]
    count: int = field(default=0)

    def __call__(self) -> float:
        """Return the next number of [0, 1)."""
        self.count += 1
        return share_of(*self.words, self.count)


class Expressions:
    """Programs and their evaluation. `has_usage`: with functions that return the usage of pods."""

    def __init__(self, *, has_usage: bool = False, variables: tuple[str, ...] = ("node", "pod", "container")) -> None:
        self._moment = Moment(0.0, lambda: 0.0)
        functions = {**self._common(), **(self._of_usage() if has_usage else {})}
        self._environment = Environment(
            dict.fromkeys(variables, DYN), libraries=(*KUBERNETES, _ARITHMETIC, Library(functions))
        )

    def compile(self, text: str) -> Program:
        """Return the program; each text is compiled once. Raises: ValueError in one line."""
        try:
            return self._environment.compile(text)
        except (CompileError, EvaluationError) as error:
            raise ValueError(str(error).splitlines()[0]) from None

    def value(self, text: str, objects: Mapping[str, Any], moment: Moment) -> Any:
        """Return the result of the expression. Raises: ValueError."""
        before, self._moment = self._moment, moment  # expressions ask for usage, which is given by expressions
        try:
            return self.compile(text).evaluate(objects)
        finally:
            self._moment = before

    def number(self, text: str, objects: Mapping[str, Any], moment: Moment) -> float:
        """Return the result as KWOK's number: true is 1, a duration is its nanoseconds. Raises: ValueError."""
        match self.value(text, objects, moment):
            case bool() | int() | float() as found:
                return float(found)
            case Quantity() as found:
                return found.as_float()
            case Duration(nanos):
                return float(nanos)
            case other:
                raise ValueError(f"{text!r} gives {type(other).__name__}: want a number")

    def text(self, text: str, objects: Mapping[str, Any], moment: Moment) -> str:
        """Return the result, which must be a text. Raises: ValueError."""
        found = self.value(text, objects, moment)
        if not isinstance(found, str):
            raise ValueError(f"{text!r} gives {type(found).__name__}: want a text")
        return found

    def _common(self) -> dict[str, tuple[Overload, ...]]:
        now = of("kwok_now", (), TIMESTAMP, lambda: Timestamp(round(self._moment.wall_s * NANOS)))
        return {
            "Now": (now,),
            "now": (now,),
            "Rand": (of("kwok_rand", (), DOUBLE, lambda: self._moment.draw()),),
            "SinceSecond": _both("since_second", (DYN,), DOUBLE, self._since),
            "UnixSecond": _both("unix_second", (TIMESTAMP,), DOUBLE, lambda at: at.nanos / NANOS),
            "Quantity": (
                *_both("quantity_of_text", (STRING,), QUANTITY, quantity),
                *_both("quantity_of_quantity", (QUANTITY,), QUANTITY, lambda given: given),
            ),
            "AsApproximateFloat64": (on("kwok_float", (QUANTITY,), DOUBLE, Quantity.as_float),),
        }

    def _of_usage(self) -> dict[str, tuple[Overload, ...]]:
        def usage_overloads(name: str, ask: Callable[[str, Document, str], float]) -> tuple[Overload, ...]:
            return (
                on(f"{name}_of_all", (DYN, STRING), DOUBLE, lambda of_what, resource: ask(resource, of_what, "")),
                on(f"{name}_of_one", (DYN, STRING, STRING), DOUBLE, lambda pod, resource, one: ask(resource, pod, one)),
            )

        started = (
            *_both("started_on", (DYN,), DOUBLE, lambda node: self._moment.started(_name_of(node))),
            *_both("started_on_named", (STRING,), DOUBLE, lambda name: self._moment.started(name)),
        )
        return {
            "Usage": usage_overloads("usage", lambda *what: self._moment.usage(*what)),
            "CumulativeUsage": usage_overloads("cumulative", lambda *what: self._moment.cumulative(*what)),
            "StartedContainersTotal": started,
            "startedContainersTotal": started,
            "Ready": (on("kwok_ready", (DYN, STRING), BOOL, lambda pod, name: bool(_status(pod, name).get("ready"))),),
            "RestartCount": (
                on("kwok_restarts", (DYN, STRING), INT, lambda pod, name: _status(pod, name).get("restartCount", 0)),
            ),
        }

    def _since(self, given: Any) -> float:
        created = (given.get("metadata") or {}).get("creationTimestamp") if isinstance(given, Mapping) else None
        if isinstance(created, str):
            created = timestamp(created)
        if not isinstance(created, Timestamp):
            raise EvaluationError("no such overload: SinceSecond")
        return self._moment.wall_s - created.nanos / NANOS


def _name_of(node: Any) -> str:
    metadata = node.get("metadata") if isinstance(node, Mapping) else None
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else str(node)


def _status(pod: Any, container: str) -> Document:
    status = pod.get("status") if isinstance(pod, Mapping) else None
    statuses = status.get("containerStatuses") if isinstance(status, Mapping) else None
    return next((each for each in statuses or () if isinstance(each, dict) and each.get("name") == container), {})


def _both(name: str, params: tuple[Type, ...], result: Type, impl: Callable[..., Any]) -> tuple[Overload, ...]:
    """Return the two ways of a call: `f(a)` and `a.f()`."""
    return of(f"kwok_{name}", params, result, impl), on(f"kwok_{name}_member", params, result, impl)


def _scale(given: Quantity, by: float) -> Quantity:
    try:
        return Quantity(round(given.nanos * by), whole=False)
    except (OverflowError, ValueError):  # an infinity, NaN, or more than any double
        raise EvaluationError("integer overflow") from None


def _part(given: Quantity, by: float) -> Quantity:
    if by == 0:
        raise EvaluationError("division by zero")
    if isinstance(by, int):
        return Quantity(abs(given.nanos) // abs(by) * (1 if (given.nanos < 0) == (by < 0) else -1), whole=False)
    try:
        return Quantity(round(given.nanos / by), whole=False)
    except (OverflowError, ValueError):
        raise EvaluationError("integer overflow") from None


_NUMBERS: Final = (("int64", INT), ("uint64", UINT), ("double", DOUBLE))
_TWO: Final = (QUANTITY, QUANTITY)
_ARITHMETIC: Final = Library(
    {
        "_+_": (of("add_quantity", _TWO, QUANTITY, Quantity.plus),),
        "_-_": (of("subtract_quantity", _TWO, QUANTITY, Quantity.minus),),
        "-_": (of("negate_quantity", (QUANTITY,), QUANTITY, lambda a: Quantity(-a.nanos, a.whole)),),
        "_*_": tuple(of(f"multiply_quantity_{name}", (QUANTITY, each), QUANTITY, _scale) for name, each in _NUMBERS),
        "_/_": tuple(of(f"divide_quantity_{name}", (QUANTITY, each), QUANTITY, _part) for name, each in _NUMBERS),
        "_<_": (of("less_quantity", _TWO, BOOL, lambda a, b: a.nanos < b.nanos),),
        "_<=_": (of("less_equals_quantity", _TWO, BOOL, lambda a, b: a.nanos <= b.nanos),),
        "_>_": (of("greater_quantity", _TWO, BOOL, lambda a, b: a.nanos > b.nanos),),
        "_>=_": (of("greater_equals_quantity", _TWO, BOOL, lambda a, b: a.nanos >= b.nanos),),
        "double": (of("quantity_to_double", (QUANTITY,), DOUBLE, Quantity.as_float),),
    }
)


@lru_cache(maxsize=2)
def _checking(has_usage: bool) -> Expressions:
    return Expressions(has_usage=has_usage)


def compile_program(text: str, *, has_usage: bool = False) -> Program:
    """Return the program of an expression for inspection only. Raises: ValueError in one line."""
    return _checking(has_usage).compile(text)
