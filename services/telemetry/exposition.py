"""What a process counted, as Prometheus reads it: its text, or OpenMetrics for one that accepts it.

Components count in integers of their own (`services.telemetry.metrics`). The client library writes them out, at the
server's edge and nowhere else: HELP and TYPE, escaping, the choice of a format, exemplars; and it is what knows the
process's own figures where the kernel shows them below `/proc`. It is imported when a process is first scraped.
A counter whose upstream name does not end with `_total` keeps that name in the text, untyped, as the library has no
other way to write it; OpenMetrics knows it by the name with `_total`, as client_golang does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from services.telemetry.metrics import SampleName

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

OPENMETRICS: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"


def exposition(samples: Mapping[str, float], accept: str = "", *, has_process: bool = True) -> tuple[str, bytes]:
    """Return content type and body of an answer to a request with that `Accept` header.

    `samples`: by `SampleName`, or by plain text of the same form, whose type is then taken from its name.
    `has_process`: with the figures of this process, its memory, CPU time and file descriptors.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # the library compares versions that are no numbers
        encode, content_type = choose_encoder("")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples, is_openmetrics=content_type.startswith(OPENMETRICS)))
    if has_process:
        ProcessCollector(registry=registry)
    return content_type, encode(registry)


class _Samples:
    """Samples as the library's collector."""

    def __init__(self, samples: Mapping[str, float], *, is_openmetrics: bool) -> None:
        self._samples, self._is_openmetrics = samples, is_openmetrics

    def describe(self) -> Iterable[Metric]:
        """Say nothing: what is there is known when it is read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield each family once, with all of its samples, in the order of names."""
        from prometheus_client.metrics_core import Metric
        from prometheus_client.samples import Exemplar
        from prometheus_client.utils import floatToGoString

        families: dict[str, Metric] = {}
        for name, value in self._samples.items():
            if not isinstance(name, SampleName):
                self._add_plain(families, name, value)
                continue
            metric = name.metric
            base, suffix, kind = metric.name, name.suffix, str(metric.kind)
            if kind == "counter":
                if base.endswith(_TOTAL) or self._is_openmetrics:
                    base, suffix = base.removesuffix(_TOTAL), _TOTAL
                else:
                    kind = "unknown"
            family = families.get(base)
            if family is None:
                family = families[base] = Metric(base, metric.help, kind)
            labels, exemplar = dict(name.labels), None
            if self._is_openmetrics and suffix == "_bucket":
                labels["le"] = floatToGoString(labels["le"])  # type: ignore[no-untyped-call]  # "1" in the text, "1.0" here, as client_golang has it
                if name.exemplar is not None:
                    exemplar = Exemplar({"trace_id": name.exemplar.trace_id}, name.exemplar.value)
            family.add_sample(f"{base}{suffix}", labels, value, exemplar=exemplar)
        for base in sorted(families):
            yield families[base]

    def _add_plain(self, families: dict[str, Metric], name: str, value: float) -> None:
        """Add a sample that no table declares; its name ends with `_total` if it is a counter's."""
        from prometheus_client.metrics_core import Metric
        from prometheus_client.parser import text_string_to_metric_families

        (parsed,) = text_string_to_metric_families(f"{name} {float(value)!r}\n")
        ((full, labels, *_),) = parsed.samples
        kind = "counter" if full.endswith(_TOTAL) else "gauge"
        base = full.removesuffix(_TOTAL)
        family = families.setdefault(base, Metric(base, "Not described.", kind))
        family.add_sample(full, labels, value)
