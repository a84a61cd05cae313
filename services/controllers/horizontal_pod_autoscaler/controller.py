"""Scale a workload every 15 s to the number of replicas that the usage of its pods requires.

Of several metrics the one that requires most replicas decides; while some cannot be read, nothing is scaled
down. All metrics are read from the API server: `metrics.k8s.io`, `custom.metrics.k8s.io`,
`external.metrics.k8s.io`.
Source: controllers 18; upstream `pkg/controller/podautoscaler/horizontal.go`; KEP-853, KEP-2021, KEP-4951.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

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
from services.api.quantity import milli
from services.api.selectors import Selector, selector_text
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers.horizontal_pod_autoscaler.limits import History, Moved, limit_replicas
from services.controllers.horizontal_pod_autoscaler.metrics import (
    MetricsError,
    Sample,
    custom_samples,
    external_value,
    object_value,
    query_of,
    resource_samples,
    source_of,
)
from services.controllers.horizontal_pod_autoscaler.replicas import (
    Proposal,
    Tolerance,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
    group_pods,
    requests_by_pod,
)
from services.controllers.shared_ownership import selector_of
from services.controllers.shared_selector_text import go_text
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Patch, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.telemetry.metrics import Counts, Histogram, Metrics, counter, histogram

RESOURCE = "horizontalpodautoscalers.autoscaling"
SYNC_S = 15.0
"""Interval in seconds between two reconciles of an autoscaler (upstream's flag)."""
TARGETS: dict[tuple[str, str], tuple[str, type[View], str]] = {
    ("apps", "Deployment"): ("deployments.apps", Deployment, "deployments/scale.apps"),
    ("apps", "ReplicaSet"): ("replicasets.apps", ReplicaSet, "replicasets/scale.apps"),
    ("apps", "StatefulSet"): ("statefulsets.apps", StatefulSet, "statefulsets.apps"),
}
"""Supported targets: (group, kind) → resource, view, and the resource named in a NotFound answer for its scale."""
Target = Deployment | ReplicaSet | StatefulSet
RECONCILIATIONS = "horizontal_pod_autoscaler_controller_reconciliations_total"
ABLE, ACTIVE, LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"
UNABLE_TO_GET = "the HPA controller was unable to get the target's current scale: "
COMPUTATIONS = "horizontal_pod_autoscaler_controller_metric_computation_total"
RECONCILIATION_TIME = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
COMPUTATION_TIME = "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds"
BUCKETS_S = tuple(0.001 * 2**power for power in range(15))


@dataclass
class _Memory:
    """Memory of one autoscaler. `selector`: the last seen selector of its target's pods."""

    due_s: float
    history: History = field(default_factory=History)
    selector: Selector | None = None
    asked: tuple[int, int, str] | None = None
    """The change of replicas that is under way: before, after, and why."""
    refusal: str = ""
    begun_s: float | None = None
    """When the target was asked for, and when the metrics were, in the reconcile that is under way."""
    asked_s: float | None = None


@dataclass
class _Look:
    """Working state of one reconcile."""

    conditions: list[Document]
    wall_s: float
    events: list[RecordEvent] = field(default_factory=list)
    metrics: list[Document] | None = None
    failures: int = 0
    """How many metrics could not be had."""

    def put(self, kind: str, status: str, reason: str, message: str) -> None:
        """Set a condition; its time stays while its status does."""
        condition = conditions.new(kind, status, reason, message, self.wall_s)
        old = conditions.find(self.conditions, kind)
        if old is None:
            self.conditions.append(condition)
            return
        if old.get("status") == status and (since := old.get("lastTransitionTime")):
            condition["lastTransitionTime"] = since
        self.conditions[self.conditions.index(old)] = condition


class Autoscalers:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self._memories: dict[Key, _Memory] = {}
        self.counts = Counts()
        self.times: dict[str, dict[tuple[str, ...], Histogram]] = {RECONCILIATION_TIME: {}, COMPUTATION_TIME: {}}

    def on_changed(self, change: Change[HorizontalPodAutoscaler], listers: Listers) -> Iterable[Key]:
        """Forget a deleted autoscaler."""
        old, new, key = change.old, change.new, change.object.metadata.key
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._memories.pop(key, None)
        return (key,)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Store the reason why the number of replicas could not be changed."""
        if isinstance(action, Patch) and action.subresource == "scale" and (memory := self._memories.get(key)):
            memory.refusal = reason

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Read the scale live, compare usage with the targets, and change the replicas if needed."""
        scaler = listers.of(HorizontalPodAutoscaler).get(key)
        if scaler is None or scaler.metadata.deletion_timestamp is not None:
            return NOTHING
        memory = self._memories.setdefault(key, _Memory(moment.now_s + SYNC_S))
        look = _Look(conditions.as_documents(scaler.status.conditions), moment.wall_s)
        if memory.asked is not None and memory.refusal:
            return self._refusal_result(scaler, memory, look, moment.now_s)
        self._note_scaled(memory, moment.now_s)
        if memory.due_s > moment.now_s:
            return Result(requeue_after_s=memory.due_s - moment.now_s)
        target = _target(scaler, moment)
        if isinstance(target, Query):
            memory.begun_s = moment.now_s
            return Result(refresh=(target,))
        if not isinstance(target, str) and (missing := _unread(scaler, target, moment)):
            memory.asked_s = moment.now_s
            return Result(refresh=missing)
        memory.due_s = moment.now_s + SYNC_S
        if isinstance(target, str):
            self._count(memory, moment, "none", "spec" if target.startswith("no matches") else "internal")
            look.put(ABLE, "False", "FailedGetScale", UNABLE_TO_GET + target)
            look.events.append(event(scaler, "FailedGetScale", target, warns=True))
            return Result((*look.events, *_conditions_alone(scaler, look)), SYNC_S)
        look.put(ABLE, "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale")
        return Result(tuple(self._scale(scaler, target, memory, look, listers, moment)), SYNC_S)

    @staticmethod
    def _note_scaled(memory: _Memory, now_s: float) -> None:
        if memory.asked is not None:
            memory.history.record_scale(memory.asked[0], memory.asked[1], now_s)
            memory.asked = None

    @staticmethod
    def _refusal_result(scaler: HorizontalPodAutoscaler, memory: _Memory, look: _Look, now_s: float) -> Result:
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
                proposed, metric = self._proposal(scaler, target, memory, look, listers, moment)
            except MetricsError as error:
                self._count(memory, moment, "none", "spec" if isinstance(error, _InvalidTarget) else "internal")
                failed = event(scaler, "FailedComputeMetricsReplicas", str(error), warns=True)
                status = _status(scaler, look, current, scaler.status.desired_replicas, is_scaled=False)
                return [*look.events, *status, failed]
            why = f"{metric} above target" if proposed > current else "All metrics below target"
            limited_scale = limit_replicas(scaler, memory.history, current, proposed, moment.now_s)
            look.put(ABLE, "True", *limited_scale.able)
            look.put(LIMITED, "True" if limited_scale.is_limited else "False", *limited_scale.limit)
            wanted = limited_scale.replicas
        actions: list[Action] = []
        done = _action(current, wanted)
        self._count(memory, moment, done, "internal" if look.failures else "none")
        if wanted != current:
            text = f"the HPA controller was able to update the target scale to {wanted}"
            look.put(ABLE, "True", "SucceededRescale", text)
            memory.asked = (current, wanted, why)
            actions.append(_rescale(scaler, target, wanted))
            actions.append(event(scaler, "SuccessfulRescale", f"New size: {wanted}; reason: {why}"))
        return [*look.events, *actions, *_status(scaler, look, current, wanted, is_scaled=wanted != current)]

    def _proposal(
        self,
        scaler: HorizontalPodAutoscaler,
        target: Target,
        memory: _Memory,
        look: _Look,
        listers: Listers,
        moment: Moment,
    ) -> tuple[int, str]:
        """Return the most replicas that a metric asks for, and which one that is.

        Raises: MetricsError when no number can be computed, or a part is missing and the rest asks for fewer.
        """
        selector = memory.selector = selector_of(target)
        if selector is None:
            look.put(ACTIVE, "False", "InvalidSelector", "the HPA target's scale is missing a selector")
            look.events.append(event(scaler, "SelectorRequired", "selector is required", warns=True))
            raise _InvalidTarget("selector is required")
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
                replicas, label, status = _asked_for(scaler, metric, target, pods, moment)
            except _InvalidMetric as error:
                self._count(memory, moment, "none", "internal", metric.type)
                look.failures += 1
                invalid.append((error.reason, error.inner, error.whole))
                look.events.append(event(scaler, error.reason, error.inner, warns=True))
                look.metrics.append({"type": ""})
                continue
            look.metrics.append(status)
            self._count(memory, moment, _action(scaler.status.current_replicas, replicas), "none", metric.type)
            if best == 0 or replicas > best:
                best, name = replicas, label
        count = len(scaler.spec.metrics)
        if len(invalid) >= count or (invalid and best < target.spec.replicas):
            reason, inner, whole = invalid[0]
            look.put(ACTIVE, "False", reason, f"the HPA was unable to compute the replica count: {inner}")
            raise MetricsError(f"invalid metrics ({len(invalid)} invalid out of {count}), first error is: {whole}")
        text = f"the HPA was able to successfully calculate a replica count from {name}"
        look.put(ACTIVE, "True", "ValidMetricFound", text)
        return best, name

    def _count(self, memory: _Memory, moment: Moment, *labels: str) -> None:
        """Count a reconcile by action and error, or the computation of a metric, whose type is a third label; the time
        counts from the first read of either."""
        name, timed, since = RECONCILIATIONS, RECONCILIATION_TIME, memory.begun_s
        if len(labels) > 2:
            name, timed, since = COMPUTATIONS, COMPUTATION_TIME, memory.asked_s
        self.counts.add(name, *labels)
        spent = self.times[timed].setdefault(labels, Histogram(BUCKETS_S))
        spent.observe(0.0 if since is None else moment.now_s - since)

    def _selecting(self, namespace: str, pods: Sequence[Pod]) -> list[str]:
        """Return the autoscalers of the namespace whose targets' selectors match some of these pods."""
        labels = [pod.metadata.labels for pod in pods]
        return [
            str(key)
            for key, each in sorted(self._memories.items())
            if key.namespace == namespace and each.selector is not None and any(map(each.selector.matches, labels))
        ]


class _InvalidTarget(MetricsError):
    """Error: the target in its current form cannot be scaled by metrics."""


class _InvalidMetric(Exception):
    """Error: one metric cannot be read. `inner`: text for its condition; `whole`: text for the report on all
    metrics.
    """

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
    _, view, missing = known
    query = Query(view, Key(scaler.metadata.namespace, wanted.name))
    if query not in moment.live:
        return query
    target = moment.live[query]
    if target is None:
        return f'{missing} "{wanted.name}" not found'
    assert isinstance(target, Deployment | ReplicaSet | StatefulSet)
    return target


def _rescale(scaler: HorizontalPodAutoscaler, target: Target, replicas: int) -> Patch:
    resource, _, _ = TARGETS["apps", scaler.spec.scale_target_ref.kind]
    return writes.patch(resource, target, {"spec": {"replicas": replicas}}, "scale", on_version=True)


def _action(current: int, wanted: int) -> str:
    return "none" if wanted == current else "scale_up" if wanted > current else "scale_down"


def _text_of(target: Target) -> str:
    return selector_text(target.spec.selector)


def _unread(scaler: HorizontalPodAutoscaler, target: Target, moment: Moment) -> tuple[Query, ...]:
    """Return the metrics that must be read before anything is decided: none where the bounds alone decide."""
    spec, current = scaler.spec, target.spec.replicas
    if selector_of(target) is None or (current == 0 and spec.min_replicas != 0):
        return ()
    if not spec.min_replicas <= current <= spec.max_replicas:
        return ()
    needed = dict.fromkeys(query_of(scaler, metric, _text_of(target)) for metric in spec.metrics)
    answered = (moment.live, moment.listed, moment.refused)
    return tuple(each for each in needed if each is not None and not any(each in answers for answers in answered))


def _asked_for(
    scaler: HorizontalPodAutoscaler, metric: MetricSpec, target: Target, pods: Sequence[Pod], moment: Moment
) -> tuple[int, str, Document]:
    """Return how many replicas a metric asks for, what it is called, and its status. Raises: _InvalidMetric."""
    source, query = source_of(metric), query_of(scaler, metric, _text_of(target))
    current, tolerance = target.spec.replicas, _tolerance(scaler)
    if metric.type in ("Resource", "ContainerResource"):
        return _by_resource(scaler, metric, target, pods, moment)
    name, goal = source.metric.name, source.target
    namespace, is_average = scaler.metadata.namespace, goal.average_value is not None
    external = f"external metric {name}({go_text(source.metric.selector)})"
    try:
        match metric.type:
            case "Pods":
                assert query is not None
                assert goal.average_value is not None  # validated
                samples = custom_samples(query, moment, name)
                groups = group_pods(pods, samples, "", moment.wall_s)
                proposal = by_average(samples, groups, current, milli(goal.average_value), tolerance)
                label, is_average = f"pods metric {name}", True
            case "Object":
                value = object_value(query, moment, source, namespace)
                proposal = _of_value(value, source, target, pods, tolerance)
                label = external if is_average else f"{source.described_object.kind} metric {name}"
            case _:
                assert query is not None
                where = f"{namespace}/{name}/{go_text(source.metric.selector)}"
                value = external_value(query, moment, where)
                proposal, label = _of_value(value, source, target, pods, tolerance), external
    except MetricsError as error:
        raise _not_had(metric, source, str(error)) from None
    identifier: Document = {"name": name}
    if source.metric.selector is not None:
        identifier["selector"] = msgspec.to_builtins(source.metric.selector)
    status: Document = {"metric": identifier}
    if metric.type == "Object":
        status["describedObject"] = msgspec.to_builtins(source.described_object)
    status["current"] = {"averageValue" if is_average else "value": decimal_quantity(proposal.average)}
    return proposal.replicas, label, {"type": metric.type, metric.type.lower(): status}


def _of_value(value: int, source: MetricSource, target: Target, pods: Sequence[Pod], tolerance: Tolerance) -> Proposal:
    goal = source.target
    if goal.average_value is not None:
        return by_value_per_pod(value, target.status.replicas, milli(goal.average_value), tolerance)
    return by_value(pods, value, target.spec.replicas, milli(goal.value or "0"), tolerance)


def _not_had(metric: MetricSpec, source: MetricSource, inner: str) -> _InvalidMetric:
    """Return the failure of a metric that is no resource's."""
    name, is_average = source.metric.name, source.target.average_value is not None
    if metric.type == "Pods":
        return _InvalidMetric("FailedGetPodsMetric", inner, f"failed to get pods metric value: {inner}")
    if metric.type == "Object":
        outer = f"failed to get {name} object metric: {inner}" if is_average else inner
        return _InvalidMetric("FailedGetObjectMetric", inner, f"failed to get object metric value: {outer}")
    outer = f"{name} external metric" if is_average else f"external metric {name}"
    whole = f"failed to get {name} external metric value: failed to get {outer}: {inner}"
    return _InvalidMetric("FailedGetExternalMetric", inner, whole)


def _by_resource(
    scaler: HorizontalPodAutoscaler, metric: MetricSpec, target: Target, pods: Sequence[Pod], moment: Moment
) -> tuple[int, str, Document]:
    source, query = source_of(metric), query_of(scaler, metric, _text_of(target))
    is_container = metric.type == "ContainerResource"
    what = "usage" if source.target.average_value is not None else "utilization"
    try:
        assert query is not None
        samples = resource_samples(query, moment, source)
        proposal = _of_resource(samples, source, target, pods, moment.wall_s, _tolerance(scaler))
    except MetricsError as error:
        inner = f"failed to get {source.name} {what}: {error}"
        what = f"{source.container} container" if is_container else f"{source.name} resource"
        reason = "FailedGetContainerResourceMetric" if is_container else "FailedGetResourceMetric"
        whole = f"failed to get {what} metric value: {inner}"
        raise _InvalidMetric(reason, inner, whole) from None
    current: Document = {"averageValue": decimal_quantity(proposal.average)}
    label = f"{source.name} {'container ' if is_container else ''}resource"
    if proposal.percent is not None:
        current = {"averageUtilization": proposal.percent, **current}
        label += " utilization (percentage of request)"
    status: Document = {"name": source.name, "current": current}
    if is_container:
        status["container"] = source.container
    member = "containerResource" if is_container else "resource"
    return proposal.replicas, label, {"type": metric.type, member: status}


def _of_resource(
    samples: Mapping[str, Sample],
    source: MetricSource,
    target: Target,
    pods: Sequence[Pod],
    wall_s: float,
    tolerance: Tolerance,
) -> Proposal:
    resource, wanted, current = source.name, source.target, target.spec.replicas
    if not pods:
        raise MetricsError("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, samples, resource, wall_s)
    if wanted.average_value is not None:
        return by_average(samples, groups, current, milli(wanted.average_value), tolerance)
    requests = requests_by_pod(pods, resource, source.container)
    return by_utilization(pods, samples, requests, groups, current, wanted.average_utilization or 0, tolerance)


def _tolerance(scaler: HorizontalPodAutoscaler) -> Tolerance:
    """Return how far metrics may be from their targets: the behavior's own, else a tenth (KEP-4951)."""
    behavior, usual = scaler.spec.behavior, Tolerance()
    if behavior is None:
        return usual

    def own(rules: HPAScalingRules | None, default: float) -> float:
        return default if rules is None or rules.tolerance is None else milli(rules.tolerance) / 1000

    return Tolerance(own(behavior.scale_up, usual.up), own(behavior.scale_down, usual.down))


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
    ),
    counter(
        COMPUTATIONS,
        "Number of metric computations, by what the metric asked for and what went wrong.",
        lambda controller: controller.counts.of(COMPUTATIONS),
        "action",
        "error",
        "metric_type",
    ),
    histogram(
        RECONCILIATION_TIME,
        "The time(seconds) that the HPA controller takes to reconcile once.",
        lambda controller: controller.times[RECONCILIATION_TIME],
        "action",
        "error",
    ),
    histogram(
        COMPUTATION_TIME,
        "The time(seconds) that the HPA controller takes to calculate one metric.",
        lambda controller: controller.times[COMPUTATION_TIME],
        "action",
        "error",
        "metric_type",
    ),
)


def _build(switches: Switches) -> Controller:
    memory = Autoscalers()
    watches = (Watch(HorizontalPodAutoscaler, memory.on_changed),)
    name, view = "horizontal-pod-autoscaler", HorizontalPodAutoscaler
    return Controller(
        name,
        view,
        memory.reconcile,
        watches=watches,
        reads=(Pod,),
        failed=memory.on_failed,
        workers=5,
        reporter="horizontal-pod-autoscaler",
        metrics=lambda: METRICS.of(memory),
    )


CONTROLLER = Registration("horizontal-pod-autoscaler", _build, start_order=23)
