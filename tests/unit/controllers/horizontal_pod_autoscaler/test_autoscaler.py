"""Autoscalers: what pods use, how many replicas that asks for, how far it is followed, and what is reported."""

import msgspec
import pytest

from services.api.kinds.deployment import Deployment
from services.api.kinds.horizontalpodautoscaler import HPAScalingRules, decimal_quantity
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.api.metrics.apis import PodMetrics
from services.api.printing import cells
from services.api.resources import resources
from services.controllers.horizontal_pod_autoscaler.controller import CONTROLLER, TARGETS
from services.controllers.horizontal_pod_autoscaler.limits import History, Moved, _down_limit, _up_limit
from services.controllers.horizontal_pod_autoscaler.metrics import MetricsError, Sample
from services.controllers.horizontal_pod_autoscaler.replicas import (
    Groups,
    Tolerance,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
    requests_by_pod,
)
from services.reconcile.actions import NOTHING, Patch, Query, RecordEvent

STARTED = "2026-01-01T00:00:00Z"
SCALERS = "horizontalpodautoscalers.autoscaling"


def a_scaler(metrics=None, status=None, name="web", target="web", kind="Deployment", **spec):
    half = {"type": "Utilization", "averageUtilization": 50}
    metrics = metrics or [{"type": "Resource", "resource": {"name": "cpu", "target": half}}]
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 10, "metrics": metrics, **spec},
        "status": status or {},
    }  # fmt: skip


@pytest.fixture
def a_web(a_pod):
    def build(name, cpu="", *, request="1", phase="Running", ready=True, started=STARTED, since=STARTED, **metadata):
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": request} if request else {}}}]}
        running = [{"name": "c", "state": {"running": {"startedAt": started}}}] if phase == "Running" else []
        if cpu:
            metadata["annotations"] = {"cpu": cpu}
        status = {"startTime": started, "containerStatuses": running}
        return a_pod(name, node="n1", phase=phase, ready=ready, since=since, spec=spec, status=status, **metadata)

    return build


def measured(world, pods=()):
    """What the metrics API has of these pods: a cpu in the annotation, none of those without."""
    return tuple(
        msgspec.convert(
            {
                "metadata": {"name": pod["metadata"]["name"], "namespace": "default"},
                "timestamp": world.stamp(), "window": "15s",
                "containers": [{"name": "c", "usage": {"cpu": pod["metadata"]["annotations"]["cpu"], "memory": "0"}}],
            }, PodMetrics)
        for pod in pods if "annotations" in pod["metadata"]
    )  # fmt: skip


class Turn:
    """What one reconcile came to, some time after the autoscaler was seen first; `answers`: by wire name, the values of
    custom and external metrics, or the text of a refusal."""

    def __init__(self, world, target, name="web", after_s=15.0, pods=(), answers=None, view=Deployment):
        live = {Query(view, Key("default", "web")): target}
        world.reconcile(name, live=live)
        result = world.reconcile(name, live=live, after_s=after_s)
        listed, refused, self.asked = {}, {}, result.refresh
        for query in self.asked:
            answer = (answers or {}).get(query.resource)
            if isinstance(answer, str):
                refused[query] = answer
            elif query.resource == "pods.metrics.k8s.io":
                listed[query] = measured(world, pods)
            elif answer is not None:
                live[query] = msgspec.convert({"items": answer}, query.view)
            else:
                refused[query] = "the server could not find the metric"
        if self.asked:
            result = world.reconcile(name, live=live, listed=listed, refused=refused)
        flat = self.actions = result.actions
        self.scaled = [a.patch["spec"]["replicas"] for a in flat if isinstance(a, Patch) and a.subresource == "scale"]
        self.status = next((a.patch["status"] for a in flat if isinstance(a, Patch) and a.subresource == "status"), {})
        self.events = [f"{a.type} {a.reason}: {a.message}" for a in flat if isinstance(a, RecordEvent)]
        self.conditions = {
            c["type"]: (c["status"], c["reason"], c["message"]) for c in self.status.get("conditions", ())
        }


