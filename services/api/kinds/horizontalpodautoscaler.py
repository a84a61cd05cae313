"""HorizontalPodAutoscaler: scales replicas by the usage of their pods or by other metrics (autoscaling/v2)."""

from typing import Any

from services.api.meta import AGE, NAME, NONE, Column, Condition, Document, LabelSelector, ObjectView, Resource, View
from services.api.quantity import milli

UNKNOWN, AUTO = "<unknown>", "<auto>"
COLUMN_METRICS_MAX = 2
"""Number of metrics shown in the column of targets."""


class CrossVersionObjectReference(View, frozen=True):
    """The scaled object."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class MetricTarget(View, frozen=True):
    """Target value of a metric. `type`: Utilization, Value or AverageValue."""

    type: str = ""
    value: str | None = None
    average_value: str | None = None
    average_utilization: int | None = None


class MetricIdentifier(View, frozen=True):
    """A metric by name."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricSource(View, frozen=True):
    """One of the five metric sources: a resource has a `name` (and a `container`), the others a `metric`; one
    describes an object.
    """

    name: str = ""
    container: str = ""
    metric: MetricIdentifier = MetricIdentifier()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()
    target: MetricTarget = MetricTarget()


class MetricSpec(View, frozen=True):
    """One metric of the autoscaler; the member that `type` names is set."""

    type: str = ""
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None


class HPAScalingPolicy(View, frozen=True):
    """Limit of change per period: a number of pods or a percentage in so many seconds. `type`: Pods or Percent."""

    type: str = ""
    value: int = 0
    period_seconds: int = 0


class HPAScalingRules(View, frozen=True):
    """Scaling rules of one direction. `tolerance`: a quantity (KEP-4951)."""

    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: tuple[HPAScalingPolicy, ...] = ()
    tolerance: str | None = None


class HorizontalPodAutoscalerBehavior(View, frozen=True):
    """Scaling rules of both directions (KEP-853)."""

    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class HorizontalPodAutoscalerSpec(View, frozen=True):
    """Bounds, metrics and behavior."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int = 1
    max_replicas: int = 0
    metrics: tuple[MetricSpec, ...] = ()
    behavior: HorizontalPodAutoscalerBehavior | None = None


class HorizontalPodAutoscalerStatus(View, frozen=True):
    """Status of an autoscaler: the metrics that the controller last saw, and its last decision."""

    last_scale_time: str | None = None
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[dict[str, Any], ...] | None = None
    conditions: tuple[Condition, ...] = ()


class HorizontalPodAutoscaler(ObjectView, frozen=True):
    """A HorizontalPodAutoscaler as components see it."""

    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


def decimal_quantity(thousandths: int) -> str:
    """Return a canonical decimal quantity: `120m`, `2`, `104857600`, `2M`."""
    if thousandths % 1000:
        return f"{thousandths}m"
    number, suffixes = thousandths // 1000, iter("kMGTPE")
    suffix = ""
    while number and number % 1000 == 0:
        number, suffix = number // 1000, next(suffixes)
    return f"{number}{suffix}"


_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _quantity(text: Any) -> str:
    return decimal_quantity(milli(str(text))) if text is not None else UNKNOWN


def _target(spec: Document, status: Document) -> str:
    """Return `cpu: 10%/50%` of one metric."""
    kind = spec.get("type", "")
    member = _SOURCES.get(kind, "")
    source, held = spec.get(member) or {}, (status.get(member) or {}).get("current") or {}
    target, label = source.get("target") or {}, ""
    if kind in ("Resource", "ContainerResource"):
        label = f"{source.get('name')}: "
        if target.get("averageValue") is None:
            percent, wanted = held.get("averageUtilization"), target.get("averageUtilization")
            current = UNKNOWN if percent is None else f"{percent}%"
            return f"{label}{current}/{AUTO if wanted is None else f'{wanted}%'}"
    if target.get("averageValue") is not None:
        average = " (avg)" if kind in ("Object", "External") else ""
        shown = target["averageValue"]
        return f"{label}{_quantity(held.get('averageValue'))}/{shown}{average}"
    return f"{label}{_quantity(held.get('value'))}/{target.get('value', AUTO)}"


def _targets(document: Document, now: float) -> str:
    specs = document.get("spec", {}).get("metrics") or []
    statuses = document.get("status", {}).get("currentMetrics") or []
    shown = [_target(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs)]
    text = ", ".join(shown[:COLUMN_METRICS_MAX]) or NONE
    more = len(shown) - COLUMN_METRICS_MAX
    return f"{text} + {more} more..." if more > 0 else text


def _reference(document: Document, now: float) -> str:
    target = document["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{target['name']}"


RESOURCE = Resource(
    HorizontalPodAutoscaler,
    "autoscaling",
    version="v2",
    short_names=("hpa",),
    categories=("all",),
    subresources=("status",),
    columns=(
        NAME,
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", "spec.minReplicas", default="<unset>", show=str),
        Column("MaxPods", "spec.maxReplicas"),
        Column("Replicas", "status.currentReplicas", default=0),
        AGE,
    ),
)
