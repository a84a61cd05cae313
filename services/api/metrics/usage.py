"""Resource usage over time, which annotations describe as curves of points. Pure.

Clauses are separated by `;`, quantities are Kubernetes' own:

    memory 200Mi             from the start
    memory 2Gi at 60s        jumps there 60 s after the start
    memory 4Gi by 5m         grows evenly from the value of the clause before to this one, reached at 5 m
    emptydir/data 1Gi        of a container: its usage of the volume `data`
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from services.api.meta import Document
from services.api.quantity import amount, milli, units
from services.api.times import seconds_in

ANNOTATION = "keplab.dev/usage"
KWOK_ANNOTATION = "kwok.x-k8s.io/usage-"
"""Annotation prefix of a pod, followed by cpu or memory: the constant usage of each of its containers."""
RESOURCES = ("cpu", "memory", "ephemeral-storage", "inodes", "pids")
EMPTY_DIR = "emptydir/"
"""Prefix of a volume's name: what a container writes into that emptyDir."""
MEMORY_ANNOTATION = "keplab.dev/memory"
"""Annotation of a pod: constant memory usage, for pods whose curves do not mention memory."""
LOAD_ANNOTATION = "keplab.dev/load"
"""Annotation of a workload: total usage and custom metrics of its pods, divided evenly among the ready ones."""
METRICS_ANNOTATION = "keplab.dev/metrics"
"""Annotation of a pod or any other object: its custom metrics. Names are free; ages count from its start or
creation.
"""
EXTERNAL_ANNOTATION = "keplab.dev/external-metrics"
"""Annotation of a namespace: its external metrics, one clause per step of a series: `queue{topic=a} 30 at 5m`."""
_SERIES = re.compile(r"([A-Za-z_][A-Za-z0-9_.:/-]*)(?:\{([^{}\s]*)\})?")


class Point(msgspec.Struct, frozen=True):
    """A point of a usage curve: from `age_s` on, usage is `value`.

    With `is_reached_evenly` usage grows linearly from the point before to this one.
    """

    age_s: float
    value: int
    is_reached_evenly: bool = False


class UsageDocuments(Protocol):
    """Usage of pods from documents, where the pods' own annotations give none (`services/kwok/usage`)."""

    failures: dict[str, str]
    """The last error of each expression that could not be evaluated."""

    def says(self, pod: Document, container: str) -> bool:
        """Whether a document gives the container's usage and the pod's own annotations do not."""

    def container_usage(self, resource: str, node: Document, pod: Document, container: str, wall_s: float) -> float:
        """Return how much of a resource a container uses, in cores or bytes."""


Curves = dict[str, tuple[Point, ...]]
"""Usage curves by resource, oldest point first."""


def value_at(points: tuple[Point, ...], age_s: float) -> int:
    """Return the usage at that age, in whole units."""
    since, value = 0.0, 0
    for point in points:
        if age_s < point.age_s:
            if not point.is_reached_evenly:
                break
            share = (age_s - since) / (point.age_s - since)
            return value + int((point.value - value) * share)
        since, value = point.age_s, point.value
    return value


def integral(points: tuple[Point, ...], age_s: float) -> float:
    """Return the total usage since the start, in units times seconds: the area below the curve up to that age."""
    area, since, value = 0.0, 0.0, 0.0
    for point in points:
        end = min(point.age_s, age_s)
        at_end = float(value_at(points, end)) if point.is_reached_evenly and end < point.age_s else value
        if point.is_reached_evenly and end == point.age_s:
            at_end = point.value
        area += (end - since) * (value + at_end) / 2
        if age_s <= point.age_s:
            return area
        since, value = point.age_s, float(point.value)
    return area + (age_s - since) * value


def next_above_s(points: tuple[Point, ...], limit: int, age_s: float) -> float | None:
    """Return the first age, `age_s` or later, from which usage is above `limit`; None: never."""
    if value_at(points, age_s) > limit:
        return age_s
    since, value = 0.0, 0
    for point in points:
        if point.age_s > age_s and point.value > limit:
            if not point.is_reached_evenly:
                return point.age_s
            return since + (point.age_s - since) * (limit - value) / (point.value - value)
        since, value = point.age_s, point.value
    return None


@lru_cache(maxsize=1024)
def parse_curves(text: str, resources: tuple[str, ...] = RESOURCES) -> Curves:
    """Return the curves that `text` describes, for `resources` only.

    With empty `resources`, any series is allowed and values are in thousandths. Raises: ValueError naming the
    clause.
    """
    curves: Curves = {}
    count = amount if resources else _thousandths
    for clause in filter(None, (part.strip() for part in text.split(";"))):
        try:
            match clause.split():
                case [resource, quantity]:
                    point = Point(0.0, count(resource, quantity))
                case [resource, quantity, ("at" | "by") as how, age]:
                    point = Point(seconds_in(age), count(resource, quantity), how == "by")
                case _:
                    raise ValueError("want RESOURCE QUANTITY [at AGE | by AGE]")
            before = curves.get(resource, ())
            is_volume = resources is RESOURCES and resource.startswith(EMPTY_DIR) and resource != EMPTY_DIR
            if resources and resource not in resources and not is_volume:
                raise ValueError(f"want one of {', '.join(resources)}")
            if not resources:
                series_of(resource)
            if before and point.age_s <= before[-1].age_s:
                raise ValueError("want an age above that of the clause before")
        except ValueError as error:
            raise ValueError(f"usage {clause!r}: {error}") from None
        curves[resource] = (*before, point)
    return curves


def text_for(annotations: Mapping[str, str], container: str) -> str:
    """Return the usage text of one container from a pod's annotations: its own, else that for all containers, else
    KWOK's.
    """
    return annotations.get(f"{ANNOTATION}.{container}") or annotations.get(ANNOTATION, "") or _of_kwok(annotations)


def _of_kwok(annotations: Mapping[str, str]) -> str:
    """Return what KWOK's annotations say, which its shipped ClusterResourceUsage reads: one quantity a resource."""
    given = ((name, annotations.get(f"{KWOK_ANNOTATION}{name}")) for name in ("cpu", "memory"))
    return "; ".join(f"{name} {text}" for name, text in given if text and " " not in text and ";" not in text)


def _thousandths(_series: str, text: str) -> int:
    return milli(text)


@lru_cache(maxsize=1024)
def series_of(text: str) -> tuple[str, Mapping[str, str]]:
    """Return name and labels of a series: `queue{topic=a,zone=b}`. Raises: ValueError."""
    found = _SERIES.fullmatch(text)
    labels = [part.partition("=") for part in (found[2] or "").split(",") if part] if found else []
    if found is None or any(not name or not sign for name, sign, _ in labels):
        raise ValueError(f"series {text!r}: want NAME or NAME{{LABEL=VALUE,…}}")
    return found[1], {name: value for name, _, value in labels}


def curves_in(text: str, resources: tuple[str, ...] = RESOURCES) -> Curves:
    """Return the curves that `text` describes; empty if it cannot be read."""
    try:
        return parse_curves(text, resources)
    except ValueError:
        return {}


def memory_used(annotations: Mapping[str, str], container: str) -> int:
    """Return the bytes a container uses by `keplab.dev/memory`; 0 if it gives none."""
    text = annotations.get(f"{MEMORY_ANNOTATION}.{container}") or annotations.get(MEMORY_ANNOTATION)
    try:
        return units(text) if text else 0
    except ValueError:
        return 0
