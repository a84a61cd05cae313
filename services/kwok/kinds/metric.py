"""Metric: a page of metrics that kubelets serve, whose values are expressions. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/metric_types.go, pkg/kwok/server/metrics.go; decision 0073.
"""

import math
import re
from typing import Final, Literal

from services.kwok.kind import Kind, Part

ROOT: Final = "/metrics"
NODE_NAME: Final = "{nodeName}"
MetricKind = Literal["counter", "gauge", "histogram"]
Dimension = Literal["node", "pod", "container"]
VARIABLES: Final[dict[str, frozenset[str]]] = {
    "node": frozenset({"node"}),
    "pod": frozenset({"node", "pod"}),
    "container": frozenset({"node", "pod", "container"}),
}
"""Variables that an expression may use, by the dimension of its metric."""
_PARAMETER: Final = re.compile(r"\{[^{}]*\}")


class Label(Part, frozen=True):
    """A label; its value is an expression with a text result."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError(".name: want the name of a label")
        _check(self.value, ".value")


class Bucket(Part, frozen=True):
    """Number of observations up to `le` and above the previous bucket. A hidden bucket counts in the next one."""

    le: float
    value: str
    hidden: bool = False

    def __post_init__(self) -> None:
        if self.le < 0 or math.isnan(self.le):
            raise ValueError(f".le {self.le:g}: want 0 or more")
        _check(self.value, ".value")


class Metric(Part, frozen=True):
    """One metric: one sample for the node, or one for each of its pods or containers."""

    name: str
    kind: MetricKind
    help: str = ""
    dimension: Dimension = "node"
    labels: tuple[Label, ...] = ()
    value: str = ""
    buckets: tuple[Bucket, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError(".name: want the name of a metric")
        if self.kind == "histogram":
            if not self.buckets or self.value:
                raise ValueError(f".buckets: {self.name} is a histogram: want buckets, and no value")
        elif self.buckets or not self.value:
            raise ValueError(f".value: {self.name} is a {self.kind}: want a value, and no buckets")
        if self.value:
            _check(self.value, ".value")
        allowed = VARIABLES[self.dimension]
        for path, text in self.expressions():
            if other := sorted(_names_in(text) & VARIABLES["container"] - allowed):
                raise ValueError(f"{path}: {text!r} names {other[0]}, and the dimension is {self.dimension}")
        for path, names in (
            (".labels", [each.name for each in self.labels]),
            (".buckets", [str(each.le) for each in self.buckets]),
        ):
            if len(set(names)) != len(names):
                twice = next(name for place, name in enumerate(names) if name in names[:place])
                raise ValueError(f"{path}: {twice} is given twice")

    def expressions(self) -> list[tuple[str, str]]:
        """Return every expression with its path."""
        found = [(".value", self.value)] if self.value else []
        found += [(f".labels[{n}].value", each.value) for n, each in enumerate(self.labels)]
        return found + [(f".buckets[{n}].value", each.value) for n, each in enumerate(self.buckets)]


class Spec(Part, frozen=True):
    """Spec of the document. `path` may contain `{nodeName}`; otherwise the node is the document's name."""

    path: str
    metrics: tuple[Metric, ...]

    def __post_init__(self) -> None:
        if not self.path.startswith(f"{ROOT}/") or self.path.rstrip("/") == ROOT:
            raise ValueError(f".path {self.path!r}: want one that begins with {ROOT}/")
        if other := [name for name in _PARAMETER.findall(self.path) if name != NODE_NAME]:
            raise ValueError(f".path {self.path!r}: {other[0]} is not known; {NODE_NAME} is")
        if self.path.count(NODE_NAME) > 1 or "{" in _PARAMETER.sub("", self.path):
            raise ValueError(f".path {self.path!r}: want {NODE_NAME} once, or not at all")


def _names_in(expression: str) -> frozenset[str]:
    """Return the variables of an expression. Raises: ValueError."""
    # Only here: CEL is large, and few meshes have such documents.
    from services.kwok.expressions import compile_program

    return compile_program(expression, has_usage=True).names


def _check(expression: str, path: str) -> None:
    try:
        _names_in(expression)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _consistent(spec: Spec) -> tuple[str, str] | None:
    """Return what Prometheus could not read: metrics of one name that differ in what is said of all of them."""
    first: dict[str, Metric] = {}
    for number, metric in enumerate(spec.metrics):
        known = first.setdefault(metric.name, metric)
        for what, one, other in (
            ("kind", known.kind, metric.kind),
            ("help", known.help, metric.help),
            ("labels", sorted(label.name for label in known.labels), sorted(label.name for label in metric.labels)),
        ):
            if one != other:
                return f"metrics[{number}].{what}", f"{other!r}, and {metric.name} has {one!r} above"
    return None


KIND = Kind("Metric", Spec, "metrics", has_cluster=False, is_of_pods=False, check=_consistent, unique="path")
