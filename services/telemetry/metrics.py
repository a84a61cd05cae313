"""Metrics: each declared once, with name, type, help and labels, and read when it is scraped.

A component counts in plain integers of its own, since an increment of a client library's metric costs seventy times as
much (walls 2). Beside its class stands a table that says what they are called, `Metrics(counter(name, help, read), …)`,
where `read` takes the object and returns a number or a histogram, or those by the values of labels. Pure.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, Literal, TypeVar

T = TypeVar("T")


class Counts:
    """Counters by the values of their labels; a counter appears with its first count."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {}

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Count."""
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = {}
        counts[labels] = counts.get(labels, 0) + by

    def of(self, name: str) -> Mapping[tuple[str, ...], float]:
        """Return one counter."""
        return self._counts.get(name, {})


class Histogram:
    """Counts by upper bound; they are added up only when they are read."""

    __slots__ = ("_bounds", "_counts", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, once or many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times
        self.count += times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound as it is written, and how many values are not above it."""
        bounds = (*(f"{bound:g}" for bound in self._bounds), "+Inf")
        return zip(bounds, accumulate(self._counts), strict=True)

    def samples(self, name: str, labels: str = "") -> Iterator[tuple[str, float]]:
        """Yield `name_bucket{…,le="…"}`, `name_sum` and `name_count`."""
        prefix = f"{labels}," if labels else ""
        for le, total in self.buckets():
            yield f'{name}_bucket{{{prefix}le="{le}"}}', total
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces}", self.sum
        yield f"{name}_count{braces}", self.count


Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Read = Callable[[T], Value | Mapping[Any, Value]]
"""By label values the key is a text, or a tuple of texts in the order of the labels."""


@dataclass(frozen=True)
class Metric(Generic[T]):
    """What one number of an object of a class is called. `labels`: those that `read` distinguishes."""

    name: str
    kind: Kind
    help: str
    read: Read[T]
    labels: tuple[str, ...]

    def samples(self, source: T, common: Iterable[str]) -> Iterator[tuple[str, float]]:
        """Yield the samples of one object; `common`: labels that all of its metrics have."""
        found = self.read(source)
        if not isinstance(found, Mapping):
            yield from self._sample(",".join(common), found)
            return
        for key, value in found.items():
            values = (key,) if isinstance(key, str) else key
            own = (label(name, each) for name, each in zip(self.labels, values, strict=True))
            yield from self._sample(",".join((*common, *own)), value)

    def _sample(self, labels: str, value: Value) -> Iterator[tuple[str, float]]:
        if isinstance(value, Histogram):
            yield from value.samples(self.name, labels)
        else:
            yield f"{self.name}{{{labels}}}" if labels else self.name, value


def counter(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare what only grows."""
    return Metric(name, "counter", help, read, labels)


def gauge(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare what goes up and down."""
    return Metric(name, "gauge", help, read, labels)


def histogram(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare a distribution."""
    return Metric(name, "histogram", help, read, labels)


REGISTER: Final[dict[str, tuple[Kind, str]]] = {}
"""Type and help of every metric that the modules imported so far declare, by name."""


class Metrics(Generic[T]):
    """The metrics of one class. `labels`: those that all of them have, with one value an object.

    Classes may share a metric, each with label values of its own.
    Raises: ValueError for a name that is declared already with another type or help.
    """

    def __init__(self, *metrics: Metric[T], labels: tuple[str, ...] = ()) -> None:
        self._metrics, self._labels = metrics, labels
        for metric in metrics:
            declared = REGISTER.setdefault(metric.name, (metric.kind, metric.help))
            if declared != (metric.kind, metric.help):
                raise ValueError(f"metric {metric.name} is declared twice: {' '.join(declared)}")

    def of(self, source: T, *values: str) -> dict[str, float]:
        """Return the samples of one object by name, labels included as Prometheus writes them."""
        common = [label(name, value) for name, value in zip(self._labels, values, strict=True)]
        return {name: value for metric in self._metrics for name, value in metric.samples(source, common)}


def label(name: str, value: str) -> str:
    """Return `name="value"`, escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'


def render(values: Mapping[str, float]) -> bytes:
    """Return samples as Prometheus' text, by metric.

    The type of a metric that nothing declares is taken from its name: `…_total` is a counter, `x_bucket`, `x_sum` and
    `x_count` that belong together are the histogram `x`, the rest are gauges.
    """
    bases = {name.partition("{")[0] for name in values}
    histograms = {b.removesuffix("_bucket") for b in bases if b.endswith("_bucket")}
    families: dict[str, list[str]] = {}
    for name, value in values.items():
        base = name.partition("{")[0]
        stem = re.sub(r"_(bucket|sum|count)$", "", base)
        family = stem if stem in histograms else base
        families.setdefault(family, []).append(f"{name} {_number(value)}")
    lines: list[str] = []
    for family in sorted(families):
        lines.append(f"# TYPE {family} {_kind(family, histograms)}")
        lines.extend(families[family])
    return ("\n".join(lines) + "\n").encode()


def _kind(family: str, histograms: set[str]) -> str:
    if family in REGISTER:
        return REGISTER[family][0]
    return "histogram" if family in histograms else "counter" if family.endswith("_total") else "gauge"


def _number(value: float) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