@pytest.fixture
def turn(world_of, a_set):
    def run(*pods, replicas=2, scaler=None, annotations=None, others=(), after_s=15.0, answers=None, status=None):
        world = world_of(CONTROLLER)
        world.put(
            {
                **a_set(replicas, status=status, **({"annotations": annotations} if annotations else {})),
                "kind": "Deployment",
            }
        )
        for each in (*pods, scaler or a_scaler(), *others):
            world.put(each)
        target = world.of(Deployment).get(Key("default", "web"))
        return Turn(world, target, after_s=after_s, pods=pods, answers=answers)

    return run


def test_nothing_is_read_before_the_first_fifteen_seconds_are_over(world_of):
    world = world_of(CONTROLLER)
    world.put(a_scaler())

    assert world.reconcile("web").requeue_after_s == pytest.approx(15.0)
    assert world.reconcile("web", after_s=14.0).requeue_after_s == pytest.approx(1.0)
    assert world.reconcile("web", after_s=1.0).refresh == (Query(Deployment, Key("default", "web")),)


def test_an_autoscaler_that_is_gone_or_going_is_left_alone(world_of):
    world = world_of(CONTROLLER)
    going = a_scaler(name="going")
    going["metadata"] |= {"deletionTimestamp": STARTED, "finalizers": ["example.com/held"]}
    world.put(going)

    assert (world.reconcile("gone"), world.reconcile("going")) == (NOTHING, NOTHING)


