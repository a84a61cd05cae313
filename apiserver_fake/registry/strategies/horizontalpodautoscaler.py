"""HorizontalPodAutoscalers of autoscaling/v2: bounds, metrics with one source and one target each, and
scaling behavior.

The texts are upstream's (`pkg/apis/autoscaling/validation`), the defaults those of `pkg/apis/autoscaling/v2`.
"""

from apiserver_fake.registry.strategies.limitrange import check_name
from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    forbidden,
    invalid,
    label,
    not_supported,
    path_segment,
    required,
)
from services.api.kinds.limitrange import CONTAINER
from services.api.meta import Document
from services.api.quantity import milli

STABILIZATION_MAX_S, PERIOD_MAX_S = 3600, 1800
SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_IN_ORDER = ("object", "external", "pods", "resource", "containerResource")
"""Metric sources in the order of checking: if several are set, the first is checked and the others are forbidden."""
TARGETS = ("Utilization", "Value", "AverageValue")
CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
SCALE_UP: Document = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
SCALE_DOWN: Document = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _bounds(spec: Document, at: str, report: Report) -> Causes:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    # An autoscaler that is stored with 0 keeps it (KEP-2021).
    was_idle = report.update is not None and (report.update[0].get("spec") or {}).get("minReplicas") == 0
    bound = 0 if was_idle else 1
    if least is not None and least < bound:
        yield invalid(f"{at}minReplicas", least, f"must be greater than or equal to {bound}")
    if most < 1:
        yield invalid(f"{at}maxReplicas", most, "must be greater than 0")
    if least is not None and most < least:
        yield invalid(f"{at}maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _metric_for_none(spec: Document, at: str, report: Report) -> Causes:
    kinds = {metric.get("type") for metric in spec.get("metrics") or ()}
    if spec.get("minReplicas") == 0 and not kinds & {"Object", "External"}:
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden(f"{at}metrics", text)


def _one_source(metric: Document, at: str, report: Report) -> Causes:
    kind, present = metric.get("type") or "", [name for name in _IN_ORDER if metric.get(name) is not None]
    if not kind:
        yield required(f"{at}type", "must specify a metric source type")
    if kind not in SOURCES:
        yield not_supported(f"{at}type", kind, SOURCES)
    for name in present[:1]:
        yield from _source(name, metric[name], f"{at}{name}.", report)
    wanted = SOURCES.get(kind)
    if wanted is None:
        # As upstream, which asks twice.
        yield not_supported(f"{at}type", kind, SOURCES)
    elif wanted not in present:
        yield required(f"{at}{wanted}", "must populate information for the given metric source")
    if len(present) != 1:
        for name in sorted(present):
            if name != wanted:
                yield forbidden(f"{at}{name}", "must populate the given metric source only")


def _source(name: str, source: Document, at: str, report: Report) -> Causes:
    target = source.get("target") or {}
    here, has = f"{at}target.", {member: target.get(member) is not None for member in target}
    if name in ("resource", "containerResource"):
        if not source.get("name"):
            yield required(f"{at}name", "must specify a resource name")
        elif name == "containerResource":
            yield from check_name(source["name"], CONTAINER, f"{at}name")
        if name == "containerResource":
            if source.get("container"):
                yield from label(f"{at}container", source["container"])
            else:
                yield required(f"{at}container", "must specify a container")
        yield from _target(target, here)
        if not has.get("averageUtilization") and not has.get("averageValue"):
            text = "must set either a target raw value or a target utilization"
            yield required(f"{here}averageUtilization", text)
        if has.get("averageUtilization") and has.get("averageValue"):
            yield forbidden(f"{here}averageValue", "may not set both a target raw value and a target utilization")
        return
    if name == "object":
        REFERENCE.check(source.get("describedObject") or {}, f"{at}describedObject.", report)
    if metric := (source.get("metric") or {}).get("name"):
        yield from path_segment(f"{at}metric.name", metric)
    else:
        yield required(f"{at}metric.name", "must specify a metric name")
    yield from _target(target, here)
    if name == "pods" and not has.get("averageValue"):
        yield required(f"{here}averageValue", "must specify a positive target averageValue")
    if name == "object" and not has.get("value") and not has.get("averageValue"):
        yield required(f"{here}averageValue", "must set either a target value or averageValue")
    if name == "external":
        if not has.get("value") and not has.get("averageValue"):
            text = "must set either a target value for metric or a per-pod target"
            yield required(f"{here}averageValue", text)
        if has.get("value") and has.get("averageValue"):
            text = "may not set both a target value for metric and a per-pod target"
            yield forbidden(f"{here}value", text)


def _target(target: Document, at: str) -> Causes:
    kind, percent = target.get("type") or "", target.get("averageUtilization")
    if not kind:
        yield required(f"{at}type", "must specify a metric target type")
    if kind not in TARGETS:
        yield invalid(f"{at}type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if (text := target.get(name)) is not None:
            yield from _positive(f"{at}{name}", text)
    if percent is not None and percent < 1:
        yield invalid(f"{at}averageUtilization", percent, "must be greater than 0")


def _positive(path: str, text: str) -> list[Cause]:
    try:
        return [] if milli(text) > 0 else [invalid(path, text, "must be positive")]
    except ValueError as error:
        return [invalid(path, text, str(error))]


def _tolerance(text: str, path: str, report: Report) -> Causes:
    try:
        if milli(text) < 0:
            yield invalid(path, text, "must be greater or equal to zero")
    except ValueError as error:
        yield invalid(path, text, str(error))


def _window(seconds: int, path: str, report: Report) -> Causes:
    if seconds < 0:
        yield invalid(path, seconds, "must be greater than or equal to zero")
    elif seconds > STABILIZATION_MAX_S:
        yield invalid(path, seconds, f"must be less than or equal to {STABILIZATION_MAX_S}")


def _above_zero(most: int) -> Field:
    name = "periodSeconds" if most else "value"

    def check(value: int, path: str, report: Report) -> Causes:
        if value <= 0:
            yield invalid(path, value, "must be greater than zero")
        elif most and value > most:
            yield invalid(path, value, f"must be less than or equal to {most}")

    return Field(name, missing=0, rule=check)


POLICY = Struct(Field("type", missing="", enum=("Percent", "Pods")), _above_zero(0), _above_zero(PERIOD_MAX_S))


def _rules(defaults: Document) -> Struct:
    return Struct(
        Field("stabilizationWindowSeconds", default=defaults.get("stabilizationWindowSeconds"), rule=_window),
        Field("selectPolicy", default=defaults["selectPolicy"], enum=("Disabled", "Max", "Min")),
        Field(
            "policies",
            default=defaults["policies"],
            required="must specify at least one Policy",
            missing=[],
            items=POLICY,
        ),
        Field("tolerance", rule=_tolerance),
    )


BEHAVIOR = Struct(
    Field("scaleUp", default={}, struct=_rules(SCALE_UP)), Field("scaleDown", default={}, struct=_rules(SCALE_DOWN))
)
REFERENCE = Struct(Field("kind", required=True, form=path_segment), Field("name", required=True, form=path_segment))


def _group(target: Document, at: str, report: Report) -> Causes:
    """Check that a target names the group of its kind; one that does not change may be as it was.

    Source: upstream `pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go`.
    """
    version = target.get("apiVersion") or ""
    if report.update is not None:
        before = (report.update[0].get("spec") or {}).get("scaleTargetRef") or {}
        if (before.get("apiVersion") or "", before.get("kind")) == (version, target.get("kind")):
            return
    if version.count("/") > 1:
        yield invalid(f"{at}apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif not _has_group(version) and target.get("kind") != "ReplicationController":
        yield invalid(f"{at}apiVersion", version, "apiVersion must specify API group")


def _has_group(version: str) -> bool:
    return version.count("/") == 1 and not version.startswith("/")


TARGET = Struct(
    Field("kind", required=True, form=path_segment), Field("name", required=True, form=path_segment), _group
)


def _complete(spec: Document) -> None:
    if not spec.get("metrics"):
        spec["metrics"] = [CPU_AT_80]


SPEC = Struct(
    _bounds,
    Field("minReplicas", default=1),
    Field("scaleTargetRef", missing={}, struct=TARGET),
    Field("metrics", items=Struct(_one_source)),
    _metric_for_none,
    Field("behavior", struct=BEHAVIOR),
    completion=_complete,
)


STRATEGIES = {
    "horizontalpodautoscalers.autoscaling": declare_strategy(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        status=Struct(Field("currentReplicas", minimum=0), Field("desiredReplicas", minimum=0)),
    )
}
