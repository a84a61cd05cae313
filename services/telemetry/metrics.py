"""Metrics: each declared once, with name, type, help and labels, and read at a scrape.

A component counts in its own plain integers, since an increment of a client library's metric costs seventy
times as much (walls 2). A table beside its class declares the metrics, `Metrics(counter(name, help, read), …)`.
`read` takes the object and returns a number or a histogram, or several by label values. The text for Prometheus
is made from the results (`Samples`) by `services.telemetry.exposition`. Pure.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Counts:
    """Counters by label values; a counter appears with its first count."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {}

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Add `by` to a counter."""
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = {}
        counts[labels] = counts.get(labels, 0) + by

    def of(self, name: str) -> Mapping[tuple[str, ...], float]:
        """Return one counter, by label values."""
        return self._counts.get(name, {})


class Exemplar(NamedTuple):
    """One value of a bucket, and the trace in which it was measured: 32 hex characters."""

    value: float
    trace_id: str


class Histogram:
    """Histogram of values by upper bound; counts are summed up only when read. Each bucket keeps its newest traced
    value.
    """

    __slots__ = ("_counts", "_exemplars", "bounds", "count", "sum")

    def __init__(self, bounds: tuple[float, ...] = (), *, sum: float = 0.0, count: int = 0) -> None:  # noqa: A002
        """`sum`, `count`: sum and number of values that were counted elsewhere and exceed all bounds."""
        self.bounds = bounds
        self._counts = [*([0] * len(bounds)), count]
        self._exemplars: dict[int, Exemplar] = {}
        self.sum = sum
        self.count = count

    def observe(self, value: float, times: int = 1, trace_id: str = "") -> None:
        """Count one value, once or `times` times. `trace_id`: of a sampled trace, else ""."""
        bucket = bisect_left(self.bounds, value)
        self._counts[bucket] += times
        self.sum += value * times
        self.count += times
        if trace_id:
            self._exemplars[bucket] = Exemplar(value, trace_id)

    def add(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same bounds."""
        assert self.bounds == other.bounds, f"{self.bounds} and {other.bounds} are different buckets"
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        self._exemplars |= other._exemplars
        self.sum += other.sum
        self.count += other.count

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each upper bound as text, and the number of values up to it."""
        bounds = (*(f"{bound:g}" for bound in self.bounds), "+Inf")
        return zip(bounds, accumulate(self._counts), strict=True)

    @property
    def state(self) -> tuple[object, ...]:
        """The counted state, for comparison."""
        return (self.bounds, *self._counts, self.sum, *self._exemplars.items())

    def copy(self) -> "Histogram":
        """Return a copy of the current state."""
        other = Histogram(self.bounds, sum=self.sum)
        other._counts, other._exemplars, other.count = self._counts[:], self._exemplars.copy(), self.count
        return other

    def exemplar(self, bucket: int) -> Exemplar | None:
        """Return the newest traced value of a bucket, by the bucket's index."""
        return self._exemplars.get(bucket)


DEFAULT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Default upper bounds in seconds, where upstream has none: those of Prometheus' client libraries."""
Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Read = Callable[[T], Value | Mapping[Any, Value]]
"""Function that reads a metric from an object. A mapping's keys are label values: a text, or a tuple of texts
in the order of the labels.
"""


Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, tuple[str, ...], Labels, tuple[str, ...]]
"""Key of a series: the metric's name, the names of its own labels, the common labels of its object's metrics,
and the values of its own labels.
"""


class Sample(NamedTuple):
    """One line: suffix of the metric's name, labels, value, and for a bucket its exemplar."""

    suffix: str
    labels: Labels
    value: float
    exemplar: Exemplar | None = None


class Series(NamedTuple):
    """One value of a metric as read: a number, or a distribution, which takes many lines.

    `metric`: None for a number that no table declares; `name` is then its full name.
    """

    metric: "Metric[Any] | None"
    name: str
    labels: tuple[tuple[str, ...], Labels, tuple[str, ...]]
    value: Value

    @property
    def pairs(self) -> Labels:
        """All labels with their values."""
        own, common, values = self.labels
        return (*common, *zip(own, values, strict=True))

    @property
    def state(self) -> float | tuple[object, ...]:
        """State that determines its lines: equal states have equal lines."""
        return self.value.state if isinstance(self.value, Histogram) else self.value

    def samples(self) -> Iterator[Sample]:
        """Yield its lines."""
        labels, value = self.pairs, self.value
        if not isinstance(value, Histogram):
            yield Sample("", labels, value)
            return
        for place, (le, total) in enumerate(value.buckets()):
            yield Sample("_bucket", (*labels, ("le", le)), total, value.exemplar(place))
        yield Sample("_sum", labels, value.sum)
        yield Sample("_count", labels, value.count)