def test_pods_above_the_target_are_given_more(turn, a_web):
    found = turn(a_web("a", "800m"), a_web("b", "600m"))

    assert found.scaled == [3]
    assert found.events == [
        "Normal SuccessfulRescale: New size: 3; reason: cpu resource utilization (percentage of request) above target"
    ]
    assert (found.status["currentReplicas"], found.status["desiredReplicas"]) == (2, 3)
    assert found.status["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 70, "averageValue": "700m"}}}
    ]
    assert found.conditions == {
        "AbleToScale": ("True", "SucceededRescale", "the HPA controller was able to update the target scale to 3"),
        "ScalingActive": ("True", "ValidMetricFound", ("the HPA was able to successfully calculate a replica count "
                          "from cpu resource utilization (percentage of request)")),
        "ScalingLimited": ("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
    }  # fmt: skip


def test_within_a_tenth_of_the_target_nothing_changes_unless_the_behavior_is_stricter(turn, a_web):
    strict = a_scaler(behavior={"scaleUp": {"tolerance": "0.01", "policies": [{"type": "Pods", "value": 4,
                                                                             "periodSeconds": 15}]}})  # fmt: skip

    assert turn(a_web("a", "550m"), a_web("b", "550m")).scaled == []
    assert turn(a_web("a", "550m"), a_web("b", "550m"), scaler=strict).scaled == [3]


def test_less_use_takes_five_minutes_to_be_believed(turn, a_web):
    found = turn(a_web("a", "100m"), a_web("b", "100m"))

    assert found.scaled == []
    assert found.conditions["AbleToScale"] == (
        "True", "ScaleDownStabilized",
        "recent recommendations were higher than current one, applying the highest recent recommendation",
    )  # fmt: skip


def test_a_pod_that_has_just_started_does_not_count_for_scaling_up(turn, a_web, world_of):
    now = world_of(CONTROLLER)
    now.now_s += 15
    fresh = a_web("b", "2", started=now.stamp(40), since=now.stamp(5))

    assert turn(a_web("a", "700m"), fresh).scaled == []
    assert turn(a_web("a", "1500m"), fresh).scaled == [3]


@pytest.mark.parametrize(
    ("replicas", "why"),
    [
        (12, "Current number of replicas above Spec.MaxReplicas"),
        (1, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_the_bounds_hold_without_any_metric(turn, replicas, why):
    found = turn(replicas=replicas, scaler=a_scaler(minReplicas=2))

    assert found.scaled == [10 if replicas > 10 else 2]
    assert why in found.events[0]


def test_a_workload_of_no_replicas_is_left_alone(turn):
    found = turn(replicas=0)

    assert found.scaled == []
    assert found.conditions["ScalingActive"] == (
        "False", "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")  # fmt: skip


def test_without_metrics_it_says_so_as_a_cluster_does(turn, a_web, world_of):
    now = world_of(CONTROLLER)
    now.now_s += 15
    found = turn(a_web("a", started=now.stamp(5)))

    inner = (
        "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource "
        "metrics API"
    )
    assert found.events == [
        f"Warning FailedGetResourceMetric: {inner}",
        (
            "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu "
            f"resource metric value: {inner}"
        ),
    ]
    assert found.conditions["ScalingActive"] == (
        "False", "FailedGetResourceMetric", f"the HPA was unable to compute the replica count: {inner}")  # fmt: skip
    assert found.status["currentMetrics"] == [{"type": ""}]


def test_a_container_without_a_request_is_named(turn, a_web):
    found = turn(a_web("a", "1", request=""))

    assert "missing request for cpu in container c of Pod a" in found.conditions["ScalingActive"][2]


@pytest.mark.parametrize(("kind", "missing"), [
    ("Deployment", "deployments/scale.apps"), ("ReplicaSet", "replicasets/scale.apps"), ("StatefulSet", "statefulsets.apps"),
])  # fmt: skip
def test_a_target_that_is_not_there_is_reported(turn, world_of, kind, missing):
    """As a server answers to a read of the scale, which is StatefulSets' own answer for those."""
    world = world_of(CONTROLLER)
    world.put(a_scaler(kind=kind))
    found = Turn(world, None, view=TARGETS["apps", kind][1])
    odd = turn(scaler=a_scaler(kind="Gadget"))

    text = f'{missing} "web" not found'
    assert found.events == [f"Warning FailedGetScale: {text}"]
    assert found.conditions["AbleToScale"] == (
        "False", "FailedGetScale", f"the HPA controller was unable to get the target's current scale: {text}"
    )  # fmt: skip
    assert odd.events == ['Warning FailedGetScale: no matches for kind "Gadget" in group "apps"']


def test_two_autoscalers_of_the_same_pods_stop_each_other(world_of, a_set, a_web):
    world = world_of(CONTROLLER)
    world.put({**a_set(1), "kind": "Deployment"})
    for each in (a_web("a", "1"), a_scaler(), a_scaler(name="web2")):
        world.put(each)
    target = world.of(Deployment).get(Key("default", "web"))
    Turn(world, target)
    found = Turn(world, target, "web2")

    text = "pods by selector app=web are controlled by multiple HPAs: [default/web default/web2]"
    assert found.conditions["ScalingActive"] == ("False", "AmbiguousSelector", text)


def test_a_custom_metric_fails_and_the_other_may_still_scale_up(turn, a_web):
    pods = {"type": "Pods", "pods": {"metric": {"name": "rps"},
                                     "target": {"type": "AverageValue", "averageValue": "10"}}}  # fmt: skip
    metrics = [pods, *a_scaler()["spec"]["metrics"]]
    up = turn(a_web("a", "800m"), a_web("b", "600m"), scaler=a_scaler(metrics))
    down = turn(a_web("a", "100m"), a_web("b", "100m"), scaler=a_scaler(metrics))

    assert up.scaled == [3]
    assert "Warning FailedGetPodsMetric: unable to get metric rps" in up.events[0]
    assert down.conditions["ScalingActive"][1] == "FailedGetPodsMetric"


def test_a_refused_change_of_the_scale_is_reported(world_of, a_set, a_web):
    world = world_of(CONTROLLER)
    world.put({**a_set(1), "kind": "Deployment"})
    for each in (a_web("a", "1"), a_scaler()):
        world.put(each)
    turn = Turn(world, world.of(Deployment).get(Key("default", "web")), pods=[a_web("a", "1")])
    (scale,) = (a for a in turn.actions if isinstance(a, Patch) and a.subresource == "scale")
    world.controller.failed(Key("default", "web"), scale, "Conflict: the object has been modified")
    event, status = world.reconcile("web").actions

    assert event.message == (
        "New size: 2; reason: cpu resource utilization (percentage of request) above target; error: the object has "
        "been modified"
    )
    assert status.patch["status"]["conditions"][0]["reason"] == "FailedUpdateScale"


def samples(*values):
    return {f"p{n}": Sample(value, 0.0) for n, value in enumerate(values)}


def test_pods_without_metrics_hold_back_either_change():
    """Three measured, one missing: upstream `TestReplicaCalcMissingMetricsUnreadyScaleUp` and its like."""
    requests = dict.fromkeys(("p0", "p1", "p2", "gone"), 1000)
    groups = Groups(ready=3, missing={"gone"})

    def proposed(*values):
        return by_utilization((), samples(*values), requests, groups, 4, 50, Tolerance()).replicas

    assert proposed(900, 900, 900) == 6  # 2700 of 4000 are 67 %
    assert proposed(600, 600, 600) == 4  # with the missing one at nothing there is no reason to grow
    assert proposed(100, 100, 100) == 3  # with the missing one at all of its request: 32 %
    assert proposed(300, 300, 300) == 4  # that would turn the direction


def test_an_average_is_kept_as_well():
    assert by_average(samples(300, 500), Groups(ready=2), 2, 200, Tolerance()) == (4, 400, None)
    assert by_average(samples(210, 210), Groups(ready=2), 2, 200, Tolerance()).replicas == 2


def rules(select, *policies):
    made = [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in policies]
    return msgspec.convert({"selectPolicy": select, "policies": made}, HPAScalingRules)


def test_kep_853_policies_limit_the_change_in_their_period():
    history = History(ups=[Moved(90.0, 3)], downs=[Moved(50.0, 2)])
    both = (("Pods", 4, 15), ("Percent", 50, 60))

    assert _up_limit(rules("Max", *both), history, 10, 100.0) == max(10 - 3 + 4, 14)
    assert _up_limit(rules("Min", *both), history, 10, 100.0) == 11
    assert _up_limit(rules("Disabled", *both), history, 10, 100.0) == 10
    assert _down_limit(rules("Max", ("Pods", 3, 60), ("Percent", 50, 60)), history, 10, 100.0) == 4
    assert _down_limit(rules("Min", ("Pods", 3, 60), ("Percent", 50, 60)), history, 10, 100.0) == 6


def test_the_column_of_targets_shows_two_metrics():
    def shown(metrics, current=None):
        document = {**a_scaler(metrics), "status": {"currentMetrics": current or []}}
        document["metadata"]["creationTimestamp"] = STARTED
        columns = resources()[SCALERS].columns
        return dict(zip([c.name for c in columns], cells(columns, document, 1_767_225_690.0), strict=True))

    status = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 10}}}
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}}
    usual = a_scaler()["spec"]["metrics"]
    row = shown(usual, [status])
    assert [row[name] for name in ("Reference", "Targets", "MinPods", "MaxPods", "Replicas")] == [
        "Deployment/web", "cpu: 10%/50%", "1", 10, 0]  # fmt: skip
    assert shown(usual)["Targets"] == "cpu: <unknown>/50%"
    assert shown([*usual, memory, memory])["Targets"] == "cpu: <unknown>/50%, memory: <unknown>/1Gi + 1 more..."


