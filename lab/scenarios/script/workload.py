"""Documents of pods, groups and workloads from the few words of a scenario's line. One function per verb. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.scenarios.script.declaration import (
    Argument,
    Declaration,
    Option,
    check_known,
    fields,
    read_options,
    split_docstring,
)
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
    """A verb that creates an object: `make` returns its document for a name and options."""

    make: Make = lambda name, options: {}


MAKERS: dict[str, Maker] = {}
"""Makers of documents, by the verb that creates the object."""


def maker(name: str, options: Iterable[Option]) -> Callable[[Make], Make]:
    """Make a function the verb of that name; its docstring is the text of the reference."""

    def register(make: Make) -> Make:
        meaning, notes = split_docstring(make.__doc__)
        arguments = (Argument("NAME", "the object's name"),)
        MAKERS[name] = Maker(name, TOPIC, meaning, notes, arguments, tuple(options), make=make)
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
    document: Document = {"key": parts[0], "operator": "Equal" if len(parts) > 1 else "Exists"}
    if len(parts) > 1:
        document["value"] = parts[1]
    if effect:
        document["effect"] = effect
    if seconds is not None:
        document["tolerationSeconds"] = seconds
    return document


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


@maker("pod", POD_OPTIONS)
def pod(name: str, options: Options) -> Document:
    """Create a Pod with one container, `main`.

    Its requests equal its limits (Guaranteed) unless `qos` says otherwise. For other fields of a pod, use
    `apply`.
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
    """Raise ValueError for an option that a resize does not have, or if no option changes anything."""
    check_known(options, RESIZE_OPTIONS, "resize")
    if not options.keys() - {"container"}:
        raise ValueError("resize wants cpu=…, memory=…, cpu-limit=… or memory-limit=…")


def resize_patch(pod: Document, options: Options) -> Document:
    """Return a strategic merge patch that resizes one container of the pod, by default the first.

    A limit that equals its request, as in Guaranteed pods, changes with it unless it is given.
    """
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


@maker("podgroup", _GROUP_OPTIONS)
def pod_group(name: str, options: Options) -> Document:
    """Create a PodGroup; pods join it by `group=NAME`. With `min-count` it is a gang of that many members, else
    basic.
    """
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


@maker("priorityclass", _CLASS_OPTIONS)
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


@maker("replicaset", _REPLICA_SET_OPTIONS)
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


@maker("deployment", _DEPLOYMENT_OPTIONS)
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


@maker("statefulset", _STATEFUL_OPTIONS)
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


@maker("daemonset", _DAEMON_OPTIONS)
def daemon_set(name: str, options: Options) -> Document:
    """Create a DaemonSet; its pods carry `app: NAME`. With `surge`, maxUnavailable defaults to 0."""
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


@maker("job", _JOB_OPTIONS)
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


@maker("cronjob", (*_CRON_JOB_SPEC, *_OF_ITS_JOBS))
def cron_job(name: str, options: Options) -> Document:
    """Create a CronJob; its other options are those of `job`."""
    values = _values(options, MAKERS["cronjob"].options, "cronjob")
    of_jobs = {option.name for option in _OF_ITS_JOBS}
    job_document = job(name, {option: value for option, value in options.items() if option in of_jobs})
    template = {"metadata": {"labels": {"app": name}}, "spec": job_document["spec"]}
    spec = {"jobTemplate": template} | fields(values, _CRON_JOB_SPEC)
    return {**job_document, "kind": "CronJob", "spec": spec}


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


@maker("autoscaler", _AUTOSCALER_OPTIONS)
def autoscaler(name: str, options: Options) -> Document:
    """Create a HorizontalPodAutoscaler, by default for the Deployment of the same name.

    A percentage is relative to the pods' requests.
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


@maker("service", _SERVICE_OPTIONS)
def service(name: str, options: Options) -> Document:
    """Create a Service, by default for the pods with `app: NAME`."""
    values = _values(options, _SERVICE_OPTIONS, "service")
    spec: Document = {"selector": {"app": values["app"] or name}, "ports": [values["port"]]}
    if values["headless"]:
        spec["clusterIP"] = "None"
    if values["unready"]:
        spec["publishNotReadyAddresses"] = True
    return _object("v1/Service", name, values, spec)
