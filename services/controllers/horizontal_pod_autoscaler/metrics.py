"""Metrics that an autoscaler reads, and the answers: samples by pod, values, or errors. Pure.

Source: upstream `pkg/controller/podautoscaler/metrics/client.go`.
"""

from typing import NamedTuple, TypeVar

from services.api.kinds.horizontalpodautoscaler import HorizontalPodAutoscaler, MetricSource, MetricSpec
from services.api.meta import Key, View
from services.api.metrics.apis import (
    ALL_OBJECTS,
    CUSTOM_METRICS,
    EXTERNAL_METRICS,
    POD_METRICS,
    ExternalMetricValueList,
    MetricValueList,
    PodMetrics,
)
from services.api.quantity import milli
from services.api.resources import resource_of_kind
from services.api.selectors import selector_text
from services.api.times import seconds_in, seconds_of
from services.reconcile.actions import Query
from services.reconcile.controller import Moment

CUSTOM_WINDOW_S = 60.0
"""Default window of a custom metric in seconds, for answers that give none."""
V = TypeVar("V", bound=View)


class MetricsError(Exception):
    """Error: the number of replicas cannot be computed."""


class Sample(NamedTuple):
    """Usage of a pod or a container, in thousandths, in the window that ended at that time (epoch seconds)."""

    value: int
    at_s: float
    window_s: float = CUSTOM_WINDOW_S


def query_of(scaler: HorizontalPodAutoscaler, metric: MetricSpec, pods: str) -> Query | None:
    """Return the read that a metric needs; None when its object's kind is not served. `pods`: the target's selector
    as text.
    """
    namespace = scaler.metadata.namespace
    source = source_of(metric)
    series = selector_text(source.metric.selector)
    match metric.type:
        case "Resource" | "ContainerResource":
            return Query(PodMetrics, Key(namespace, ""), POD_METRICS.name, is_metric=True, label_selector=pods)
        case "External":
            key = Key(namespace, source.metric.name)
            return Query(ExternalMetricValueList, key, EXTERNAL_METRICS.name, is_metric=True, label_selector=series)
        case "Pods":
            path = f"pods/{ALL_OBJECTS}/{source.metric.name}"
        case _:
            described = source.described_object
            resource = resource_of_kind(described.api_version, described.kind)
            if resource is None:
                return None
            # Upstream: a reference cannot lead out of its namespace, so a Namespace is always the autoscaler's own.
            is_own = resource.name == "namespaces"
            path = (
                f"metrics/{source.metric.name}" if is_own else f"{resource.name}/{described.name}/{source.metric.name}"
            )
            pods = ""
    key = Key(namespace, path)
    return Query(MetricValueList, key, CUSTOM_METRICS.name, is_metric=True, label_selector=pods, field_selector=series)


def source_of(metric: MetricSpec) -> MetricSource:
    """Return the member that the metric's type names."""
    sources = {
        "Resource": metric.resource,
        "ContainerResource": metric.container_resource,
        "Pods": metric.pods,
        "Object": metric.object,
        "External": metric.external,
    }
    source = sources[metric.type]
    assert source is not None  # validated
    return source


def resource_samples(query: Query, moment: Moment, source: MetricSource) -> dict[str, Sample]:
    """Return the usage of a resource by pod, for whole pods or for one container of each. Raises: MetricsError."""
    text = f"unable to get metrics for resource {source.name}: "
    if query in moment.refused:
        raise MetricsError(f"{text}unable to fetch metrics from resource metrics API: {moment.refused[query]}")
    listed = moment.listed[query]
    if not listed:
        raise MetricsError(f"{text}no metrics returned from resource metrics API")
    samples: dict[str, Sample] = {}
    for pod in listed:
        assert isinstance(pod, PodMetrics)
        containers = [each for each in pod.containers if source.container in ("", each.name)]
        if source.container and not containers:
            where = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
            missing = f"container {source.container} not present in metrics for {where}"
            raise MetricsError(f"{text}failed to get container metrics: {missing}")
        if containers and all(source.name in each.usage for each in containers):
            value = sum(milli(each.usage[source.name]) for each in containers)
            samples[pod.metadata.name] = Sample(value, seconds_of(pod.timestamp), seconds_in(pod.window))
    return samples


def custom_samples(query: Query, moment: Moment, metric: str) -> dict[str, Sample]:
    """Return the value of a metric by pod. Raises: MetricsError."""
    try:
        values = _answer(query, moment, MetricValueList, "custom").items
    except MetricsError as error:
        raise MetricsError(f"unable to get metric {metric}: {error}") from None
    return {each.described_object.name: Sample(milli(each.value), seconds_of(each.timestamp)) for each in values}


def object_value(query: Query | None, moment: Moment, source: MetricSource, namespace: str) -> int:
    """Return the value of a metric of one object, in thousandths. Raises: MetricsError."""
    described = source.described_object
    try:
        if query is None:
            group = described.api_version.rpartition("/")[0]
            unknown = f'no matches for kind "{described.kind}" in group "{group}"'
            text = f"unable to fetch metrics from custom metrics API: unable to map kind {described.kind} to resource"
            raise MetricsError(f"{text}: {unknown}")
        return milli(_answer(query, moment, MetricValueList, "custom").items[0].value)
    except MetricsError as error:
        where = f"{described.kind} {namespace}/{described.name}"
        raise MetricsError(f"unable to get metric {source.metric.name}: {error} on {where}") from None


def external_value(query: Query, moment: Moment, where: str) -> int:
    """Return the sum of an external metric's series, in thousandths; `where` names it. Raises: MetricsError."""
    try:
        values = _answer(query, moment, ExternalMetricValueList, "external").items
    except MetricsError as error:
        raise MetricsError(f"unable to get external metric {where}: {error}") from None
    return sum(milli(each.value) for each in values)


def _answer(query: Query, moment: Moment, view: type[V], api: str) -> V:
    if query in moment.refused:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {moment.refused[query]}")
    metric_list = moment.live[query]
    assert isinstance(metric_list, view)
    if not metric_list.items:  # type: ignore[attr-defined]
        raise MetricsError(f"no metrics returned from {api} metrics API")
    return metric_list
