"""autoscaling/v1 HorizontalPodAutoscalers, which are stored as autoscaling/v2.

Values for which the older version has no field are kept in annotations, in the form of its own Go types, and
read back from them. Source: upstream `pkg/apis/autoscaling/v1/conversion.go`,
`pkg/apis/autoscaling/annotations.go`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from apiserver_fake.registry.catalogue import OtherVersion
from apiserver_fake.registry.conversion import Conversion
from services.api.errors import UNREADABLE, BadRequest
from services.api.kinds.horizontalpodautoscaler import RESOURCE as AUTOSCALERS
from services.api.meta import Document

AUTOSCALERS_V1 = replace(
    AUTOSCALERS,
    version="v1",
    columns=tuple(
        replace(each, source=lambda document, now: _targets(document, now)) if each.name == "Targets" else each
        for each in AUTOSCALERS.columns
    ),
)
_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS, CURRENT, CONDITIONS, BEHAVIOR = (
    _PREFIX + name for name in ("metrics", "current-metrics", "conditions", "behavior")
)
_MEMBERS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _targets(document: Document, now_s: float) -> str:
    """Return the cell of the targets, as the stored form shows them."""
    (cell,) = (each.source for each in AUTOSCALERS.columns if each.name == "Targets")
    assert not isinstance(cell, str)
    return str(cell(stored_form(document), now_s))


# -- to the older version


def v1_form(document: Document) -> Document:
    """Return a stored object in the older version."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    annotations = {
        name: text
        for name, text in (document["metadata"].get("annotations") or {}).items()
        if name not in (METRICS, CURRENT, CONDITIONS, BEHAVIOR)
    }
    v1_spec = {name: spec[name] for name in ("minReplicas", "maxReplicas", "scaleTargetRef") if name in spec}
    others = [each for each in spec.get("metrics") or () if _cpu(each, "target") is None]
    for metric in spec.get("metrics") or ():
        if (percent := _cpu(metric, "target")) is not None:
            v1_spec.setdefault("targetCPUUtilizationPercentage", percent)
    names = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    reported: Document = {"currentReplicas": 0, "desiredReplicas": 0}
    reported |= {name: status[name] for name in names if name in status}
    for metric in status.get("currentMetrics") or ():
        if (percent := _cpu(metric, "current")) is not None:
            reported["currentCPUUtilizationPercentage"] = percent
    if others:
        annotations[METRICS] = _json([_metric_v1(each) for each in others])
    if status.get("currentMetrics"):
        annotations[CURRENT] = _json([_metric_v1(each) for each in status["currentMetrics"]])
    if status.get("conditions"):
        annotations[CONDITIONS] = _json(status["conditions"])
    if spec.get("behavior"):
        annotations[BEHAVIOR] = _json(_recase(spec["behavior"], str.upper))
    metadata = {name: value for name, value in document["metadata"].items() if name != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    head = {name: document[name] for name in ("kind",) if name in document}
    if "apiVersion" in document:
        head["apiVersion"] = AUTOSCALERS_V1.api_version
    return {**head, "metadata": metadata, "spec": v1_spec, "status": reported}


def _cpu(metric: Document, member: str) -> int | None:
    """Return the percentage of a metric that the older version has a field for."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    found: int | None = (resource.get(member) or {}).get("averageUtilization")
    return found


def _metric_v1(metric: Document) -> Document:
    """Return a metric, or its status, as autoscaling/v1 writes it in an annotation."""
    kind = metric.get("type", "")
    member = _MEMBERS.get(kind, "")
    source = metric.get(member) or {}
    word, values = ("target", source["target"]) if "target" in source else ("current", source.get("current") or {})
    v1_source: Document = {name: source[name] for name in ("name", "container") if name in source}
    if "metric" in source:
        v1_source["metricName"] = source["metric"].get("name", "")
        if selector := source["metric"].get("selector"):
            v1_source["metricSelector" if kind == "External" else "selector"] = selector
    if kind == "Object":
        v1_source["target"] = source.get("describedObject") or {}
    for name in ("averageUtilization", "averageValue", "value"):
        if (value := values.get(name)) is not None:
            whole = kind == "Object" and name == "averageValue"
            v1_source[name if whole else f"{word}{name[0].upper()}{name[1:]}"] = value
    return {"type": kind, member: v1_source} if member else {"type": kind}


# -- from the older version


def stored_form(document: Document) -> Document:
    """Return an autoscaling/v1 object in its stored form.

    Raises: BadRequest for another version or an annotation that cannot be read.
    """
    version = document.get("apiVersion", AUTOSCALERS_V1.api_version)
    if version != AUTOSCALERS_V1.api_version:
        text = f"the API version in the data ({version}) does not match the expected API version"
        raise BadRequest(f"{text} ({AUTOSCALERS_V1.api_version})")
    if not all(isinstance(document.get(name) or {}, dict) for name in ("metadata", "spec", "status")):
        raise BadRequest("HorizontalPodAutoscaler in version v1: metadata, spec and status are objects")
    metadata, spec = dict(document.get("metadata") or {}), dict(document.get("spec") or {})
    status, annotations = dict(document.get("status") or {}), dict(metadata.get("annotations") or {})
    taken = {name: annotations.pop(name, "") for name in (METRICS, CURRENT, CONDITIONS, BEHAVIOR)}
    metrics: list[Document] = []
    if (percent := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    metrics += [_metric_v2(each, "target") for each in _read(METRICS, taken[METRICS], list)]
    if metrics:
        spec["metrics"] = metrics
    if behavior := _read(BEHAVIOR, taken[BEHAVIOR], dict):
        spec["behavior"] = _recase(behavior, str.lower)
    if (percent := status.pop("currentCPUUtilizationPercentage", None)) is not None:
        current = {"name": "cpu", "current": {"averageUtilization": percent}}
        status["currentMetrics"] = [{"type": "Resource", "resource": current}]
    if current := _read(CURRENT, taken[CURRENT], list):
        status["currentMetrics"] = [_metric_v2(each, "current") for each in current]
    if conditions := _read(CONDITIONS, taken[CONDITIONS], list):
        status["conditions"] = conditions
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    v2_document: Document = {**document, "apiVersion": AUTOSCALERS.api_version, "metadata": metadata, "spec": spec}
    return {**v2_document, "status": status} if status else v2_document


def _metric_v2(metric: Document, word: str) -> Document:
    kind = metric.get("type", "")
    member = _MEMBERS.get(kind, "")
    source = metric.get(member)
    source = source if isinstance(source, dict) else {}
    v2_source: Document = {name: source[name] for name in ("name", "container") if name in source}
    if "metricName" in source:
        v2_source["metric"] = {"name": source["metricName"]}
        if selector := source.get("metricSelector") or source.get("selector"):
            v2_source["metric"]["selector"] = selector
    if kind == "Object":
        v2_source["describedObject"] = source.get("target") or {}
    values: Document = {}
    for name, goal in (("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value")):
        value = source.get(f"{word}{name[0].upper()}{name[1:]}", source.get(name))
        # An object's value is written as zero beside its average.
        if value is not None and not (kind == "Object" and name == "value" and "averageValue" in values):
            values[name] = value
            if word == "target":
                values["type"] = goal
    return {"type": kind, member: {**v2_source, word: values}} if member else {"type": kind}


def _recase(value: Any, first: Callable[[str], str]) -> Any:
    """Return the value with the first letter of every member's name changed: Go's names, or JSON's."""
    if isinstance(value, dict):
        return {first(name[:1]) + name[1:]: _recase(each, first) for name, each in value.items() if each is not None}
    return [_recase(each, first) for each in value] if isinstance(value, list) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _read(name: str, text: str, form: type[Any]) -> Any:
    """Return an annotation's value, empty where it cannot be read: as upstream, those are ignored."""
    try:
        annotation = msgspec.json.decode(text) if text else form()
    except UNREADABLE:
        return form()
    parts = annotation if isinstance(annotation, list) else [annotation]
    return annotation if isinstance(annotation, form) and all(isinstance(each, dict) for each in parts) else form()


TO_STORED = Conversion(lambda documents: [stored_form(each) for each in documents])
"""Conversion from autoscaling/v1 to the stored form."""
FROM_STORED = Conversion(lambda documents: [v1_form(each) for each in documents])
"""Conversion from the stored form to autoscaling/v1."""

OTHER_VERSION: Final = OtherVersion(AUTOSCALERS_V1, TO_STORED, FROM_STORED)
