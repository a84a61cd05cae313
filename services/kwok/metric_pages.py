"""Pages of KWOK's Metrics, as Prometheus' text. Pure.

A metric of the dimension node has one sample; of the dimension pod or container it has one for each on the
node. Of samples with equal labels the last counts. A metric with an expression that fails is left out.
Characters in names that Prometheus' text does not allow become underscores, as client_golang does for clients
that ask for nothing else.
Source: kubernetes-sigs/kwok pkg/kwok/metrics; decision 0073.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from services.api.meta import Document
from services.kwok.expressions import Draws, Expressions, Moment, go_object
from services.kwok.kinds.metric import Metric, Spec
from services.kwok.node_usage import NodeUsage, containers
from services.kwok.stages.template_functions import float_text

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNT_MAX: Final = (1 << 64) - 1
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_:]")
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scene:
    """A node and its pods as the API server has them, at a moment. `seed`: the seed of random draws in expressions."""

    node: Document
    pods: list[Document]
    usage: NodeUsage
    expressions: Expressions
    wall_s: float
    seed: int = 0
    failures: list[str] = field(default_factory=list)

    def moment(self, *words: object) -> Moment:
        """Return the inputs of functions for one evaluation."""
        return Moment(
            self.wall_s, Draws((self.seed, *words, self.wall_s)), self._usage, self._cumulative, self._start_count
        )

    def _usage(self, resource: str, given: Document, container: str) -> float:
        found = self._find_object(given)
        pods = self.pods if found is self.node else [found]
        return sum(self.usage.container_usage(resource, self.node, pod, container, self.wall_s) for pod in pods)

    def _cumulative(self, resource: str, given: Document, container: str) -> float:
        found = self._find_object(given)
        if found is self.node:
            return self.usage.node_cumulative(resource, self.node, self.pods, self.wall_s)
        return self.usage.cumulative(resource, self.node, found, container, self.wall_s)

    def _start_count(self, node: str) -> float:
        return float(self.usage.start_count(node))

    def _find_object(self, given: Document) -> Document:
        """Return the document of an object as expressions have it. Raises: ValueError for what is none of these."""
        metadata = given.get("metadata") or {}
        name = metadata.get("namespace"), metadata.get("name")
        for pod in self.pods:
            if (pod["metadata"].get("namespace"), pod["metadata"]["name"]) == name:
                return pod
        if metadata.get("name") == self.node["metadata"]["name"]:
            return self.node
        raise ValueError(f"{metadata.get('name')}: is neither the node nor a pod of it")


@dataclass
class _Family:
    metric: Metric
    samples: dict[Labels, Any] = field(default_factory=dict)


def page(spec: Spec, scene: Scene) -> bytes:
    """Return the text of a page; `scene.failures` gets a line for each metric that is left out."""
    node = go_object("node", scene.node)
    pods = [(pod, go_object("pod", pod)) for pod in scene.pods]
    families: dict[str, _Family] = {}
    for metric in spec.metrics:
        family = families.setdefault(_name(metric.name), _Family(metric))
        try:
            for objects in _objects(metric, node, pods):
                labels = _labels(metric, objects, scene)
                family.samples[labels] = _value(metric, objects, scene, labels)
        except ValueError as error:
            scene.failures.append(f"{metric.name}: {error}")
            family.samples.clear()
    return "".join(_text(name, families[name]) for name in sorted(families) if families[name].samples).encode()


def _objects(metric: Metric, node: Document, pods: Iterable[tuple[Document, Document]]) -> Iterator[Document]:
    if metric.dimension == "node":
        yield {"node": node, "pod": None, "container": None}
        return
    for raw, pod in pods:
        if metric.dimension == "pod":
            yield {"node": node, "pod": pod, "container": None}
            continue
        for name in containers(raw):
            spec = next(each for each in raw["spec"]["containers"] if each["name"] == name)
            yield {"node": node, "pod": pod, "container": go_object("container", spec)}


def _labels(metric: Metric, objects: Document, scene: Scene) -> Labels:
    text = scene.expressions.text
    found = {
        _name(each.name): text(each.value, objects, scene.moment(metric.name, each.name)) for each in metric.labels
    }
    return tuple(sorted(found.items()))


def _value(metric: Metric, objects: Document, scene: Scene, labels: Labels) -> Any:
    number = scene.expressions.number
    if metric.kind != "histogram":
        return number(metric.value, objects, scene.moment(metric.name, labels))
    counts = []
    for bucket in sorted(metric.buckets, key=lambda each: each.le):
        count = number(bucket.value, objects, scene.moment(metric.name, labels, bucket.le))
        counts.append((bucket, min(COUNT_MAX, int(count)) if count > 0 else 0))
    return counts


def _text(name: str, family: _Family) -> str:
    metric = family.metric
    lines = [f"# HELP {name} {_escape(metric.help)}"] if metric.help else []
    lines.append(f"# TYPE {name} {metric.kind}")
    for labels in sorted(family.samples, key=lambda each: [value for _, value in each]):
        value = family.samples[labels]
        if metric.kind == "histogram":
            lines += _histogram(name, labels, value)
        else:
            lines.append(f"{name}{_label_text(labels)} {float_text(value)}")
    return "\n".join((*lines, ""))


def _histogram(name: str, labels: Labels, counts: list[tuple[Any, int]]) -> Iterator[str]:
    total, area = 0, 0.0
    for bucket, count in counts:
        total += count
        area += bucket.le * count if count else 0.0
        if not bucket.hidden and bucket.le < math.inf:
            yield f"{name}_bucket{_label_text((*labels, ('le', float_text(bucket.le))))} {total}"
    yield f"{name}_bucket{_label_text((*labels, ('le', '+Inf')))} {total}"
    yield f"{name}_sum{_label_text(labels)} {float_text(area)}"
    yield f"{name}_count{_label_text(labels)} {total}"


def _name(name: str) -> str:
    made = _NOT_IN_NAMES.sub("_", name)
    return f"_{made}" if made[:1].isdigit() else made


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quote(value)}"' for name, value in labels) + "}"


def _quote(text: str) -> str:
    return _escape(text).replace('"', r"\"")