class Samples(Mapping[str, float]):
    """Read values of one or several objects, by full name as Prometheus writes it, labels included.

    Full names are composed only on request. A scrape uses `series`, whose lines are composed a few at a time
    (`services.telemetry.exposition`).
    """

    __slots__ = ("_by_name", "series")

    def __init__(self, series: Iterable[Series] = ()) -> None:
        self.series: dict[SeriesKey, Series] = {(each.name, *each.labels): each for each in series}
        self._by_name: dict[str, float] | None = None

    @classmethod
    def plain(cls, values: Mapping[str, float]) -> "Samples":
        """Return samples of undeclared numbers, by full name."""
        return cls(Series(None, name, ((), (), ()), value) for name, value in values.items())

    def __or__(self, other: Mapping[str, float]) -> "Samples":
        """Return both; for a series in both, `other` wins."""
        both = Samples()
        both.series = self.series | (other if isinstance(other, Samples) else Samples.plain(other)).series
        return both

    @property
    def _values_by_name(self) -> dict[str, float]:
        if self._by_name is None:
            self._by_name = {
                sample_name(series.name, sample.suffix, sample.labels): sample.value
                for series in self.series.values()
                for sample in series.samples()
            }
        return self._by_name

    def __getitem__(self, name: str) -> float:
        return self._values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values_by_name)

    def __len__(self) -> int:
        return len(self._values_by_name)

    def __repr__(self) -> str:
        return f"Samples({self._values_by_name})"


@dataclass(frozen=True)
class Metric(Generic[T]):
    """Declaration of one metric of a class. `labels`: the labels that `read` distinguishes."""

    name: str
    kind: Kind
    help: str
    read: Read[T]
    labels: tuple[str, ...]

    def series(self, source: T, common: Labels) -> Iterator[Series]:
        """Yield the series of one object; `common`: labels of all its metrics."""
        reading = self.read(source)
        if not isinstance(reading, Mapping):
            yield Series(self, self.name, ((), common, ()), _as_read(reading))
            return
        for key, value in reading.items():
            values = (key,) if isinstance(key, str) else key
            yield Series(self, self.name, (self.labels, common, values), _as_read(value))


def _as_read(value: Value) -> Value:
    return value.copy() if isinstance(value, Histogram) else value


def counter(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare a counter, which only grows."""
    return Metric(name, "counter", help, read, labels)


def gauge(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare a gauge, which goes up and down."""
    return Metric(name, "gauge", help, read, labels)


def histogram(name: str, help: str, read: Read[T], *labels: str) -> Metric[T]:  # noqa: A002
    """Declare a histogram."""
    return Metric(name, "histogram", help, read, labels)


REGISTER: Final[dict[str, tuple[Kind, str]]] = {}
"""Type and help of every metric declared by the modules imported so far, by name."""
TABLES: Final[list[tuple[str, "Metrics[Any]"]]] = []
"""Metric tables declared by the modules imported so far, each with its module's name."""


class Metrics(Generic[T]):
    """The metrics of one class. `labels`: common labels of all of them, with one value per object.

    Classes may share a metric, each with label values of its own. Raises: ValueError for a name that is declared
    already with another type or help.
    """

    def __init__(self, *metrics: Metric[T], labels: tuple[str, ...] = ()) -> None:
        self.metrics, self.labels = metrics, labels
        for metric in metrics:
            declared = REGISTER.setdefault(metric.name, (metric.kind, metric.help))
            if declared != (metric.kind, metric.help):
                raise ValueError(f"metric {metric.name} is declared twice: {' '.join(declared)}")
        # As namedtuple does: who declares is the module that called.
        TABLES.append((str(sys._getframe(1).f_globals.get("__name__", "")), self))

    def of(self, source: T, *values: str) -> Samples:
        """Return the samples of one object."""
        common = tuple(zip(self.labels, values, strict=True))
        return Samples(series for metric in self.metrics for series in metric.series(source, common))


def sample_name(name: str, suffix: str, labels: Labels) -> str:
    """Return `name{label="value"}`."""
    text = ",".join(label(*each) for each in labels)
    return f"{name}{suffix}{{{text}}}" if text else f"{name}{suffix}"


def label(name: str, value: str) -> str:
    """Return `name="value"`, escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{value}"'
