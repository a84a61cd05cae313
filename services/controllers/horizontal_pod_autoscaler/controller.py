"""Change the number of replicas of a workload every 15 s to what the usage of its pods asks for.

Of several metrics the one that asks for most decides; if some cannot be had, nothing is scaled down. There are resource
metrics only: no adapter serves custom or external ones, so those fail as they do in a cluster without one.
Source: controllers 18; upstream `pkg/controller/podautoscaler/horizontal.go`; KEP-853, KEP-4951.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.api.kinds.deployment import Deployment
from services.api.kinds.horizontalpodautoscaler import (
    HorizontalPodAutoscaler,
    HPAScalingRules,
    MetricSource,
    MetricSpec,
    decimal_quantity,
)
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Document, Key, View
from services.api.quantity import amount, milli
from services.api.selectors import Selector
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers.horizontal_pod_autoscaler.limits import History, Moved, limited
from services.controllers.horizontal_pod_autoscaler.metrics import measured
from services.controllers.horizontal_pod_autoscaler.replicas import (
    MetricsError,
    Proposal,
    Tolerance,
    by_average,
    by_utilization,
    grouped,
    requested,
)
from services.controllers.shared_ownership import selector_of
from services.controllers.shared_selector_text import go_text
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Patch, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.telemetry.metrics import Counts, Metrics, counter

RESOURCE = "horizontalpodautoscalers.autoscaling"
SYNC_S = 15.0
"""How often each autoscaler is looked at (upstream's flag)."""
TARGETS: dict[tuple[str, str], tuple[str, type[View]]] = {
    ("apps", "Deployment"): ("deployments.apps", Deployment),
    ("apps", "ReplicaSet"): ("replicasets.apps", ReplicaSet),
    ("apps", "StatefulSet"): ("statefulsets.apps", StatefulSet),
}
Target = Deployment | ReplicaSet | StatefulSet
RECONCILIATIONS = "horizontal_pod_autoscaler_controller_reconciliations_total"
ABLE, ACTIVE, LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"
UNABLE_TO_GET = "the HPA controller was unable to get the target's current scale: "
_UNSERVED = {
    "Pods": ("FailedGetPodsMetric", "pods"),
    "Object": ("FailedGetObjectMetric", "object"),
    "External": ("FailedGetExternalMetric", "external"),
}
NO_CUSTOM = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
NO_EXTERNAL = (
    "unable to fetch metrics from external metrics API: the server could not find the requested resource "
    "(get {}.external.metrics.k8s.io)"
)


@dataclass
class _Memory:
    """What is remembered of one autoscaler. `selector`: that of its target's pods, as last seen."""

    due_s: float
    history: History = field(default_factory=History)
    selector: Selector | None = None
    asked: tuple[int, int, str] | None = None
    """The change of replicas that is under way: before, after, and why."""
    refusal: str = ""


@dataclass
class _Look:
    """What one reconcile comes to."""

    conditions: list[Document]
    wall_s: float
    events: list[RecordEvent] = field(default_factory=list)
    metrics: list[Document] | None = None

    def put(self, kind: str, status: str, reason: str, message: str) -> None:
        """Set a condition; its time stays while its status does."""
        made = conditions.new(kind, status, reason, message, self.wall_s)
        old = conditions.find(self.conditions, kind)
        if old is None:
            self.conditions.append(made)
            return
        if old.get("status") == status and (since := old.get("lastTransitionTime")):
            made["lastTransitionTime"] = since
        self.conditions[self.conditions.index(old)] = made


class Autoscalers:
    """One controller's memory and its reconcile."""

    def __init__(self) -> None:
        self._memories: dict[Key, _Memory] = {}
        self.counts = Counts()

    def changed(self, change: Change[HorizontalPodAutoscaler], listers: Listers) -> Iterable[Key]:
        """Forget what is gone."""
        old, new, key = change.old, change.new, change.object.metadata.key
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._memories.pop(key, None)
        return (key,)

    def failed(self, key: Key, action: Action, reason: str) -> None:
        """Remember why the number of replicas could not be changed."""
        if isinstance(action, Patch) and action.subresource == "scale" and (memory := self._memories.get(key)):
            memory.refusal = reason

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Read the scale live, compare what pods use with the targets, and change the replicas if need be."""
        scaler = listers.of(HorizontalPodAutoscaler).get(key)
        if scaler is None or scaler.metadata.deletion_timestamp is not None:
            return NOTHING
        memory = self._memories.setdefault(key, _Memory(moment.now_s + SYNC_S))
        look = _Look(conditions.as_documents(scaler.status.conditions), moment.wall_s)
        if memory.asked is not None and memory.refusal:
            return self._refused(scaler, memory, look, moment.now_s)
        self._note_scaled(memory, moment.now_s)
        if memory.due_s > moment.now_s:
            return Result(requeue_after_s=memory.due_s - moment.now_s)
        target = _target(scaler, moment)
        if isinstance(target, Query):
            return Result(refresh=(target,))
        memory.due_s = moment.now_s + SYNC_S
        if isinstance(target, str):
            self.counts.add(RECONCILIATIONS, "none", "internal")
            look.put(ABLE, "False", "FailedGetScale", UNABLE_TO_GET + target)
            look.events.append(event(scaler, "FailedGetScale", target, warns=True))
            return Result((*look.events, *_conditions_alone(scaler, look)), SYNC_S)
        look.put(ABLE, "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale")
        return Result(tuple(self._scale(scaler, target, memory, look, listers, moment)), SYNC_S)

    @staticmethod
    def _note_scaled(memory: _Memory, now_s: float) -> None:
        if memory.asked is not None:
            memory.history.scaled(memory.asked[0], memory.asked[1], now_s)
            memory.asked = None

    @staticmethod
    def _refused(scaler: HorizontalPodAutoscaler, memory: _Memory, look: _Look, now_s: float) -> Result:
        """Report that the number of replicas could not be changed."""
        assert memory.asked is not None
        (_, after, why), error = memory.asked, memory.refusal.partition(": ")[2]
        memory.asked, memory.refusal, memory.due_s = None, "", now_s + SYNC_S
        look.put(
            ABLE, "False", "FailedUpdateScale", f"the HPA controller was unable to update the target scale: {error}"
        )
        failed = event(scaler, "FailedRescale", f"New size: {after}; reason: {why}; error: {error}", warns=True)
        return Result((failed, *_conditions_alone(scaler, look)), SYNC_S)

    def _scale(
        self,
        scaler: HorizontalPodAutoscaler,
        target: Target,
        memory: _Memory,
        look: _Look,
        listers: Listers,
        moment: Moment,
    ) -> list[Action]:
        current, spec = target.spec.replicas, scaler.spec
        if not memory.history.recommended:
            memory.history.recommended.append(Moved(moment.now_s, current))
        wanted, why = current, ""
        if current == 0 and spec.min_replicas != 0:
            text = "scaling is disabled since the replica count of the target is zero"
            look.put(ACTIVE, "False", "ScalingDisabled", text)
        elif current > spec.max_replicas:
            wanted, why = spec.max_replicas, "Current number of replicas above Spec.MaxReplicas"
        elif current < spec.min_replicas:
            wanted, why = spec.min_replicas, "Current number of replicas below Spec.MinReplicas"
        else:
            try:
                proposed, metric = self._proposed(scaler, target, memory, look, listers)
            except MetricsError as error:
                self.counts.add(RECONCILIATIONS, "none", "internal")
                failed = event(scaler, "FailedComputeMetricsReplicas", str(error), warns=True)
                status = _status(scaler, look, current, scaler.status.desired_replicas, is_scaled=False)
                return [*look.events, *status, failed]
            why = f"{metric} above target" if proposed > current else "All metrics below target"
            found = limited(scaler, memory.history, current, proposed, moment.now_s)
            look.put(ABLE, "True", *found.able)
            look.put(LIMITED, "True" if found.is_limited else "False", *found.limit)
            wanted = found.replicas
        actions: list[Action] = []
        done = "none" if wanted == current else "scale_up" if wanted > current else "scale_down"
        self.counts.add(RECONCILIATIONS, done, "none")
        if wanted != current:
            text = f"the HPA controller was able to update the target scale to {wanted}"
            look.put(ABLE, "True", "SucceededRescale", text)
            memory.asked = (current, wanted, why)
            actions.append(_rescale(scaler, target, wanted))
            actions.append(event(scaler, "SuccessfulRescale", f"New size: {wanted}; reason: {why}"))
        return [*look.events, *actions, *_status(scaler, look, current, wanted, is_scaled=wanted != current)]

    def _proposed(
        self, scaler: HorizontalPodAutoscaler, target: Target, memory: _Memory, look: _Look, listers: Listers
    ) -> tuple[int, str]:
        """Return the most replicas that a metric asks for, and which one that is.

        Raises: MetricsError when no number can be computed, or a part is missing and the rest asks for fewer.
        """
        selector = memory.selector = selector_of(target)
        if selector is None:
            look.put(ACTIVE, "False", "InvalidSelector", "the HPA target's scale is missing a selector")
            look.events.append(event(scaler, "SelectorRequired", "selector is required", warns=True))
            raise MetricsError("selector is required")
        pods = [p for p in listers.of(Pod).all(scaler.metadata.namespace) if selector.matches(p.metadata.labels)]
        if len(rivals := self._selecting(scaler.metadata.namespace, pods)) > 1:
            text = f"pods by selector {_text_of(target)} are controlled by multiple HPAs: [{' '.join(rivals)}]"
            look.put(ACTIVE, "False", "AmbiguousSelector", text)
            look.events.append(event(scaler, "AmbiguousSelector", text, warns=True))
            raise MetricsError(text)
        best, name, invalid = 0, "", list[tuple[str, str, str]]()
        look.metrics = []
        for metric in scaler.spec.metrics:
            try:
                found, label, status = _asked_for(scaler, metric, target, pods, look.wall_s)
            except _InvalidMetric as error:
                invalid.append((error.reason, error.inner, error.whole))
                look.events.append(event(scaler, error.reason, error.inner, warns=True))
                look.metrics.append({"type": ""})
                continue
            look.metrics.append(status)
            if best == 0 or found > best:
                best, name = found, label
        count = len(scaler.spec.metrics)
        if len(invalid) >= count or (invalid and best < target.spec.replicas):
            reason, inner, whole = invalid[0]
            look.put(ACTIVE, "False", reason, f"the HPA was unable to compute the replica count: {inner}")
            raise MetricsError(f"invalid metrics ({len(invalid)} invalid out of {count}), first error is: {whole}")
        text = f"the HPA was able to successfully calculate a replica count from {name}"
        look.put(ACTIVE, "True", "ValidMetricFound", text)
        return best, name

    def _selecting(self, namespace: str, pods: Sequence[Pod]) -> list[str]:
        """Return the autoscalers of the namespace whose targets' selectors match some of these pods."""
        labels = [pod.metadata.labels for pod in pods]
        return [
            str(key)
            for key, each in sorted(self._memories.items())
            if key.namespace == namespace and each.selector is not None and any(map(each.selector.matches, labels))
        ]


class _InvalidMetric(Exception):
    """One metric cannot be had. `inner`: what the condition says, `whole`: what is reported of all metrics."""

    def __init__(self, reason: str, inner: str, whole: str) -> None:
        super().__init__(whole)
        self.reason, self.inner, self.whole = reason, inner, whole


def _target(scaler: HorizontalPodAutoscaler, moment: Moment) -> Target | Query | str:
    """Return what is scaled as it is now; the read that is needed first; or why it cannot be had."""
    wanted = scaler.spec.scale_target_ref
    group = wanted.api_version.rpartition("/")[0]
    known = TARGETS.get((group, wanted.kind))
    if known is None:
        return f'no matches for kind "{wanted.kind}" in group "{group}"'
    resource, view = known
    query = Query(view, Key(scaler.metadata.namespace, wanted.name))
    if query not in moment.live:
        return query
    found = moment.live[query]
    if found is None:
        return f'{resource} "{wanted.name}" not found'
    assert isinstance(found, Deployment | ReplicaSet | StatefulSet)
    return found


def _rescale(scaler: HorizontalPodAutoscaler, target: Target, replicas: int) -> Patch:
    resource, _ = TARGETS["apps", scaler.spec.scale_target_ref.kind]
    return writes.patch(resource, target, {"spec": {"replicas": replicas}}, "scale", on_version=True)


def _text_of(target: Target) -> str:
    selector = target.spec.selector
    return ",".join(f"{k}={v}" for k, v in sorted(selector.match_labels.items())) if selector is not None else ""


def _asked_for(
    scaler: HorizontalPodAutoscaler, metric: MetricSpec, target: Target, pods: Sequence[Pod], wall_s: float
) -> tuple[int, str, Document]:
    """Return how many replicas a metric asks for, what it is called, and its status. Raises: _InvalidMetric."""
    if metric.type in _UNSERVED:
        raise _unserved(scaler, metric)
    is_container = metric.type == "ContainerResource"
    source = metric.container_resource if is_container else metric.resource
    assert source is not None  # validated
    what = "usage" if source.target.average_value is not None else "utilization"
    try:
        found = _of_resource(scaler, source, target, pods, wall_s)
    except MetricsError as error:
        inner = f"failed to get {source.name} {what}: {error}"
        what = f"{source.container} container" if is_container else f"{source.name} resource"
        reason = "FailedGetContainerResourceMetric" if is_container else "FailedGetResourceMetric"
        whole = f"failed to get {what} metric value: {inner}"
        raise _InvalidMetric(reason, inner, whole) from None
    thousandths = found.average if source.name == "cpu" else found.average * 1000
    current: Document = {"averageValue": decimal_quantity(thousandths)}
    label = f"{source.name} resource"
    if found.percent is not None:
        current = {"averageUtilization": found.percent, **current}
        label = f"{source.name} {'container ' if is_container else ''}resource utilization (percentage of request)"
    status: Document = {"name": source.name, "current": current}
    if is_container:
        status["container"] = source.container
    member = "containerResource" if is_container else "resource"
    return found.replicas, label, {"type": metric.type, member: status}


def _of_resource(
    scaler: HorizontalPodAutoscaler, source: MetricSource, target: Target, pods: Sequence[Pod], wall_s: float
) -> Proposal:
    resource, wanted, current = source.name, source.target, target.spec.replicas
    samples = measured(pods, resource, source.container, target.metadata, wall_s)
    if not samples:
        text = "no metrics returned from resource metrics API"
        raise MetricsError(f"unable to get metrics for resource {resource}: {text}")
    groups, tolerance = grouped(pods, samples, resource, wall_s), _tolerance(scaler)
    if wanted.average_value is not None:
        return by_average(samples, groups, current, amount(resource, wanted.average_value), tolerance)
    requests = requested(pods, resource, source.container)
    return by_utilization(pods, samples, requests, groups, current, wanted.average_utilization or 0, tolerance)


def _tolerance(scaler: HorizontalPodAutoscaler) -> Tolerance:
    """Return how far metrics may be from their targets: the behavior's own, else a tenth (KEP-4951)."""
    behavior, usual = scaler.spec.behavior, Tolerance()
    if behavior is None:
        return usual

    def own(rules: HPAScalingRules | None, default: float) -> float:
        return default if rules is None or rules.tolerance is None else milli(rules.tolerance) / 1000

    return Tolerance(own(behavior.scale_up, usual.up), own(behavior.scale_down, usual.down))


def _unserved(scaler: HorizontalPodAutoscaler, metric: MetricSpec) -> _InvalidMetric:
    """Return the failure of a metric for which no API is registered."""
    reason, kind = _UNSERVED[metric.type]
    source = metric.pods or metric.object or metric.external
    assert source is not None  # validated
    name = source.metric.name
    if kind != "external":
        inner = f"unable to get metric {name}: {NO_CUSTOM}"
        return _InvalidMetric(reason, inner, f"failed to get {kind} metric value: {inner}")
    where = f"{scaler.metadata.namespace}/{name}/{go_text(source.metric.selector)}"
    inner = f"unable to get external metric {where}: {NO_EXTERNAL.format(name)}"
    outer = f"external metric {name}" if source.target.average_value is None else f"{name} external metric"
    return _InvalidMetric(reason, inner, f"failed to get {name} external metric value: failed to get {outer}: {inner}")


def _status(
    scaler: HorizontalPodAutoscaler, look: _Look, current: int, desired: int, *, is_scaled: bool
) -> list[Action]:
    wanted: Document = {
        "currentReplicas": current,
        "desiredReplicas": desired,
        "currentMetrics": look.metrics,
        "conditions": look.conditions,
    }
    if is_scaled:
        wanted["lastScaleTime"] = format_time(look.wall_s)
    changed = writes.differing(scaler.status, wanted)
    return [writes.status(RESOURCE, scaler, changed)] if changed else []


def _conditions_alone(scaler: HorizontalPodAutoscaler, look: _Look) -> list[Action]:
    changed = writes.differing(scaler.status, {"conditions": look.conditions})
    return [writes.status(RESOURCE, scaler, changed)] if changed else []


METRICS: Final[Metrics[Autoscalers]] = Metrics(
    counter(
        RECONCILIATIONS,
        "Number of reconciliations of HPA controller, by what was done and what went wrong.",
        lambda controller: controller.counts.of(RECONCILIATIONS),
        "action",
        "error",
    )
)


def _build(switches: Switches) -> Controller:
    memory = Autoscalers()
    watches = (Watch(HorizontalPodAutoscaler, memory.changed),)
    name, view = "horizontal-pod-autoscaler", HorizontalPodAutoscaler
    return Controller(
        name,
        view,
        memory.reconcile,
        watches=watches,
        reads=(Pod,),
        failed=memory.failed,
        workers=5,
        reporter="horizontal-pod-autoscaler",
        metrics=lambda: METRICS.of(memory),
    )


CONTROLLER = Registration("horizontal-pod-autoscaler", _build, start_order=23)
