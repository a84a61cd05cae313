"""Documents from a few words: the pods, groups and workloads that scenarios are about. One function a verb. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.scenarios.script.declaration import Argument, Declaration, Option, check_known, explained, fields, read_options
from lab.scenarios.script.value_types import (
    COUNT,
    FLAG,
    INTEGER,
    NAME,
    NAMES,
    NUMBER_OR_PERCENT,
    PAIRS,
    QUANTITIES,
    QUANTITY,
    SECONDS,
    TEXT,
    as_type,
    choice,
    parse_pairs,
    parse_quantity,
)
from services.api.kinds.pod import RUN
from services.api.meta import Document
from services.api.resources import resources

Options = Mapping[str, str]
Make = Callable[[str, Options], Document]

TOPIC: Final = "Objects"


@dataclass(frozen=True)
class Maker(Declaration):
    """A verb that creates an object: what makes its document of a name and options."""

    make: Make = lambda name, options: {}


MAKERS: dict[str, Maker] = {}
"""By the verb that creates it, what makes the document."""


def maker(name: str, options: Iterable[Option], *examples: str) -> Callable[[Make], Make]:
    """Have a function be the verb of that name; its docstring is what the reference says."""

    def register(make: Make) -> Make:
        meaning, notes = explained(make.__doc__)
        arguments = (Argument("NAME", "the object's name"),)
        MAKERS[name] = Maker(name, TOPIC, meaning, notes, arguments, tuple(options), examples=examples, make=make)
        return make

    return register


def _values(options: Options, declared: tuple[Option, ...], what: str) -> dict[str, Any]:
    """Return the options' values. Raises: ValueError, also for one that is not declared."""
    check_known(options, declared, what)
    return read_options(options, declared, what)


def toleration(text: str) -> Document:
    """Return a toleration of `key[:value]:effect[:seconds]`; `*` tolerates everything."""
    if text == "*":
        return {"operator": "Exists"}
    parts = text.split(":")
    seconds = int(parts.pop()) if len(parts) > 1 and parts[-1].isascii() and parts[-1].isdigit() else None
    effect = parts.pop() if len(parts) > 1 else ""
    made: Document = {"key": parts[0], "operator": "Equal" if len(parts) > 1 else "Exists"}
    if len(parts) > 1:
        made["value"] = parts[1]
    if effect:
        made["effect"] = effect
    if seconds is not None:
        made["tolerationSeconds"] = seconds
    return made


def _each(name: str, make: Callable[[str], Document]) -> Any:
    """Return the type of a list with commas, each of whose words is an object."""
    return as_type(name, lambda text: [make(each) for each in text.split(",")])


_NAMESPACE = Option("namespace", NAME, "the namespace it is created in", default="default", field="metadata.namespace")

_POD_SPEC = (
    Option("node", NAME, "run it there, past the scheduler", field="spec.nodeName"),
    Option("node-selector", PAIRS, "labels that its node must have", field="spec.nodeSelector"),
    Option("priority", INTEGER, "its priority; the API server allows what its class says", field="spec.priority"),
    Option("priority-class", NAME, "its PriorityClass", field="spec.priorityClassName"),
    Option(
        "gates",
        _each("NAME,…", lambda gate: {"name": gate}),
        "scheduling gates (KEP-3521)",
        field="spec.schedulingGates",
    ),
    Option(
        "group",
        as_type("NAME", lambda text: {"podGroupName": text}),
        "the PodGroup it belongs to (KEP-4671)",
        field="spec.schedulingGroup",
    ),
    Option(
        "tolerate",
        _each("KEY[:VALUE]:EFFECT[:SECONDS],…", toleration),
        "tolerations; `*` tolerates everything",
        field="spec.tolerations",
    ),
    Option(
        "restart",
        choice("Always", "OnFailure", "Never"),
        "when its containers restart",
        otherwise="Always; Never for a job",
        field="spec.restartPolicy",
    ),
    Option(
        "claims",
        _each("NAME,…", lambda claim: {"name": claim, "resourceClaimName": claim}),
        "ResourceClaims that exist",
        field="spec.resourceClaims",
    ),
    Option(
        "claim-templates",
        _each("NAME,…", lambda claim: {"name": claim, "resourceClaimTemplateName": claim}),
        "ResourceClaimTemplates of claims of its own",
        field="spec.resourceClaims",
    ),
    Option(
        "grace", SECONDS, "seconds from SIGTERM to SIGKILL", otherwise="30", field="spec.terminationGracePeriodSeconds"
    ),
    Option("scheduler", NAME, "who schedules it", otherwise="default-scheduler", field="spec.schedulerName"),
)
POD_OPTIONS = (
    Option("cpu", QUANTITY, "CPU that its container requests", field="spec.containers[main].resources"),
    Option(
        "memory",
        QUANTITY,
        "memory that its container requests",
        otherwise="1Gi if Guaranteed, else none",
        field="spec.containers[main].resources",
    ),
    Option("extended", QUANTITIES, "extended resources that it requests", field="spec.containers[main].resources"),
    Option(
        "qos",
        choice("guaranteed", "burstable", "besteffort"),
        "limits equal to requests, requests alone, or neither",
        default="guaranteed",
    ),
    Option(
        "image",
        TEXT,
        "its container's image",
        default="registry.k8s.io/pause:3.10",
        field="spec.containers[main].image",
    ),
    Option(
        "run",
        TEXT,
        'what its container does: `"exit 0 after 5s"` (docs/reference/pods-on-nodes.md)',
        otherwise="it runs until it is ended",
        field="metadata.annotations[keplab.dev/run]",
    ),
    Option(
        "resize-policy",
        as_type(
            "RESOURCE:POLICY,…",
            lambda text: [{"resourceName": name, "restartPolicy": each} for name, each in parse_pairs(text).items()],
        ),
        "what a resize does to the container: NotRequired or RestartContainer (KEP-1287)",
        field="spec.containers[main].resizePolicy",
    ),
    Option("labels", PAIRS, "its labels", field="metadata.labels"),
    Option("finalizers", NAMES, "its finalizers", field="metadata.finalizers"),
    *_POD_SPEC,
    _NAMESPACE,
)