@pytest.mark.parametrize(
    ("number", "text"), [(120, "120m"), (2000, "2"), (104857600000, "104857600"), (2000000000, "2M"), (0, "0")]
)
def test_quantities_are_canonical(number, text):
    assert decimal_quantity(number) == text


def test_reconciliations_and_computations_are_counted_and_timed_under_upstreams_names(world_of, a_set, a_web):
    """Upstream `pkg/controller/podautoscaler/monitor/metrics.go`."""
    world = world_of(CONTROLLER)
    world.put({**a_set(1), "kind": "Deployment"})
    for each in (a_web("a", "1"), a_scaler()):
        world.put(each)
    Turn(world, world.of(Deployment).get(Key("default", "web")), pods=[a_web("a", "1")])
    Turn(world, None, after_s=30.0)

    name = "horizontal_pod_autoscaler_controller"
    counted = {key: value for key, value in world.controller.metrics().items() if "_bucket" not in key}
    assert {key: value for key, value in counted.items() if "_sum" not in key} == {
        f'{name}_reconciliations_total{{action="scale_up",error="none"}}': 1,
        f'{name}_reconciliations_total{{action="none",error="internal"}}': 1,
        f'{name}_metric_computation_total{{action="scale_up",error="none",metric_type="Resource"}}': 1,
        f'{name}_reconciliation_duration_seconds_count{{action="scale_up",error="none"}}': 1,
        f'{name}_reconciliation_duration_seconds_count{{action="none",error="internal"}}': 1,
        f'{name}_metric_computation_duration_seconds_count{{action="scale_up",error="none",metric_type="Resource"}}': 1,
    }


