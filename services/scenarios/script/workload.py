"""Documents from a few words: the pods, groups and workloads that scenarios are about. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.api.meta import Document
from services.api.resources import resources

Options = Mapping[str, str]
Fields = Mapping[str, tuple[str, Callable[[str], Any]]]
"""By option, the field that it sets and how its text is read."""


def pairs(text: str) -> dict[str, str]:
    """Return `a:b,c:d` as a dict. Raises: ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition(":")
        if not sign:
            raise ValueError(f"{part!r}: want key:value")
        found[key] = value
    return found


def fields(options: Options, table: Fields) -> Document:
    """Return what the options set, in the table's order; lists of options that set the same field are joined."""
    made: Document = {}
    for option, (field, read) in table.items():
        if option in options:
            value = read(options[option])
            made[field] = [*made[field], *value] if field in made else value
    return made


def check(options: Options, known: Iterable[str], what: str) -> None:
    """Raise ValueError for an option that is not known."""
    for name in options:
        if name not in known:
            raise ValueError(f"{what} has no option {name!r}; there are: {', '.join(sorted(known))}")


def is_true(text: str) -> bool:
    """Whether an option says so."""
    return text == "true"


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


def _number_or_percent(text: str) -> int | str:
    return text if text.endswith("%") else int(text)


_POD_SPEC: Fields = {
    "node": ("nodeName", str),
    "node-selector": ("nodeSelector", pairs),
    "priority": ("priority", int),
    "priority-class": ("priorityClassName", str),
    "gates": ("schedulingGates", lambda text: [{"name": gate} for gate in text.split(",")]),
    "group": ("schedulingGroup", lambda text: {"podGroupName": text}),
    "tolerate": ("tolerations", lambda text: [toleration(each) for each in text.split(",")]),
    "restart": ("restartPolicy", str),
    "claims": ("resourceClaims", lambda text: [{"name": c, "resourceClaimName": c} for c in text.split(",")]),
    "claim-templates": (
        "resourceClaims",
        lambda text: [{"name": t, "resourceClaimTemplateName": t} for t in text.split(",")],
    ),
    "grace": ("terminationGracePeriodSeconds", int),
    "scheduler": ("schedulerName", str),
}
_POD_OPTIONS = frozenset(_POD_SPEC) | frozenset(
    ["cpu", "memory", "qos", "image", "labels", "run", "namespace", "finalizers", "extended", "resize-policy"]
)


def pod_template(options: Options, labels: Mapping[str, str]) -> Document:
    """Return `{metadata, spec}`. Requests equal limits (Guaranteed) unless qos=burstable or besteffort."""
    requests = {k: options[k] for k in ("cpu", "memory") if k in options} | pairs(options.get("extended", ""))
    qos = options.get("qos", "guaranteed")
    resources: Document = {}
    if qos != "besteffort" and requests:
        if qos == "guaranteed":
            requests.setdefault("memory", "1Gi")
            resources = {"requests": dict(requests), "limits": dict(requests)}
        elif qos == "burstable":
            resources = {"requests": dict(requests)}
        else:
            raise ValueError(f"qos={qos}: want guaranteed, burstable or besteffort")
    image = options.get("image", "registry.k8s.io/pause:3.10")
    container: Document = {"name": "main", "image": image, "resources": resources}
    if "resize-policy" in options:
        policies = pairs(options["resize-policy"]).items()
        container["resizePolicy"] = [{"resourceName": name, "restartPolicy": policy} for name, policy in policies]
    metadata: Document = {"labels": {**labels, **pairs(options.get("labels", ""))}}
    if "run" in options:
        metadata["annotations"] = {"keplab.dev/run": options["run"]}
    if "finalizers" in options:
        metadata["finalizers"] = options["finalizers"].split(",")
    return {"metadata": metadata, "spec": {"containers": [container]} | fields(options, _POD_SPEC)}


def pod(name: str, options: Options) -> Document:
    """`pod NAME cpu=… …`: return a Pod. Raises: ValueError for an unknown option."""
    check(options, _POD_OPTIONS, "a pod")
    template = pod_template(options, {})
    template["metadata"] |= {"name": name, "namespace": options.get("namespace", "default")}
    return {"apiVersion": "v1", "kind": "Pod", **template}


