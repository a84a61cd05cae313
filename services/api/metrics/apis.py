"""The metrics APIs of autoscalers and `kubectl top`: `metrics.k8s.io`, `custom.metrics.k8s.io`,
`external.metrics.k8s.io`, and the deprecated ComponentStatus. Their content is computed on request and never
stored.

Resource metrics are read with get and list. A custom metric is a get of `custommetrics.custom.metrics.k8s.io`,
whose name is the rest of its path: `pods/*/http_requests`, `services/web/http_requests`; the label selector
selects objects, the field selector carries the selector of the series (`metricLabelSelector`). An external
metric is a get of `externalmetrics.external.metrics.k8s.io` by the metric's name; the label selector selects
series.
"""

from services.api.meta import NAME, Column, Document, LabelSelector, ObjectReference, ObjectView, Resource, View
from services.api.quantity import amount, format_amount

METRICS, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
ALL_OBJECTS = "*"
"""Object name in a request for a custom metric of all objects that a label selector matches."""


class ContainerMetrics(View, frozen=True):
    """Usage of one container: quantities by resource."""

    name: str = ""
    usage: dict[str, str] = {}


class PodMetrics(ObjectView, frozen=True):
    """Usage of a pod's containers over a window that ended at `timestamp`."""

    timestamp: str = ""
    window: str = ""
    containers: tuple[ContainerMetrics, ...] = ()


class NodeMetrics(ObjectView, frozen=True):
    """Usage of a node, all its pods included."""

    timestamp: str = ""
    window: str = ""
    usage: dict[str, str] = {}


class MetricIdentifier(View, frozen=True):
    """Name of a metric, and the selector of its series."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricValue(View, frozen=True):
    """One value of a custom metric, with its object and time."""

    described_object: ObjectReference = ObjectReference()
    metric: MetricIdentifier = MetricIdentifier()
    timestamp: str = ""
    value: str = "0"


class MetricValueList(View, frozen=True):
    """The answer to a custom metric."""

    items: tuple[MetricValue, ...] = ()


class ExternalMetricValue(View, frozen=True):
    """One value of an external metric, with the labels of its series."""

    metric_name: str = ""
    metric_labels: dict[str, str] = {}
    timestamp: str = ""
    value: str = "0"


class ExternalMetricValueList(View, frozen=True):
    """The answer to an external metric."""

    items: tuple[ExternalMetricValue, ...] = ()


def _usage(resource: str) -> Column:
    def cell(document: Document, _now: float) -> str:
        parts = document.get("containers", [document])
        return format_amount(resource, sum(amount(resource, part["usage"][resource]) for part in parts))

    return Column(resource, cell, format="quantity")


_COLUMNS = (
    Column("Name", "metadata.name", format="name"),
    _usage("cpu"),
    _usage("memory"),
    Column("Window", "window", format="duration"),
)
POD_METRICS = Resource(PodMetrics, METRICS, plural="pods", version="v1beta1", columns=_COLUMNS)
NODE_METRICS = Resource(NodeMetrics, METRICS, plural="nodes", version="v1beta1", namespaced=False, columns=_COLUMNS)
CUSTOM_METRICS = Resource(MetricValueList, CUSTOM, plural="custommetrics", version="v1beta2")
EXTERNAL_METRICS = Resource(ExternalMetricValueList, EXTERNAL, plural="externalmetrics", version="v1beta1")


def _healthy(document: Document, _now: float) -> str:
    found = next((each["status"] for each in document.get("conditions") or () if each["type"] == "Healthy"), "")
    return {"True": "Healthy", "False": "Unhealthy"}.get(str(found), "Unknown")


def _of_condition(name: str) -> Column:
    def cell(document: Document, _now: float) -> str:
        return str(next((each.get(name, "") for each in document.get("conditions") or ()), ""))

    return Column(name.capitalize(), cell)


COMPONENT_STATUSES = Resource(
    kind="ComponentStatus",
    plural="componentstatuses",
    namespaced=False,
    short_names=("cs",),
    columns=(NAME, Column("Status", _healthy), _of_condition("message"), _of_condition("error")),
    deprecated="v1 ComponentStatus is deprecated in v1.19+",
)
COMPUTED: dict[str, Resource] = {
    each.name: each for each in (POD_METRICS, NODE_METRICS, CUSTOM_METRICS, EXTERNAL_METRICS, COMPONENT_STATUSES)
}
"""Kinds that are served but never stored, by wire name."""