def test_what_fails_of_one_container_or_of_an_external_metric_is_said_as_upstream_says_it(turn, a_web):
    half = {"type": "Utilization", "averageUtilization": 50}
    box = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "x", "target": half}}
    queue = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    container = turn(a_web("a", "1"), scaler=a_scaler([box])).events
    external = turn(a_web("a", "1"), scaler=a_scaler([queue])).events
    good = {**box, "containerResource": {**box["containerResource"], "container": "c"}}
    scaled = turn(a_web("a", "1"), replicas=1, scaler=a_scaler([good]))

    assert container[0].startswith("Warning FailedGetContainerResourceMetric: failed to get cpu utilization: unable to")
    assert "first error is: failed to get x container metric value: failed to get cpu utilization" in container[1]
    text = (
        "unable to get external metric default/queue/nil: unable to fetch metrics from external metrics API: the "
        "server could not find the metric"
    )
    assert external[0] == f"Warning FailedGetExternalMetric: {text}"
    assert external[1].endswith(
        f"failed to get queue external metric value: failed to get queue external metric: {text}"
    )
    assert "reason: cpu container resource utilization (percentage of request) above target" in scaled.events[0]


def a_metric(kind, value=None, average=None, selector=None, **described):
    metric = {"name": "rps", **({"selector": selector} if selector else {})}
    target = {"type": "Value", "value": value} if value else {"type": "AverageValue", "averageValue": average}
    return {"type": kind, kind.lower(): {"metric": metric, "target": target, **described}}


def values(**by_pod):
    return [{"describedObject": {"name": pod}, "metric": {"name": "rps"}, "value": v} for pod, v in by_pod.items()]


def test_a_metric_of_pods_is_averaged_over_those_that_have_it(turn, a_web):
    answers = {"custommetrics.custom.metrics.k8s.io": values(a="15", b="25")}
    found = turn(a_web("a"), a_web("b"), scaler=a_scaler([a_metric("Pods", average="10")]), answers=answers)

    assert found.scaled == [4]
    assert found.status["currentMetrics"] == [
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "current": {"averageValue": "20"}}}]  # fmt: skip
    assert "reason: pods metric rps above target" in found.events[0]
    (query,) = found.asked
    assert (query.key, query.label_selector) == (Key("default", "pods/*/rps"), "app=web")


