"""How much of a resource is used over time, as annotations describe it: curves of points. Pure.

Clauses are separated by `;`, quantities are Kubernetes' own:

    memory 200Mi             from the start
    memory 2Gi at 60s        jumps there 60 s after the start
    memory 4Gi by 5m         grows evenly from what the clause before says to that, reached at 5 m
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from services.api.quantity import amount
from services.api.times import seconds_in

ANNOTATION = "keplab.dev/usage"
RESOURCES = ("cpu", "memory", "ephemeral-storage", "inodes", "pids")
LOAD_ANNOTATION = "keplab.dev/load"
"""On a workload: what its pods use together, divided evenly among those that are ready."""
LOAD_RESOURCES = ("cpu", "memory")


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
                    point = Point(seconds_in(age), amount(resource, quantity), how == "by")
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


def text_for(annotations: Mapping[str, str], container: str) -> str:
    """Return what the annotations of a pod say of one container: its own, else that for all of them."""
    return annotations.get(f"{ANNOTATION}.{container}") or annotations.get(ANNOTATION, "")
