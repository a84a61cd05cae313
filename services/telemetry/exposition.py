"""Metrics of a process in Prometheus' text format, or in OpenMetrics for clients that accept it.

Components count in their own integers (`services.telemetry.metrics`). Only here, at the server's edge, the
client library formats them: HELP and TYPE, escaping, the choice of a format, exemplars. It also reads the
process's own figures where the kernel shows them below `/proc`. It is imported at the first scrape. A counter
whose upstream name does not end with `_total` keeps that name in the text, untyped, as the library has no other
way to write it; in OpenMetrics it has the name with `_total`, as in client_golang.

A text is composed in pieces, so that a server can do other work in between. The bytes of a series that has not
changed since the last text are reused (decision 0086). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from services.telemetry.metrics import Samples, Series, SeriesKey

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

OPENMETRICS: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"
_END: Final = b"# EOF\n"
PIECE_LINES: Final = 100
"""Approximate number of lines composed per piece, which takes about a millisecond; a series is never split."""
PIECE_SERIES: Final = 1_000
"""Maximum number of series with reused bytes in one piece."""


def exposition(samples: Mapping[str, float], accept: str = "", *, has_process: bool = True) -> tuple[str, bytes]:
    """Return content type and body of an answer, composed at once; the arguments are those of `Exposition.pieces`."""
    content_type, pieces = Exposition().pieces(samples, accept, has_process=has_process)
    return content_type, b"".join(pieces)


class _EncodedTable(NamedTuple):
    state: object
    text: bytes


class Exposition:
    """Composer of one server's answers. `composed`, `reused`: numbers of series that were formatted, and reused."""

    def __init__(self) -> None:
        self._kept: dict[bool, dict[SeriesKey, _EncodedTable]] = {}
        self.composed = self.reused = 0

    def pieces(
        self, samples: Mapping[str, float], accept: str = "", *, has_process: bool = True
    ) -> tuple[str, Iterator[bytes]]:
        """Return content type and body of an answer to a request with that `Accept` header, in pieces.

        `samples`: `Samples`, or numbers by whole name, whose type is derived from the name. `has_process`: include the
        figures of this process: memory, CPU time and file descriptors.
        """
        from prometheus_client.exposition import choose_encoder

        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the library compares versions that are no numbers
            encode, content_type = choose_encoder("")
        read = samples if isinstance(samples, Samples) else Samples.plain(samples)
        writer = _Writer(encode, is_openmetrics=content_type.startswith(OPENMETRICS))
        return content_type, self._pieces(read, writer, has_process=has_process)

    def _pieces(self, samples: Samples, writer: _Writer, *, has_process: bool) -> Iterator[bytes]:
        before = self._kept.get(writer.is_openmetrics, {})
        kept = self._kept[writer.is_openmetrics] = {}
        families: dict[str, list[tuple[SeriesKey, Series]]] = {}
        for key, series in samples.series.items():
            families.setdefault(writer.base(series), []).append((key, series))
        parts: list[bytes] = []
        lines = looked_at = 0
        for base in sorted(families):
            family = families[base]
            parts.append(writer.head(base, family[0][1]))
            for key, series in family:
                if lines >= PIECE_LINES or looked_at >= PIECE_SERIES:
                    yield b"".join(parts)
                    parts, lines, looked_at = [], 0, 0
                looked_at += 1
                state, encoded_table = series.state, before.get(key)
                if encoded_table is None or encoded_table.state != state:
                    encoded_table = _EncodedTable(state, writer.lines(base, series))
                    lines += encoded_table.text.count(b"\n")
                    self.composed += 1
                else:
                    self.reused += 1
                kept[key] = encoded_table
                parts.append(encoded_table.text)
        if has_process:
            parts.append(writer.process())
        if writer.is_openmetrics:
            parts.append(_END)
        yield b"".join(parts)


class _Registry:
    """Registry of the client library with a few families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return self._families


class _Writer:
    """Formatter of single series in one format, through the client library."""

    def __init__(self, encode: Callable[[Any], bytes], *, is_openmetrics: bool) -> None:
        self._encode, self.is_openmetrics = encode, is_openmetrics

    def _encode_families(self, *families: Metric) -> bytes:
        return self._encode(_Registry(*families)).removesuffix(_END)

    def base(self, series: Series) -> str:
        """Return the name of a series' family as the library has it."""
        if series.metric is None:
            return series.name.partition("{")[0].removesuffix(_TOTAL)
        return series.name.removesuffix(_TOTAL) if self._is_total(series) else series.name

    def _is_total(self, series: Series) -> bool:
        """Whether the library writes it as a counter."""
        metric = series.metric
        return metric is not None and metric.kind == "counter" and (metric.name.endswith(_TOTAL) or self.is_openmetrics)

    def _family(self, base: str, series: Series) -> Metric:
        from prometheus_client.metrics_core import Metric

        if (metric := series.metric) is None:
            kind = "counter" if series.name.partition("{")[0].endswith(_TOTAL) else "gauge"
            return Metric(base, "Not described.", kind)
        is_untyped = metric.kind == "counter" and not self._is_total(series)
        return Metric(base, metric.help, "unknown" if is_untyped else metric.kind)

    def head(self, base: str, series: Series) -> bytes:
        """Return HELP and TYPE."""
        return self._encode_families(self._family(base, series))

    def lines(self, base: str, series: Series) -> bytes:
        """Return the lines of one series."""
        from prometheus_client.samples import Exemplar
        from prometheus_client.utils import floatToGoString

        family = self._family(base, series)
        if series.metric is None:
            _add_plain(family, series)
        else:
            total = _TOTAL if self._is_total(series) else ""
            for sample in series.samples():
                labels, exemplar = dict(sample.labels), None
                if self.is_openmetrics and sample.suffix == "_bucket":
                    labels["le"] = floatToGoString(labels["le"])  # type: ignore[no-untyped-call]  # "1" in the text, "1.0" here, as client_golang has it
                    if sample.exemplar is not None:
                        exemplar = Exemplar({"trace_id": sample.exemplar.trace_id}, sample.exemplar.value)
                family.add_sample(f"{base}{sample.suffix}{total}", labels, sample.value, exemplar=exemplar)
        return self._encode_families(family).split(b"\n", 2)[2]

    def process(self) -> bytes:
        """Return the figures of this process."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        return self._encode_families(*registry.collect())


def _add_plain(family: Metric, series: Series) -> None:
    """Add a number that no table declares."""
    from prometheus_client.parser import text_string_to_metric_families

    assert isinstance(series.value, int | float), "only a number is not declared"
    (parsed,) = text_string_to_metric_families(f"{series.name} {float(series.value)!r}\n")
    ((full, labels, *_),) = parsed.samples
    family.add_sample(full, labels, series.value)