def check_resize(options: Options) -> None:
    """Raise ValueError for an option that a resize does not have, or when none says what to change."""
    check(options, ("cpu", "memory", "cpu-limit", "memory-limit", "container"), "a resize")
    if not options.keys() - {"container"}:
        raise ValueError("a resize wants cpu=…, memory=…, cpu-limit=… or memory-limit=…")


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


def _object(kind: str, name: str, options: Options, spec: Document, labels: Document | None = None) -> Document:
    """Return an object of `GROUP/VERSION/KIND`."""
    version, _, kind = kind.rpartition("/")
    metadata = {"name": name, "namespace": options.get("namespace", "default")} | ({"labels": labels} if labels else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def pod_group(name: str, options: Options) -> Document:
    """`podgroup NAME [min-count=N] [priority-class=…] [mode=all]`: return a PodGroup; pods say `group=NAME`. It is a
    gang of `min-count` members, or basic without. Raises: ValueError for an unknown option."""
    check(options, ("min-count", "priority-class", "mode", "namespace"), "a podgroup")
    count = options.get("min-count")
    spec: Document = {"schedulingPolicy": {"basic": {}} if count is None else {"gang": {"minCount": int(count)}}}
    if "priority-class" in options:
        spec["priorityClassName"] = options["priority-class"]
    if "mode" in options:
        spec["disruptionMode"] = {options["mode"]: {}}
    return _object("scheduling.k8s.io/v1beta1/PodGroup", name, options, spec)


def priority_class(name: str, options: Options) -> Document:
    """`priorityclass NAME value=N [preempts=false] [default=true]`: return a PriorityClass. Raises: ValueError."""
    check(options, ("value", "preempts", "default"), "a priorityclass")
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": int(options.get("value", "0")),
        "preemptionPolicy": "Never" if options.get("preempts") == "false" else "PreemptLowerPriority",
        "globalDefault": options.get("default") == "true",
    }


def _replicas(options: Options) -> Document:
    return {"replicas": int(options.get("replicas", "1")), "minReadySeconds": int(options.get("min-ready", "0"))}


def _pods(labels: Document, options: Options) -> Document:
    return {"selector": {"matchLabels": labels}, "template": pod_template(options, labels)}


_SET_OPTIONS = _POD_OPTIONS | {"replicas", "surge", "unavailable", "strategy", "min-ready"}


def replica_set(name: str, options: Options, *, kind: str = "ReplicaSet") -> Document:
    """`replicaset NAME replicas=… …`: return a ReplicaSet, its pods with `app: <name>`. Raises: ValueError."""
    check(options, _SET_OPTIONS, "a replicaset")
    labels = {"app": name}
    spec = _replicas(options) | _pods(labels, options)
    return _object(f"apps/v1/{kind}", name, options, spec, labels)


def deployment(name: str, options: Options) -> Document:
    """`deployment NAME replicas=… …`: return a Deployment, its pods with `app: <name>`. Raises: ValueError."""
    document = replica_set(name, options, kind="Deployment")
    strategy: Document = {"type": options.get("strategy", "RollingUpdate")}
    if strategy["type"] == "RollingUpdate":
        strategy |= _rolling_update(options, "25%")
    document["spec"]["strategy"] = strategy
    return document


