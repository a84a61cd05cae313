"""Metrics: each declared once, with name, type, help and labels, and read when it is scraped.

A component counts in plain integers of its own, since an increment of a client library's metric costs seventy times as
much (walls 2). Beside its class stands a table that says what they are called, `Metrics(counter(name, help, read), …)`,
where `read` takes the object and returns a number or a histogram, or those by the values of labels. The text that
Prometheus reads is made of the samples by `services.telemetry.exposition`. Pure.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

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


class Exemplar(NamedTuple):
    """One value of a bucket, and the trace in which it was measured: 32 hex characters."""

    value: float
    trace_id: str


class Histogram:
    """Counts by upper bound; they are added up only when they are read. Each bucket keeps its newest traced value."""

    __slots__ = ("_counts", "_exemplars", "bounds", "count", "sum")

    def __init__(self, bounds: tuple[float, ...] = (), *, sum: float = 0.0, count: int = 0) -> None:  # noqa: A002
        """`sum`, `count`: of values that were counted elsewhere, none of them below any bound."""
        self.bounds = bounds
        self._counts = [*([0] * len(bounds)), count]
        self._exemplars: dict[int, Exemplar] = {}
        self.sum = sum
        self.count = count

    def observe(self, value: float, times: int = 1, trace_id: str = "") -> None:
        """Count one value, once or many times. `trace_id`: of a sampled trace, else ""."""
        bucket = bisect_left(self.bounds, value)
        self._counts[bucket] += times
        self.sum += value * times
        self.count += times
        if trace_id:
            self._exemplars[bucket] = Exemplar(value, trace_id)

    def add(self, other: "Histogram") -> None:
        """Count what another with the same bounds counted."""
        assert self.bounds == other.bounds, f"{self.bounds} and {other.bounds} are different buckets"
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        self._exemplars |= other._exemplars
        self.sum += other.sum
        self.count += other.count

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound as it is written, and how many values are not above it."""
        bounds = (*(f"{bound:g}" for bound in self.bounds), "+Inf")
        return zip(bounds, accumulate(self._counts), strict=True)

    def exemplar(self, bucket: int) -> Exemplar | None:
        """Return the newest traced value of a bucket, by its place among them."""
        return self._exemplars.get(bucket)


DEFAULT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds where upstream names none of its own: those of Prometheus' client libraries."""
Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Read = Callable[[T], Value | Mapping[Any, Value]]
"""By label values the key is a text, or a tuple of texts in the order of the labels."""


Labels = tuple[tuple[str, str], ...]


class SampleName(str):
    """`name{label="value"}`, with what it is made of: the metric, the suffix of its name, and labels with values."""

    __slots__ = ("exemplar", "labels", "metric", "suffix")
    metric: "Metric[Any]"
    suffix: str
    labels: Labels
    exemplar: Exemplar | None

    def __new__(
        cls, metric: "Metric[Any]", suffix: str, labels: Labels, exemplar: Exemplar | None = None
    ) -> "SampleName":
        """Compose the text; `exemplar`: of a bucket."""
        text = ",".join(label(name, value) for name, value in labels)
        made = super().__new__(cls, f"{metric.name}{suffix}{{{text}}}" if text else f"{metric.name}{suffix}")
        made.metric, made.suffix, made.labels, made.exemplar = metric, suffix, labels, exemplar
        return made


@dataclass(frozen=True)
class Metric(Generic[T]):
    """What one number of an object of a class is called. `labels`: those that `read` distinguishes."""

    name: str
    kind: Kind
    help: str
    read: Read[T]
    labels: tuple[str, ...]

    def samples(self, source: T, common: Labels) -> Iterator[tuple[SampleName, float]]:
        """Yield the samples of one object; `common`: labels that all of its metrics have."""
        found = self.read(source)
        if not isinstance(found, Mapping):
            yield from self._sample(common, found)
            return
        for key, value in found.items():
            values = (key,) if isinstance(key, str) else key
            yield from self._sample((*common, *zip(self.labels, values, strict=True)), value)

    def _sample(self, labels: Labels, value: Value) -> Iterator[tuple[SampleName, float]]:
        if not isinstance(value, Histogram):
            yield SampleName(self, "", labels), value
            return
        for place, (le, total) in enumerate(value.buckets()):
            yield SampleName(self, "_bucket", (*labels, ("le", le)), value.exemplar(place)), total
        yield SampleName(self, "_sum", labels), value.sum
        yield SampleName(self, "_count", labels), value.count


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
TABLES: Final[list[tuple[str, "Metrics[Any]"]]] = []
"""The tables that the modules imported so far declare, each with the name of its module."""


class Metrics(Generic[T]):
    """The metrics of one class. `labels`: those that all of them have, with one value an object.

    Classes may share a metric, each with label values of its own.
    Raises: ValueError for a name that is declared already with another type or help.
    """

    def __init__(self, *metrics: Metric[T], labels: tuple[str, ...] = ()) -> None:
        self.metrics, self.labels = metrics, labels
        for metric in metrics:
            declared = REGISTER.setdefault(metric.name, (metric.kind, metric.help))
            if declared != (metric.kind, metric.help):
                raise ValueError(f"metric {metric.name} is declared twice: {' '.join(declared)}")
        # As namedtuple does: who declares is the module that called.
        TABLES.append((str(sys._getframe(1).f_globals.get("__name__", "")), self))

    def of(self, source: T, *values: str) -> dict[str, float]:
        """Return the samples of one object by name (`SampleName`), labels included as Prometheus writes them."""
        common = tuple(zip(self.labels, values, strict=True))
        return {name: value for metric in self.metrics for name, value in metric.samples(source, common)}


def label(name: str, value: str) -> str:
    """Return `name="value"`, escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'


def render(values: Mapping[str, float]) -> bytes:
    """Return samples as Prometheus' text, by metric.

    The type of a metric that nothing declares is taken from its name: `…_total` is a counter, the rest are gauges.
    """
    families: dict[str, list[str]] = {}
    for name, value in values.items():
        family = name.metric.name if isinstance(name, SampleName) else name.partition("{")[0]
        families.setdefault(family, []).append(f"{name} {_number(value)}")
    lines: list[str] = []
    for family in sorted(families):
        kind, text = REGISTER.get(family, ("counter" if family.endswith("_total") else "gauge", "Not described."))
        lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}", *families[family]]
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