def pod_template(values: Mapping[str, Any], labels: Mapping[str, str]) -> Document:
    """Return `{metadata, spec}`. Requests equal limits (Guaranteed) unless qos=burstable or besteffort."""
    requests = {k: values[k] for k in ("cpu", "memory") if values[k] is not None} | (values["extended"] or {})
    resources: Document = {}
    if values["qos"] != "besteffort" and requests:
        if values["qos"] == "guaranteed":
            requests.setdefault("memory", "1Gi")
            resources = {"requests": dict(requests), "limits": dict(requests)}
        else:
            resources = {"requests": dict(requests)}
    container: Document = {"name": "main", "image": values["image"], "resources": resources}
    if values["resize-policy"] is not None:
        container["resizePolicy"] = values["resize-policy"]
    metadata: Document = {"labels": {**labels, **(values["labels"] or {})}}
    if values["run"] is not None:
        metadata["annotations"] = {RUN: values["run"]}
    if values["finalizers"] is not None:
        metadata["finalizers"] = values["finalizers"]
    return {"metadata": metadata, "spec": {"containers": [container]} | fields(values, _POD_SPEC)}


@maker(
    "pod",
    POD_OPTIONS,
    """\
# Pods that differ in what they ask of a node
nodes n1 cpu=4 labels=disk:ssd taints=batch=yes:NoSchedule extended=example.com/card:2
nodes n2 cpu=4
pod fast cpu=500m memory=256Mi node-selector=disk:ssd tolerate=batch:yes:NoSchedule extended=example.com/card:1
pod small cpu=100m qos=burstable labels=app:small,tier:back
pod least qos=besteffort image=shop:2 tolerate=*
pod placed cpu=1 node=n2 grace=5 finalizers=example.com/hold
pod batch cpu=1 run="exit 0 after 2s" restart=Never
expect within 20s each pods name=batch phase == Succeeded
expect each pods name=fast spec.nodeName == n1
expect each pods name=fast status.qosClass == Guaranteed
expect each pods name=small status.qosClass == Burstable
expect each pods name=least status.qosClass == BestEffort
expect each pods name=least spec.containers[main].image == shop:2
expect each pods name=placed spec.terminationGracePeriodSeconds == 5
expect each pods name=placed metadata.finalizers[0] == example.com/hold
""",
    """\
# Pods that are not scheduled at once, or by another scheduler
set GenericWorkload=true
scheduler second
nodes n1 cpu=4
priorityclass high value=1000
podgroup pair min-count=2
pod gated gates=example.com/ready
pod other cpu=1 scheduler=second priority-class=high priority=1000
pod first cpu=1 group=pair
pod elastic cpu=1 resize-policy=cpu:RestartContainer namespace=kube-system
expect within 10s each pods name=other phase == Running
expect each pods name=other spec.priority == 1000
expect each pods name=gated status.conditions[PodScheduled].reason == SchedulingGated
expect each pods name=first phase == Pending
expect each pods name=elastic namespace == kube-system
expect each pods name=elastic spec.containers[main].resizePolicy[0].restartPolicy == RestartContainer
""",
    """\
# Pods with devices, of a claim that is there and of one that is made for the pod
nodes n1..n2 cpu=4 drivers=gpu.example.com:2
apply <<EOF
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.example.com"'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: own}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu}
EOF
pod a claims=shared
pod b claims=shared claim-templates=own
expect within 20s count pods phase=Running == 2
expect count resourceclaims status.allocation.devices.results[0].driver=gpu.example.com == 2
""",
)
def pod(name: str, options: Options) -> Document:
    """Create a Pod with one container, `main`.

    Its requests are its limits (Guaranteed) unless `qos` says otherwise. Whatever else a pod has is for `apply`.
    """
    values = _values(options, POD_OPTIONS, "pod")
    template = pod_template(values, {})
    template["metadata"] |= {"name": name, "namespace": values["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", **template}


RESIZE_OPTIONS = (
    Option("cpu", QUANTITY, "the CPU that it requests from now on", field="resources.requests"),
    Option("memory", QUANTITY, "the memory that it requests from now on", field="resources.requests"),
    Option(
        "cpu-limit", QUANTITY, "its limit of CPU", otherwise="cpu=, where it was equal to it", field="resources.limits"
    ),
    Option(
        "memory-limit",
        QUANTITY,
        "its limit of memory",
        otherwise="memory=, where it was equal to it",
        field="resources.limits",
    ),
    Option("container", NAME, "which container", otherwise="the first"),
)


def check_resize(options: Options) -> None:
    """Raise ValueError for an option that a resize does not have, or when none says what to change."""
    check_known(options, RESIZE_OPTIONS, "resize")
    if not options.keys() - {"container"}:
        raise ValueError("resize wants cpu=…, memory=…, cpu-limit=… or memory-limit=…")


def resized(pod: Document, options: Options) -> Document:
    """Return a strategic merge patch that resizes one container of the pod, the first unless named. A limit that is
    equal to its request, as Guaranteed pods have it, goes with it unless it is said."""
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    name = options.get("container") or next(iter(containers))
    if name not in containers:
        raise ValueError(f"the pod has no container {name!r}; there are: {', '.join(containers)}")
    now = containers[name].get("resources") or {}
    requests, limits = now.get("requests") or {}, now.get("limits") or {}
    wanted: Document = {"requests": {}, "limits": {}}
    for resource in ("cpu", "memory"):
        if resource in options:
            wanted["requests"][resource] = options[resource]
            if resource in limits and limits[resource] == requests.get(resource):
                wanted["limits"][resource] = options[resource]
        if (limit := options.get(f"{resource}-limit")) is not None:
            wanted["limits"][resource] = limit
    resources = {part: values for part, values in wanted.items() if values}
    return {"spec": {"containers": [{"name": name, "resources": resources}]}}


def _object(
    kind: str, name: str, values: Mapping[str, Any], spec: Document, labels: Document | None = None
) -> Document:
    """Return an object of `GROUP/VERSION/KIND`."""
    version, _, kind = kind.rpartition("/")
    metadata = {"name": name, "namespace": values["namespace"]} | ({"labels": labels} if labels else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


_GROUP_OPTIONS = (
    Option(
        "min-count",
        COUNT,
        "how many members a gang needs",
        otherwise="no gang",
        field="spec.schedulingPolicy.gang.minCount",
    ),
    Option("priority-class", NAME, "the group's PriorityClass", field="spec.priorityClassName"),
    Option(
        "mode", choice("single", "all"), "whether preemption takes single members or all", field="spec.disruptionMode"
    ),
    _NAMESPACE,
)


@maker(
    "podgroup",
    _GROUP_OPTIONS,
    """\
# A gang waits until all of its members are there (KEP-4671)
set GenericWorkload=true
nodes n1 cpu=4
priorityclass high value=100
podgroup pair min-count=2 priority-class=high mode=all namespace=default
pod a cpu=1 group=pair
expect for 3s each pods name=a phase == Pending
pod b cpu=1 group=pair
expect within 10s count pods phase=Running == 2
""",
)
def pod_group(name: str, options: Options) -> Document:
    """Create a PodGroup; pods say `group=NAME`. It is a gang of `min-count` members, or basic without."""
    values = _values(options, _GROUP_OPTIONS, "podgroup")
    count = values["min-count"]
    spec: Document = {"schedulingPolicy": {"basic": {}} if count is None else {"gang": {"minCount": count}}}
    if values["priority-class"] is not None:
        spec["priorityClassName"] = values["priority-class"]
    if values["mode"] is not None:
        spec["disruptionMode"] = {values["mode"]: {}}
    return _object("scheduling.k8s.io/v1beta1/PodGroup", name, values, spec)


_CLASS_OPTIONS = (
    Option("value", INTEGER, "the priority", default="0", field="value"),
    Option("preempts", FLAG, "whether its pods preempt others", default="true", field="preemptionPolicy"),
    Option("default", FLAG, "whether pods without a class have this one", default="false", field="globalDefault"),
)


@maker(
    "priorityclass",
    _CLASS_OPTIONS,
    """\
# A pod of a higher class takes the place of another, or waits when its class never preempts
nodes n1 cpu=2
priorityclass usual value=10 default=true
priorityclass patient value=100 preempts=false
priorityclass urgent value=1000
pod runs cpu=2
expect within 10s each pods name=runs phase == Running
pod waits cpu=2 priority-class=patient
expect for 3s each pods name=waits phase == Pending
pod now cpu=2 priority-class=urgent
expect within 60s each pods name=now phase == Running
expect count pods name=runs == 0
""",
)
def priority_class(name: str, options: Options) -> Document:
    """Create a PriorityClass."""
    values = _values(options, _CLASS_OPTIONS, "priorityclass")
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": values["value"],
        "preemptionPolicy": "PreemptLowerPriority" if values["preempts"] else "Never",
        "globalDefault": values["default"],
    }


def _replicas(values: Mapping[str, Any]) -> Document:
    return {"replicas": values["replicas"], "minReadySeconds": values["min-ready"]}


def _pods(labels: Document, values: Mapping[str, Any]) -> Document:
    return {"selector": {"matchLabels": labels}, "template": pod_template(values, labels)}


_REPLICAS = Option("replicas", INTEGER, "how many pods", default="1", field="spec.replicas")
_MIN_READY = Option(
    "min-ready",
    SECONDS,
    "seconds of being Ready after which a pod is available",
    default="0",
    field="spec.minReadySeconds",
)
_SURGE = Option(
    "surge",
    NUMBER_OR_PERCENT,
    "how many pods there may be too many during an update",
    field="spec.strategy.rollingUpdate.maxSurge",
)
_UNAVAILABLE = Option(
    "unavailable",
    NUMBER_OR_PERCENT,
    "how many pods may be unavailable during an update",
    field="spec.strategy.rollingUpdate.maxUnavailable",
)
_REPLICA_SET_OPTIONS = (_REPLICAS, _MIN_READY, *POD_OPTIONS)


@maker(
    "replicaset",
    _REPLICA_SET_OPTIONS,
    """\
# Three pods, available after two seconds of being Ready
nodes n1..n2 cpu=4
replicaset web replicas=3 cpu=500m min-ready=2
expect within 10s each replicasets status.availableReplicas == 3
""",
)
def replica_set(name: str, options: Options) -> Document:
    """Create a ReplicaSet; its pods carry `app: NAME`."""
    values = _values(options, _REPLICA_SET_OPTIONS, "replicaset")
    labels = {"app": name}
    return _object("apps/v1/ReplicaSet", name, values, _replicas(values) | _pods(labels, values), labels)


_DEPLOYMENT_OPTIONS = (
    _REPLICAS,
    _MIN_READY,
    Option(
        "strategy",
        choice("RollingUpdate", "Recreate"),
        "how pods are replaced",
        default="RollingUpdate",
        field="spec.strategy.type",
    ),
    _SURGE,
    _UNAVAILABLE,
    *POD_OPTIONS,
)


@maker(
    "deployment",
    _DEPLOYMENT_OPTIONS,
    """\
# A rollout that never has fewer pods than it should, and one that ends all before it begins
nodes n1..n2 cpu=8
deployment web replicas=2 cpu=500m surge=1 unavailable=0 min-ready=1
deployment db replicas=1 cpu=500m strategy=Recreate
expect within 15s count pods phase=Running == 3
patch deployment/web {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
expect within 30s count pods label.version=2 status.conditions[Ready].status=True == 2
expect within 30s each deployments name=web status.availableReplicas == 2
expect each deployments name=db spec.strategy.type == Recreate
""",
)
def deployment(name: str, options: Options) -> Document:
    """Create a Deployment; its pods carry `app: NAME`."""
    values = _values(options, _DEPLOYMENT_OPTIONS, "deployment")
    labels = {"app": name}
    spec = _replicas(values) | _pods(labels, values)
    spec["strategy"] = {"type": values["strategy"]}
    if values["strategy"] == "RollingUpdate":
        spec["strategy"] |= _rolling_update(values, "25%")
    return _object("apps/v1/Deployment", name, values, spec, labels)


def _rolling_update(values: Mapping[str, Any], unsaid: int | str) -> Document:
    """Return `{rollingUpdate}` when the options say how many pods may be too many or too few; else nothing."""
    if values["surge"] is None and values["unavailable"] is None:
        return {}
    surge, unavailable = (unsaid if values[name] is None else values[name] for name in ("surge", "unavailable"))
    return {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


_STATEFUL_SPEC = (
    Option(
        "policy",
        choice("OrderedReady", "Parallel"),
        "whether pods are created one after the other",
        otherwise="OrderedReady",
        field="spec.podManagementPolicy",
    ),
)
_STATEFUL_UPDATE = (
    Option(
        "partition",
        INTEGER,
        "update only pods from this one on, the first is 0",
        field="spec.updateStrategy.rollingUpdate.partition",
    ),
    Option(
        "unavailable",
        NUMBER_OR_PERCENT,
        "how many pods may be unavailable during an update",
        field="spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
)
_RETENTION = choice("Retain", "Delete")
_STATEFUL_RETENTION = (
    Option(
        "when-deleted",
        _RETENTION,
        "what becomes of its claims when it is deleted",
        otherwise="Retain",
        field="spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
    ),
    Option(
        "when-scaled",
        _RETENTION,
        "what becomes of claims of pods that it no longer has",
        otherwise="Retain",
        field="spec.persistentVolumeClaimRetentionPolicy.whenScaled",
    ),
)
_UPDATE_STRATEGY = Option(
    "strategy",
    choice("RollingUpdate", "OnDelete"),
    "how pods are replaced",
    otherwise="RollingUpdate",
    field="spec.updateStrategy.type",
)


def _volume_claim(text: str) -> Document:
    size, _, storage_class = text.partition(":")
    claim: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": parse_quantity(size)}}}
    if storage_class:
        claim["storageClassName"] = storage_class
    return {"metadata": {"name": "data"}, "spec": claim}


_STATEFUL_OPTIONS = (
    _REPLICAS,
    _MIN_READY,
    *_STATEFUL_SPEC,
    _UPDATE_STRATEGY,
    *_STATEFUL_UPDATE,
    Option("start", INTEGER, "the first ordinal", field="spec.ordinals.start"),
    Option(
        "storage",
        as_type("SIZE[:CLASS]", _volume_claim),
        "a volume claim named `data` for each pod",
        field="spec.volumeClaimTemplates",
    ),
    *_STATEFUL_RETENTION,
    *POD_OPTIONS,
)


@maker(
    "statefulset",
    _STATEFUL_OPTIONS,
    """\
# Pods in order from ordinal 5 on; an update reaches only those from the partition on
nodes n1..n2 cpu=8
statefulset db replicas=2 start=5 cpu=100m min-ready=1 strategy=RollingUpdate partition=1 unavailable=1
statefulset cache replicas=2 cpu=100m policy=Parallel strategy=OnDelete
expect within 20s count pods phase=Running == 4
expect count pods name=db-5|db-6|cache-0|cache-1 == 4
patch statefulset/db {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
expect within 60s each pods name=db-6 label.version == 2
expect each pods name=db-5 label.version == ""
""",
    """\
# Each pod has a volume of its own, which goes with it when the set is scaled down
nodes n1 cpu=8
apply <<EOF
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disk.example.com
volumeBindingMode: WaitForFirstConsumer
EOF
statefulset db replicas=2 cpu=100m storage=1Gi:fast when-scaled=Delete when-deleted=Retain
expect within 60s count pods phase=Running == 2
expect count persistentvolumeclaims name=data-db-* phase=Bound == 2
scale statefulset/db replicas=1
expect within 60s count persistentvolumeclaims name=data-db-* == 1
""",
)
def stateful_set(name: str, options: Options) -> Document:
    """Create a StatefulSet; its pods carry `app: NAME`, and `storage` gives each a claim named `data`."""
    values = _values(options, _STATEFUL_OPTIONS, "statefulset")
    labels = {"app": name}
    spec = _replicas(values) | {"serviceName": name} | _pods(labels, values) | fields(values, _STATEFUL_SPEC)
    strategy: Document = {"type": values["strategy"]} if values["strategy"] is not None else {}
    if numbers := fields(values, _STATEFUL_UPDATE):
        strategy["rollingUpdate"] = numbers
    if strategy:
        spec["updateStrategy"] = strategy
    if values["start"] is not None:
        spec["ordinals"] = {"start": values["start"]}
    if values["storage"] is not None:
        spec["volumeClaimTemplates"] = [values["storage"]]
    if retention := fields(values, _STATEFUL_RETENTION):
        spec["persistentVolumeClaimRetentionPolicy"] = retention
    return _object("apps/v1/StatefulSet", name, values, spec, labels)


_DAEMON_OPTIONS = (
    _MIN_READY,
    _UPDATE_STRATEGY,
    _SURGE,
    _UNAVAILABLE,
    Option("history", INTEGER, "how many old revisions are kept", otherwise="10", field="spec.revisionHistoryLimit"),
    Option(
        "host-network",
        FLAG,
        "whether its pods use the node's network",
        default="false",
        field="spec.template.spec.hostNetwork",
    ),
    *POD_OPTIONS,
)


@maker(
    "daemonset",
    _DAEMON_OPTIONS,
    """\
# A pod on every node, replaced one node after the other
nodes n1..n3 cpu=4
daemonset agent cpu=100m unavailable=1 history=2 host-network=true min-ready=1 strategy=RollingUpdate
daemonset proxy cpu=100m surge=1
expect within 15s each daemonsets status.numberReady == 3
patch daemonset/proxy {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
expect within 60s count pods label.version=2 status.conditions[Ready].status=True == 3
expect each pods name=agent-* spec.hostNetwork == true
""",
)
def daemon_set(name: str, options: Options) -> Document:
    """Create a DaemonSet; its pods carry `app: NAME`. With `surge` none is unavailable unless said."""
    values = _values(options, _DAEMON_OPTIONS, "daemonset")
    labels = {"app": name}
    spec: Document = {"minReadySeconds": values["min-ready"]} | _pods(labels, values)
    if values["host-network"]:
        spec["template"]["spec"]["hostNetwork"] = True
    if values["history"] is not None:
        spec["revisionHistoryLimit"] = values["history"]
    strategy: Document = {"type": values["strategy"]} if values["strategy"] is not None else {}
    if strategy := strategy | _rolling_update(values, 0):
        spec["updateStrategy"] = strategy
    return _object("apps/v1/DaemonSet", name, values, spec, labels)


_JOB_SPEC = (
    Option("completions", INTEGER, "how many pods must succeed", field="spec.completions"),
    Option("parallelism", INTEGER, "how many pods run at once", otherwise="1", field="spec.parallelism"),
    Option("backoff-limit", INTEGER, "failures after which it has failed", otherwise="6", field="spec.backoffLimit"),
    Option("deadline", SECONDS, "seconds after which it has failed", field="spec.activeDeadlineSeconds"),
    Option("ttl", SECONDS, "seconds after its end at which it is deleted", field="spec.ttlSecondsAfterFinished"),
    Option("backoff-limit-per-index", INTEGER, "failures of one index (KEP-3850)", field="spec.backoffLimitPerIndex"),
    Option("max-failed-indexes", INTEGER, "failed indexes after which it has failed", field="spec.maxFailedIndexes"),
    Option("suspend", FLAG, "whether it starts no pod", otherwise="false", field="spec.suspend"),
    Option(
        "replacement",
        choice("TerminatingOrFailed", "Failed"),
        "when a pod is replaced (KEP-3939)",
        field="spec.podReplacementPolicy",
    ),
)


def _failure_rules(text: str) -> list[Document]:
    return [{"action": action, "onPodConditions": [{"type": kind}]} for action, kind in parse_pairs(text).items()]


def _exit_rules(text: str) -> list[Document]:
    rules = []
    for action, code in parse_pairs(text).items():
        if not re.fullmatch(r"\d+", code):
            raise ValueError(f"{code!r}: want an exit code, for example FailJob:42")
        rules.append({"action": action, "onExitCodes": {"operator": "In", "values": [int(code)]}})
    return rules


_JOB_OPTIONS = (
    *_JOB_SPEC,
    Option("indexed", FLAG, "whether its pods have indexes", default="false", field="spec.completionMode"),
    Option(
        "on-failure",
        as_type("ACTION:CONDITION,…", _failure_rules),
        "rules for pods with a condition: `Ignore:DisruptionTarget` (KEP-3329)",
        field="spec.podFailurePolicy.rules",
    ),
    Option(
        "on-exit",
        as_type("ACTION:CODE,…", _exit_rules),
        "rules for exit codes: `FailJob:42` (KEP-3329)",
        field="spec.podFailurePolicy.rules",
    ),
    *POD_OPTIONS,
)


@maker(
    "job",
    _JOB_OPTIONS,
    """\
# Four pods of which two run at once, a job that an exit code ends, and one that waits
nodes n1 cpu=8
job batch completions=4 parallelism=2 cpu=100m run="exit 0 after 1s" ttl=30
job strict cpu=100m run="exit 42 after 1s" on-exit=FailJob:42 on-failure=Ignore:DisruptionTarget backoff-limit=3
job later cpu=100m suspend=true deadline=600 replacement=Failed
expect within 40s each jobs name=batch status.succeeded == 4
expect each jobs name=strict status.conditions[Failed].reason == PodFailurePolicy
expect count pods name=later-* == 0
expect within 60s count jobs name=batch == 0
""",
    """\
# An indexed job goes on with its other indexes when one fails too often
nodes n1 cpu=8
job one completions=2 parallelism=2 indexed=true cpu=100m run="exit 1 after 1s" backoff-limit-per-index=0
job all completions=2 parallelism=2 indexed=true cpu=100m backoff-limit-per-index=0 max-failed-indexes=0 run="exit 1"
expect within 40s each jobs name=one status.conditions[Failed].reason == FailedIndexes
expect within 40s each jobs name=all status.conditions[Failed].reason == MaxFailedIndexesExceeded
""",
)
def job(name: str, options: Options) -> Document:
    """Create a Job; its pods carry `app: NAME` and never restart unless `restart` says so."""
    values = _values({"restart": "Never", **options}, _JOB_OPTIONS, "job")
    labels = {"app": name}
    spec: Document = {"template": pod_template(values, labels)} | fields(values, _JOB_SPEC)
    if values["indexed"]:
        spec["completionMode"] = "Indexed"
    if rules := [*(values["on-failure"] or ()), *(values["on-exit"] or ())]:
        spec["podFailurePolicy"] = {"rules": rules}
    return _object("batch/v1/Job", name, values, spec, labels)


_CRON_JOB_SPEC = (
    Option("schedule", TEXT, 'when it starts jobs: `"*/5 * * * *"`', is_required=True, field="spec.schedule"),
    Option("zone", TEXT, "the time zone of its schedule", field="spec.timeZone"),
    Option(
        "concurrency",
        choice("Allow", "Forbid", "Replace"),
        "what becomes of a job that still runs",
        otherwise="Allow",
        field="spec.concurrencyPolicy",
    ),
    Option("starting-deadline", SECONDS, "seconds after which a start is missed", field="spec.startingDeadlineSeconds"),
    Option(
        "keep-successful",
        INTEGER,
        "how many jobs that succeeded are kept",
        otherwise="3",
        field="spec.successfulJobsHistoryLimit",
    ),
    Option(
        "keep-failed", INTEGER, "how many jobs that failed are kept", otherwise="1", field="spec.failedJobsHistoryLimit"
    ),
    Option("suspend", FLAG, "whether it starts no job", otherwise="false", field="spec.suspend"),
)
_OF_ITS_JOBS = tuple(option for option in _JOB_OPTIONS if option.name != "suspend")


@maker(
    "cronjob",
    (*_CRON_JOB_SPEC, *_OF_ITS_JOBS),
    """\
# A job a minute, none beside one that still runs, and the last successful one is kept
limit 300s
nodes n1 cpu=4
cronjob tick schedule="* * * * *" zone=Europe/Berlin concurrency=Forbid keep-successful=1 cpu=100m run="exit 0 after 1s"
cronjob never schedule="* * * * *" suspend=true cpu=100m keep-failed=1 starting-deadline=30
wait 130s
expect count jobs name=tick-* status.succeeded=1 == 1
expect created jobs name=tick-* >= 2
expect count jobs name=never-* == 0
""",
)
def cron_job(name: str, options: Options) -> Document:
    """Create a CronJob; its other options are those of `job`."""
    values = _values(options, MAKERS["cronjob"].options, "cronjob")
    of_jobs = {option.name for option in _OF_ITS_JOBS}
    made = job(name, {option: value for option, value in options.items() if option in of_jobs})
    template = {"metadata": {"labels": {"app": name}}, "spec": made["spec"]}
    spec = {"jobTemplate": template} | fields(values, _CRON_JOB_SPEC)
    return {**made, "kind": "CronJob", "spec": spec}


def _resource_metric(resource: str) -> Callable[[str], Document]:
    def read(text: str) -> Document:
        number = text.removesuffix("%")
        target: Document = {"type": "AverageValue", "averageValue": text}
        if number != text:
            if not re.fullmatch(r"[1-9]\d*", number):
                raise ValueError("want a percentage such as 50%")
            target = {"type": "Utilization", "averageUtilization": int(number)}
        else:
            parse_quantity(text)
        return {"type": "Resource", "resource": {"name": resource, "target": target}}

    return read


def _custom_metric(member: str) -> Callable[[str], Document]:
    """Return what reads `METRIC:VALUE`, behind `KIND/NAME:` for one of an object."""

    def read(text: str) -> Document:
        words = text.split(":") if member == "object" else ["", *text.split(":")]
        described, metric, value = words if len(words) == 3 else ("", "", "")
        kind, _, name = described.partition("/")
        resource = next((each for each in resources().values() if each.kind == kind), None)
        if not metric or not value or (member == "object" and (resource is None or not name)):
            raise ValueError(f"{member}={text}: want {'KIND/NAME:' * (member == 'object')}METRIC:VALUE")
        source: Document = {"metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": value}}
        if resource is not None:
            source["describedObject"] = {"apiVersion": resource.api_version, "kind": kind, "name": name}
            source["target"] = {"type": "Value", "value": value}
        return {"type": member.capitalize(), member: source}

    return read


def _window(text: str) -> Document:
    if not re.fullmatch(r"\d+", text):
        raise ValueError("want a whole number of seconds")
    return {"stabilizationWindowSeconds": int(text)}


_METRICS = (
    Option(
        "cpu", as_type("PERCENT|QUANTITY", _resource_metric("cpu")), "CPU that a pod should use", field="spec.metrics"
    ),
    Option(
        "memory",
        as_type("PERCENT|QUANTITY", _resource_metric("memory")),
        "memory that a pod should use",
        field="spec.metrics",
    ),
    Option("pods", as_type("METRIC:AVERAGE", _custom_metric("pods")), "a metric of its pods", field="spec.metrics"),
    Option(
        "object",
        as_type("KIND/NAME:METRIC:VALUE", _custom_metric("object")),
        "a metric of an object",
        field="spec.metrics",
    ),
    Option(
        "external", as_type("METRIC:AVERAGE", _custom_metric("external")), "a metric of neither", field="spec.metrics"
    ),
)
_WINDOWS = (
    Option(
        "up-window",
        as_type("SECONDS", _window),
        "how long it looks back before it scales up",
        otherwise="0",
        field="spec.behavior.scaleUp",
    ),
    Option(
        "down-window",
        as_type("SECONDS", _window),
        "how long it looks back before it scales down",
        otherwise="300",
        field="spec.behavior.scaleDown",
    ),
)
_AUTOSCALER_OPTIONS = (
    Option(
        "target", as_type("KIND/NAME", str), "what it scales", otherwise="Deployment/NAME", field="spec.scaleTargetRef"
    ),
    Option("min", INTEGER, "the fewest replicas", default="1", field="spec.minReplicas"),
    Option("max", COUNT, "the most replicas", default="10", field="spec.maxReplicas"),
    *_METRICS,
    *_WINDOWS,
    _NAMESPACE,
)


@maker(
    "autoscaler",
    _AUTOSCALER_OPTIONS,
    """\
# Pods that use all of their CPU are doubled, and a queue of thirty wants three pods for ten each
nodes n1 cpu=8
deployment web replicas=1 cpu=1
deployment queue replicas=1 cpu=100m
patch deployment/web {"metadata": {"annotations": {"keplab.dev/load": "cpu 1"}}}
autoscaler web max=4 min=1 cpu=50% up-window=0 down-window=0
autoscaler q target=Deployment/queue max=3 memory=1Gi pods=rps:10 object=Service/web:rps:2k external=backlog:30
expect within 90s each deployments name=web spec.replicas == 2
expect each horizontalpodautoscalers name=q spec.scaleTargetRef.name == queue
expect each horizontalpodautoscalers name=q spec.metrics[1].type == Pods
""",
)
def autoscaler(name: str, options: Options) -> Document:
    """Create a HorizontalPodAutoscaler, of the Deployment of its name unless said.

    A percentage is of what pods request.
    """
    values = _values(options, _AUTOSCALER_OPTIONS, "autoscaler")
    kind, _, target = (values["target"] or f"Deployment/{name}").partition("/")
    spec: Document = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
        "minReplicas": values["min"],
        "maxReplicas": values["max"],
        "metrics": [values[each.name] for each in _METRICS if values[each.name] is not None],
    }
    if windows := fields(values, _WINDOWS):
        spec["behavior"] = windows
    return _object("autoscaling/v2/HorizontalPodAutoscaler", name, values, spec, {})


def _port(text: str) -> Document:
    number, _, target = text.partition(":")
    if not re.fullmatch(r"\d+", number):
        raise ValueError("want PORT[:TARGET], for example 80:8080")
    port: Document = {"port": int(number), "protocol": "TCP"}
    if target:
        port["targetPort"] = int(target) if target.isdigit() else target
    return port


_SERVICE_OPTIONS = (
    Option("app", NAME, "the label `app` of its pods", otherwise="NAME", field="spec.selector"),
    Option("port", as_type("PORT[:TARGET]", _port), "its port, and the pods'", default="80", field="spec.ports"),
    Option("headless", FLAG, "whether it has no address of its own", default="false", field="spec.clusterIP"),
    Option(
        "unready",
        FLAG,
        "whether pods that are not Ready are published",
        default="false",
        field="spec.publishNotReadyAddresses",
    ),
    _NAMESPACE,
)


@maker(
    "service",
    _SERVICE_OPTIONS,
    """\
# A service of two pods, and one without an address of its own
nodes n1 cpu=4
deployment web replicas=2 cpu=100m
service web port=80:8080
service peers app=web headless=true unready=true
expect within 15s each endpointslices name=web-* endpoints[1].conditions.ready == true
expect each services name=peers spec.clusterIP == None
expect each services name=web spec.ports[0].targetPort == 8080
""",
)
def service(name: str, options: Options) -> Document:
    """Create a Service of the pods with `app: NAME` unless said."""
    values = _values(options, _SERVICE_OPTIONS, "service")
    spec: Document = {"selector": {"app": values["app"] or name}, "ports": [values["port"]]}
    if values["headless"]:
        spec["clusterIP"] = "None"
    if values["unready"]:
        spec["publishNotReadyAddresses"] = True
    return _object("v1/Service", name, values, spec)