def _rolling_update(options: Options, unsaid: str) -> Document:
    """Return `{rollingUpdate}` when the options say how many pods may be too many or too few; else nothing."""
    if "surge" not in options and "unavailable" not in options:
        return {}
    surge, unavailable = (_number_or_percent(options.get(option, unsaid)) for option in ("surge", "unavailable"))
    return {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


_STATEFUL_SPEC: Fields = {"policy": ("podManagementPolicy", str)}
_STATEFUL_UPDATE: Fields = {"partition": ("partition", int), "unavailable": ("maxUnavailable", _number_or_percent)}
_STATEFUL_RETENTION: Fields = {"when-deleted": ("whenDeleted", str), "when-scaled": ("whenScaled", str)}
_STATEFUL_TABLES = (*_STATEFUL_SPEC, *_STATEFUL_UPDATE, *_STATEFUL_RETENTION)
_STATEFUL_OPTIONS = _POD_OPTIONS | {"replicas", "min-ready", "strategy", "start", "storage", *_STATEFUL_TABLES}


def stateful_set(name: str, options: Options) -> Document:
    """`statefulset NAME replicas=… [policy=Parallel] [storage=SIZE[:CLASS]] …`: return a StatefulSet. Its pods carry
    `app: <name>`; `storage` gives each a claim named `data`. Raises: ValueError for an unknown option."""
    check(options, _STATEFUL_OPTIONS, "a statefulset")
    labels = {"app": name}
    spec = _replicas(options) | {"serviceName": name} | _pods(labels, options) | fields(options, _STATEFUL_SPEC)
    strategy: Document = {"type": options["strategy"]} if "strategy" in options else {}
    if numbers := fields(options, _STATEFUL_UPDATE):
        strategy["rollingUpdate"] = numbers
    if strategy:
        spec["updateStrategy"] = strategy
    if "start" in options:
        spec["ordinals"] = {"start": int(options["start"])}
    if "storage" in options:
        size, _, storage_class = options["storage"].partition(":")
        claim: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        if storage_class:
            claim["storageClassName"] = storage_class
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    if retention := fields(options, _STATEFUL_RETENTION):
        spec["persistentVolumeClaimRetentionPolicy"] = retention
    return _object("apps/v1/StatefulSet", name, options, spec, labels)


_DAEMON_OPTIONS = _POD_OPTIONS | {"surge", "unavailable", "strategy", "min-ready", "history", "host-network"}


def daemon_set(name: str, options: Options) -> Document:
    """`daemonset NAME [unavailable=…] [surge=…] [strategy=OnDelete] …`: return a DaemonSet. Its pods carry `app:
    <name>`; with `surge` none is unavailable unless said. Raises: ValueError for an unknown option."""
    check(options, _DAEMON_OPTIONS, "a daemonset")
    labels = {"app": name}
    spec: Document = {"minReadySeconds": int(options.get("min-ready", "0"))} | _pods(labels, options)
    if options.get("host-network") == "true":
        spec["template"]["spec"]["hostNetwork"] = True
    if "history" in options:
        spec["revisionHistoryLimit"] = int(options["history"])
    strategy: Document = {"type": options["strategy"]} if "strategy" in options else {}
    if strategy := strategy | _rolling_update(options, "0"):
        spec["updateStrategy"] = strategy
    return _object("apps/v1/DaemonSet", name, options, spec, labels)


_JOB_SPEC: Fields = {
    "completions": ("completions", int),
    "parallelism": ("parallelism", int),
    "backoff-limit": ("backoffLimit", int),
    "deadline": ("activeDeadlineSeconds", int),
    "ttl": ("ttlSecondsAfterFinished", int),
    "backoff-limit-per-index": ("backoffLimitPerIndex", int),
    "max-failed-indexes": ("maxFailedIndexes", int),
    "suspend": ("suspend", is_true),
    "replacement": ("podReplacementPolicy", str),
}
_JOB_OPTIONS = _POD_OPTIONS | _JOB_SPEC.keys() | {"indexed", "on-failure", "on-exit"}


def job(name: str, options: Options) -> Document:
    """`job NAME [completions=N] [parallelism=N] [backoff-limit=N] …`: return a Job.

    Its pods carry `app: <name>` and never restart unless `restart` says so.
    `on-failure=Ignore:DisruptionTarget,…` and `on-exit=FailJob:42,…` are rules of a podFailurePolicy.
    Raises: ValueError for an unknown option.
    """
    check(options, _JOB_OPTIONS, "a job")
    labels = {"app": name}
    spec: Document = {"template": pod_template({"restart": "Never", **options}, labels)} | fields(options, _JOB_SPEC)
    if options.get("indexed") == "true":
        spec["completionMode"] = "Indexed"
    conditions, codes = (pairs(options.get(option, "")).items() for option in ("on-failure", "on-exit"))
    rules: list[Document] = [{"action": action, "onPodConditions": [{"type": kind}]} for action, kind in conditions]
    for action, code in codes:
        rules.append({"action": action, "onExitCodes": {"operator": "In", "values": [int(code)]}})
    if rules:
        spec["podFailurePolicy"] = {"rules": rules}
    return _object("batch/v1/Job", name, options, spec, labels)


_CRON_JOB_SPEC: Fields = {
    "schedule": ("schedule", str),
    "zone": ("timeZone", str),
    "concurrency": ("concurrencyPolicy", str),
    "starting-deadline": ("startingDeadlineSeconds", int),
    "keep-successful": ("successfulJobsHistoryLimit", int),
    "keep-failed": ("failedJobsHistoryLimit", int),
    "suspend": ("suspend", is_true),
}


def cron_job(name: str, options: Options) -> Document:
    """`cronjob NAME schedule="*/5 * * * *" [zone=…] [concurrency=Forbid] …`: return a CronJob.

    Other options are those of `job`. Raises: ValueError for an unknown option.
    """
    made = job(name, {option: value for option, value in options.items() if option not in _CRON_JOB_SPEC})
    template = {"metadata": {"labels": {"app": name}}, "spec": made["spec"]}
    spec = {"jobTemplate": template} | fields(options, _CRON_JOB_SPEC)
    return {**made, "kind": "CronJob", "spec": spec}


_WINDOWS = {"up-window": "scaleUp", "down-window": "scaleDown"}
_CUSTOM = ("pods", "object", "external")
_AUTOSCALER_OPTIONS = ("target", "min", "max", "cpu", "memory", "namespace", *_CUSTOM, *_WINDOWS)


def autoscaler(name: str, options: Options) -> Document:
    """`autoscaler NAME max=10 [min=1] [target=Deployment/NAME] [cpu=50%|500m] [memory=…] [down-window=60] …`.

    Return a HorizontalPodAutoscaler of a Deployment of its name unless said; a percentage is of what pods request.
    Custom metrics: `pods=METRIC:AVERAGE`, `external=METRIC:AVERAGE`, `object=KIND/NAME:METRIC:VALUE`.
    Raises: ValueError for an unknown option or a metric of another form.
    """
    check(options, _AUTOSCALER_OPTIONS, "an autoscaler")
    kind, _, target = options.get("target", f"Deployment/{name}").partition("/")
    metrics = []
    for resource in ("cpu", "memory"):
        if text := options.get(resource):
            number = text.removesuffix("%")
            wanted: Document = {"type": "AverageValue", "averageValue": text}
            if number != text:
                wanted = {"type": "Utilization", "averageUtilization": int(number)}
            metrics.append({"type": "Resource", "resource": {"name": resource, "target": wanted}})
    metrics += [_custom_metric(each, options[each]) for each in _CUSTOM if each in options]
    spec: Document = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
        "minReplicas": int(options.get("min", "1")),
        "maxReplicas": int(options["max"]) if "max" in options else 10,
        "metrics": metrics,
    }
    windows = {rules: {"stabilizationWindowSeconds": int(options[o])} for o, rules in _WINDOWS.items() if o in options}
    if windows:
        spec["behavior"] = windows
    return _object("autoscaling/v2/HorizontalPodAutoscaler", name, options, spec, {})