def test_a_metric_of_an_object_is_compared_as_a_whole_or_for_each_replica(turn, a_web):
    service = {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"}}
    answers = {"custommetrics.custom.metrics.k8s.io": values(web="250")}
    pods = (a_web("a"), a_web("b"), a_web("c", ready=False))
    whole = turn(*pods, replicas=3, scaler=a_scaler([a_metric("Object", "100", **service)]), answers=answers)
    each = turn(*pods, replicas=3, scaler=a_scaler([a_metric("Object", average="50", **service)]), answers=answers,
                status={"replicas": 3})  # fmt: skip

    assert whole.scaled == [5]  # 2.5 times the two that are ready
    assert whole.status["currentMetrics"][0]["object"]["current"] == {"value": "250"}
    assert "reason: Service metric rps above target" in whole.events[0]
    assert whole.asked[0].key == Key("default", "services/web/rps")
    assert each.scaled == [5]  # 250 at 50 each
    assert each.status["currentMetrics"][0]["object"]["current"] == {"averageValue": "83334m"}


def test_an_external_metric_is_the_sum_of_its_series_and_scales_from_zero(turn, a_web):
    selector = {"matchLabels": {"topic": "a"}}
    answers = {"externalmetrics.external.metrics.k8s.io": [{"value": "30"}, {"value": "500m"}]}
    scaler = a_scaler([a_metric("External", "10", selector=selector)], minReplicas=0)
    up = turn(replicas=0, scaler=scaler, answers=answers)
    none = turn(a_web("a"), replicas=1, scaler=scaler, answers={"externalmetrics.external.metrics.k8s.io": []})

    assert up.scaled == [4]
    assert up.asked[0].label_selector == "topic=a"
    text = "external metric rps(&LabelSelector{MatchLabels:map[string]string{topic: a,},MatchExpressions:[]LabelSelectorRequirement{},})"
    assert text in up.conditions["ScalingActive"][2]
    assert none.conditions["ScalingActive"][1] == "FailedGetExternalMetric"
    assert "no metrics returned from external metrics API" in none.conditions["ScalingActive"][2]


def test_a_metric_of_an_object_of_an_unknown_kind_is_refused_without_a_read(turn, a_web):
    gadget = {"describedObject": {"apiVersion": "x.io/v1", "kind": "Gadget", "name": "g"}}
    found = turn(a_web("a"), scaler=a_scaler([a_metric("Object", "1", **gadget)]))

    assert found.asked == ()
    assert found.conditions["ScalingActive"][2].endswith(
        'unable to map kind Gadget to resource: no matches for kind "Gadget" in group "x.io" on Gadget default/g')  # fmt: skip


def test_the_resource_metrics_api_may_refuse(turn, a_web):
    found = turn(
        a_web("a", "1"), answers={"pods.metrics.k8s.io": "the server is currently unable to handle the request"}
    )

    assert "unable to fetch metrics from resource metrics API: the server is currently unable" in found.events[0]


@pytest.mark.parametrize(
    ("current", "average", "target", "wanted"),
    [
        (1, 200, 100, 2),  # the documentation: 200m of a desired 100m doubles the replicas
        (2, 50, 100, 1),  # 50m halves them
        (10, 105, 100, 10),  # within a tenth: nothing
        (10, 110, 100, 10),
        (10, 111, 100, 12),
        (10, 90, 100, 10),
        (10, 89, 100, 9),
        (3, 70, 50, 5),  # rounded up
    ],
)
def test_desired_is_current_times_the_ratio_rounded_up(current, average, target, wanted):
    """kubernetes.io, "Horizontal Pod Autoscaling", algorithm details."""
    measured = samples(*[average] * current)

    assert by_average(measured, Groups(ready=current), current, target, Tolerance()).replicas == wanted


@pytest.mark.parametrize(
    ("value", "reported", "target", "wanted"),
    [
        (300, 3, 100, (3, 100)),
        (329, 3, 100, (3, 110)),
        (331, 3, 100, (4, 111)),
        (0, 3, 100, (0, 0)),
        (500, 0, 100, (5, 500)),
    ],
)
def test_a_value_for_each_replica_is_divided_by_those_that_are_reported(value, reported, target, wanted):
    assert by_value_per_pod(value, reported, target, Tolerance())[:2] == wanted


def test_a_pods_own_requests_stand_for_those_of_its_containers():
    """KEP-2837: the containers' count where the pod does not name the resource."""

    def asked(level, *containers):
        spec = {
            "resources": {"requests": level},
            "containers": [{"name": f"c{n}", "resources": {"requests": each}} for n, each in enumerate(containers)],
        }
        return requests_by_pod([msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)], "cpu", "")["p"]

    assert asked({"cpu": "3"}, {"cpu": "1"}, {}) == 3000
    assert asked({"memory": "1Gi"}, {"cpu": "1"}, {}) == 1000
    with pytest.raises(MetricsError, match="missing pod-level request for cpu in Pod p"):
        asked({"memory": "1Gi"}, {})


def test_without_pods_a_value_says_nothing_unless_it_is_within_the_tolerance():
    """Upstream `replica_calculator.go`, `getReadyPodsCount`: the words of the condition FailedGetExternalMetric."""
    assert (3, 100) == by_value([], 100, 3, 100, Tolerance())[:2]
    with pytest.raises(
        MetricsError, match="unable to calculate ready pods: no pods returned by selector while calculating"
    ):
        by_value([], 300, 3, 100, Tolerance())
