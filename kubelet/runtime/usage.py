"""What emulated containers use of their node over time, read from annotations. Pure.

The annotation `keplab.dev/usage` speaks for every container of a pod, `keplab.dev/usage.<container>` for one. Clauses
are separated by `;`, ages are counted from the container's start, quantities are Kubernetes' own:

    memory 200Mi             from the start
    memory 2Gi at 60s        jumps there 60 s after the start
    memory 4Gi by 5m         grows evenly from what the clause before says to that, reached at 5 m

Resources are memory, ephemeral-storage, inodes and pids; a node's own use (`usage` of its definition, ages counted
from the kubelet's start) has imagefs too. A container that uses more memory than its limit is ended (OOMKilled).
"""

from functools import lru_cache

import msgspec

from kubelet.runtime.script import duration_s
from kubelet.view import KubeletPod
from services.api.quantity import amount

ANNOTATION = "keplab.dev/usage"
RESOURCES = ("memory", "ephemeral-storage", "inodes", "pids")
NODE_RESOURCES = (*RESOURCES, "imagefs")


class Point(msgspec.Struct, frozen=True):
    """From `age_s` on `value` is used; with `is_reached_evenly` it grew to that since the point before."""

    age_s: float
    value: int
    is_reached_evenly: bool = False


Curves = dict[str, tuple[Point, ...]]
"""By resource, oldest point first."""


def value_at(points: tuple[Point, ...], age_s: float) -> int:
    """Return what is used at that age, in whole units."""
    since, value = 0.0, 0
    for point in points:
        if age_s < point.age_s:
            if not point.is_reached_evenly:
                break
            share = (age_s - since) / (point.age_s - since)
            return value + int((point.value - value) * share)
        since, value = point.age_s, point.value
    return value


def next_above_s(points: tuple[Point, ...], limit: int, age_s: float) -> float | None:
    """Return the first age, not before `age_s`, from which more than `limit` is used; None: never."""
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
    """Return the curves `text` describes. Raises: ValueError naming the clause."""
    curves: Curves = {}
    for clause in filter(None, (part.strip() for part in text.split(";"))):
        try:
            match clause.split():
                case [resource, quantity]:
                    point = Point(0.0, amount(resource, quantity))
                case [resource, quantity, ("at" | "by") as how, age]:
                    point = Point(duration_s(age), amount(resource, quantity), how == "by")
                case _:
                    raise ValueError("want RESOURCE QUANTITY [at AGE | by AGE]")
            before = curves.get(resource, ())
            if resource not in resources:
                raise ValueError(f"want one of {', '.join(resources)}")
            if before and point.age_s <= before[-1].age_s:
                raise ValueError("want an age above that of the clause before")
        except ValueError as error:
            raise ValueError(f"usage {clause!r}: {error}") from None
        curves[resource] = (*before, point)
    return curves


def describes_usage(pod: KubeletPod) -> bool:
    """Whether the pod has curves."""
    return any(name.startswith(ANNOTATION) for name in pod.metadata.annotations)


def curves(pod: KubeletPod, container: str) -> Curves:
    """Return the curves of one container; what cannot be read is not used."""
    annotations = pod.metadata.annotations
    try:
        return parse_curves(annotations.get(f"{ANNOTATION}.{container}") or annotations.get(ANNOTATION, ""))
    except ValueError:
        return {}


def used(pod: KubeletPod, container: str, age_s: float) -> dict[str, int]:
    """Return what a container that runs for so long uses, by resource."""
    return {name: value_at(points, age_s) for name, points in curves(pod, container).items()}