def _custom_metric(member: str, text: str) -> Document:
    """Return the metric that `METRIC:VALUE` means, behind `KIND/NAME:` for one of an object. Raises: ValueError."""
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


def service(name: str, options: Options) -> Document:
    """`service NAME [app=…] [port=80[:8080]] [headless=true] [unready=true]`: return a Service of the pods with `app:
    <name>` unless said; `unready` publishes those as well that are not ready. Raises: ValueError for an unknown option.
    """
    check(options, ("app", "port", "headless", "unready", "namespace"), "a service")
    number, _, target = options.get("port", "80").partition(":")
    port: Document = {"port": int(number), "protocol": "TCP"}
    if target:
        port["targetPort"] = int(target) if target.isdigit() else target
    spec: Document = {"selector": {"app": options.get("app", name)}, "ports": [port]}
    if options.get("headless") == "true":
        spec["clusterIP"] = "None"
    if options.get("unready") == "true":
        spec["publishNotReadyAddresses"] = True
    return _object("v1/Service", name, options, spec)


MAKERS: Mapping[str, Callable[[str, Options], Document]] = {
    "pod": pod,
    "replicaset": replica_set,
    "deployment": deployment,
    "statefulset": stateful_set,
    "daemonset": daemon_set,
    "job": job,
    "cronjob": cron_job,
    "autoscaler": autoscaler,
    "service": service,
    "podgroup": pod_group,
    "priorityclass": priority_class,
}
"""By the verb that creates it, what makes the document."""
