"""Documents from a few words: the pods, ReplicaSets and nodes that scenarios are about. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from services.api.meta import Document
from services.scenarios.script.node_managers import MANAGER_OPTIONS, managers
from services.scenarios.script.scenario import parse_duration

_POD_OPTIONS = frozenset(
    (
        "cpu",
        "memory",
        "qos",
        "image",
        "labels",
        "node",
        "node-selector",
        "priority",
        "priority-class",
        "gates",
        "group",
        "claims",
        "claim-templates",
        "tolerate",
        "run",
        "restart",
        "grace",
        "namespace",
        "finalizers",
        "scheduler",
        "extended",
        "resize-policy",
    )
)
_SET_OPTIONS = _POD_OPTIONS | {"replicas", "surge", "unavailable", "strategy", "min-ready"}


def pairs(text: str) -> dict[str, str]:
    """Return `a:b,c:d` as a dict. Raises: ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition(":")
        if not sign:
            raise ValueError(f"{part!r}: want key:value")
        found[key] = value
    return found


def toleration(text: str) -> Document:
    """Return a toleration of `key[:value]:effect[:seconds]`; `*` tolerates everything."""
    if text == "*":
        return {"operator": "Exists"}
    parts = text.split(":")
    seconds = int(parts.pop()) if parts[-1].isdigit() else None
    effect = parts.pop() if len(parts) > 1 else ""
    made: Document = {"key": parts[0], "operator": "Equal" if len(parts) > 1 else "Exists"}
    if len(parts) > 1:
        made["value"] = parts[1]
    if effect:
        made["effect"] = effect
    if seconds is not None:
        made["tolerationSeconds"] = seconds
    return made


def _check(options: Mapping[str, str], known: frozenset[str], what: str) -> None:
    for name in options:
        if name not in known:
            raise ValueError(f"{what} has no option {name!r}; there are: {', '.join(sorted(known))}")


def pod_template(options: Mapping[str, str], labels: Mapping[str, str]) -> Document:
    """Return `{metadata, spec}`. Requests equal limits (Guaranteed) unless qos=burstable or besteffort."""
    requests = {k: options[k] for k in ("cpu", "memory") if k in options}
    requests |= pairs(options.get("extended", ""))
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
    spec: Document = {
        "containers": [
            {"name": "main", "image": options.get("image", "registry.k8s.io/pause:3.10"), "resources": resources}
        ]
    }
    if "resize-policy" in options:
        spec["containers"][0]["resizePolicy"] = [
            {"resourceName": name, "restartPolicy": policy} for name, policy in pairs(options["resize-policy"]).items()
        ]
    if "node" in options:
        spec["nodeName"] = options["node"]
    if "node-selector" in options:
        spec["nodeSelector"] = pairs(options["node-selector"])
    if "priority" in options:
        spec["priority"] = int(options["priority"])
    if "priority-class" in options:
        spec["priorityClassName"] = options["priority-class"]
    if "gates" in options:
        spec["schedulingGates"] = [{"name": gate} for gate in options["gates"].split(",")]
    if "group" in options:
        spec["schedulingGroup"] = {"podGroupName": options["group"]}
    if "tolerate" in options:
        spec["tolerations"] = [toleration(text) for text in options["tolerate"].split(",")]
    if "restart" in options:
        spec["restartPolicy"] = options["restart"]
    if "claims" in options:
        spec["resourceClaims"] = [{"name": c, "resourceClaimName": c} for c in options["claims"].split(",")]
    if "claim-templates" in options:
        made = [{"name": t, "resourceClaimTemplateName": t} for t in options["claim-templates"].split(",")]
        spec["resourceClaims"] = [*spec.get("resourceClaims", ()), *made]
    if "grace" in options:
        spec["terminationGracePeriodSeconds"] = int(options["grace"])
    if "scheduler" in options:
        spec["schedulerName"] = options["scheduler"]
    metadata: Document = {"labels": {**labels, **pairs(options.get("labels", ""))}}
    if "run" in options:
        metadata["annotations"] = {"keplab.dev/run": options["run"]}
    if "finalizers" in options:
        metadata["finalizers"] = options["finalizers"].split(",")
    return {"metadata": metadata, "spec": spec}


def pod(name: str, options: Mapping[str, str]) -> Document:
    """Return a Pod. Raises: ValueError for an unknown option."""
    _check(options, _POD_OPTIONS, "a pod")
    template = pod_template(options, {})
    template["metadata"] |= {"name": name, "namespace": options.get("namespace", "default")}
    return {"apiVersion": "v1", "kind": "Pod", **template}


_RESIZE_OPTIONS = frozenset(("cpu", "memory", "cpu-limit", "memory-limit", "container"))


def check_resize(options: Mapping[str, str]) -> None:
    """Raise ValueError for an option that a resize does not have, or when none says what to change."""
    _check(options, _RESIZE_OPTIONS, "a resize")
    if not options.keys() - {"container"}:
        raise ValueError("a resize wants cpu=…, memory=…, cpu-limit=… or memory-limit=…")


def resized(pod: Document, options: Mapping[str, str]) -> Document:
    """Return a strategic merge patch that resizes one container of the pod, the first unless named.

    A limit that is equal to its request, as Guaranteed pods have it, goes with it unless it is said.
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


_GROUP_OPTIONS = frozenset(("min-count", "priority-class", "mode", "namespace"))


def pod_group(name: str, options: Mapping[str, str]) -> Document:
    """Return a PodGroup: a gang of `min-count` members, or basic without. Raises: ValueError for an unknown option."""
    _check(options, _GROUP_OPTIONS, "a podgroup")
    count = options.get("min-count")
    spec: Document = {"schedulingPolicy": {"basic": {}} if count is None else {"gang": {"minCount": int(count)}}}
    if "priority-class" in options:
        spec["priorityClassName"] = options["priority-class"]
    if "mode" in options:
        spec["disruptionMode"] = {options["mode"]: {}}
    metadata = {"name": name, "namespace": options.get("namespace", "default")}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def priority_class(name: str, options: Mapping[str, str]) -> Document:
    """Return a PriorityClass of that `value`. Raises: ValueError for an unknown option."""
    _check(options, frozenset(("value", "preempts", "default")), "a priorityclass")
    policy = "Never" if options.get("preempts") == "false" else "PreemptLowerPriority"
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": int(options.get("value", "0")),
        "preemptionPolicy": policy,
        "globalDefault": options.get("default") == "true",
    }


def replica_set(name: str, options: Mapping[str, str]) -> Document:
    """Return a ReplicaSet whose pods carry `app: <name>`. Raises: ValueError for an unknown option."""
    _check(options, _SET_OPTIONS, "a replicaset")
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": options.get("namespace", "default"), "labels": labels},
        "spec": {
            "replicas": int(options.get("replicas", "1")),
            "minReadySeconds": int(options.get("min-ready", "0")),
            "selector": {"matchLabels": labels},
            "template": pod_template(options, labels),
        },
    }


def deployment(name: str, options: Mapping[str, str]) -> Document:
    """Return a Deployment whose pods carry `app: <name>`. Raises: ValueError for an unknown option."""
    document = replica_set(name, options)
    document["kind"] = "Deployment"
    strategy: Document = {"type": options.get("strategy", "RollingUpdate")}
    if strategy["type"] == "RollingUpdate" and ("surge" in options or "unavailable" in options):
        strategy["rollingUpdate"] = {
            "maxSurge": _number_or_percent(options.get("surge", "25%")),
            "maxUnavailable": _number_or_percent(options.get("unavailable", "25%")),
        }
    document["spec"]["strategy"] = strategy
    return document


_STATEFUL_OPTIONS = _POD_OPTIONS | {
    "replicas", "min-ready", "policy", "strategy", "partition", "unavailable", "start", "storage", "when-deleted",
    "when-scaled",
}  # fmt: skip


def stateful_set(name: str, options: Mapping[str, str]) -> Document:
    """Return a StatefulSet whose pods carry `app: <name>`; `storage=SIZE[:CLASS]` gives each a claim named `data`.

    Raises: ValueError for an unknown option.
    """
    _check(options, _STATEFUL_OPTIONS, "a statefulset")
    labels = {"app": name}
    spec: Document = {
        "replicas": int(options.get("replicas", "1")),
        "minReadySeconds": int(options.get("min-ready", "0")),
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": pod_template(options, labels),
    }
    if "policy" in options:
        spec["podManagementPolicy"] = options["policy"]
    strategy: Document = {"type": options["strategy"]} if "strategy" in options else {}
    numbers: Document = {"partition": int(options["partition"])} if "partition" in options else {}
    if "unavailable" in options:
        numbers["maxUnavailable"] = _number_or_percent(options["unavailable"])
    if strategy or numbers:
        spec["updateStrategy"] = {**strategy, **({"rollingUpdate": numbers} if numbers else {})}
    if "start" in options:
        spec["ordinals"] = {"start": int(options["start"])}
    if "storage" in options:
        size, _, storage_class = options["storage"].partition(":")
        claim: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        if storage_class:
            claim["storageClassName"] = storage_class
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    kept = {"when-deleted": "whenDeleted", "when-scaled": "whenScaled"}
    if retention := {field: options[option] for option, field in kept.items() if option in options}:
        spec["persistentVolumeClaimRetentionPolicy"] = retention
    metadata = {"name": name, "namespace": options.get("namespace", "default"), "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _number_or_percent(text: str) -> int | str:
    return text if text.endswith("%") else int(text)


_DAEMON_OPTIONS = _POD_OPTIONS | {"surge", "unavailable", "strategy", "min-ready", "history", "host-network"}


def daemon_set(name: str, options: Mapping[str, str]) -> Document:
    """Return a DaemonSet whose pods carry `app: <name>`; with `surge` none is unavailable unless said.

    Raises: ValueError for an unknown option.
    """
    _check(options, _DAEMON_OPTIONS, "a daemonset")
    labels = {"app": name}
    spec: Document = {
        "minReadySeconds": int(options.get("min-ready", "0")),
        "selector": {"matchLabels": labels},
        "template": pod_template(options, labels),
    }
    if options.get("host-network") == "true":
        spec["template"]["spec"]["hostNetwork"] = True
    if "history" in options:
        spec["revisionHistoryLimit"] = int(options["history"])
    strategy: Document = {"type": options["strategy"]} if "strategy" in options else {}
    if "surge" in options or "unavailable" in options:
        strategy["rollingUpdate"] = {
            "maxSurge": _number_or_percent(options.get("surge", "0")),
            "maxUnavailable": _number_or_percent(options.get("unavailable", "0")),
        }
    if strategy:
        spec["updateStrategy"] = strategy
    metadata = {"name": name, "namespace": options.get("namespace", "default"), "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


_JOB_OPTIONS = _POD_OPTIONS | {
    "completions", "parallelism", "backoff-limit", "deadline", "ttl", "indexed", "suspend", "replacement",
    "backoff-limit-per-index", "max-failed-indexes", "on-failure", "on-exit",
}  # fmt: skip
_JOB_NUMBERS = {
    "completions": "completions", "parallelism": "parallelism", "backoff-limit": "backoffLimit",
    "deadline": "activeDeadlineSeconds", "ttl": "ttlSecondsAfterFinished",
    "backoff-limit-per-index": "backoffLimitPerIndex", "max-failed-indexes": "maxFailedIndexes",
}  # fmt: skip


def job(name: str, options: Mapping[str, str]) -> Document:
    """Return a Job whose pods carry `app: <name>`; they never restart unless `restart` says so.

    `on-failure=Ignore:DisruptionTarget,…` and `on-exit=FailJob:42,…` are rules of a podFailurePolicy.
    Raises: ValueError for an unknown option.
    """
    _check(options, _JOB_OPTIONS, "a job")
    spec: Document = {"template": pod_template({"restart": "Never", **options}, {"app": name})}
    spec |= {field: int(options[option]) for option, field in _JOB_NUMBERS.items() if option in options}
    if options.get("indexed") == "true":
        spec["completionMode"] = "Indexed"
    if "suspend" in options:
        spec["suspend"] = options["suspend"] == "true"
    if "replacement" in options:
        spec["podReplacementPolicy"] = options["replacement"]
    rules: list[Document] = [
        {"action": action, "onPodConditions": [{"type": kind}]}
        for action, kind in pairs(options.get("on-failure", "")).items()
    ]
    for action, code in pairs(options.get("on-exit", "")).items():
        rules.append({"action": action, "onExitCodes": {"operator": "In", "values": [int(code)]}})
    if rules:
        spec["podFailurePolicy"] = {"rules": rules}
    metadata = {"name": name, "namespace": options.get("namespace", "default"), "labels": {"app": name}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


_NODE_OPTIONS = frozenset(
    (
        "cpu",
        "memory",
        "pods",
        "extended",
        "labels",
        "taints",
        "zone",
        "region",
        "numa",
        "devices",
        *MANAGER_OPTIONS,
        "drivers",
        "faults",
        "images",
        "pulls",
        "plugins",
        "plugin-topology",
        "plugin-options",
        "plugin-delay",
        "device-socket",
        "shutdown",
        "kube-reserved",
        "system-reserved",
        "evict-below",
        "app-armor",
        "groups-policy",
        "feature-gates",
        "declared-features",
        "disk",
        "image-gc",
        "attachable-volumes",
        "restart-max",
    )
)


def node_definition(name: str, options: Mapping[str, str]) -> Document:
    """Return a node definition as `kubelet/config.py` reads it.

    `numa=2x8` is two NUMA nodes of 8 CPUs each; `cpu` defaults to their sum. `devices=example.com/gpu:2` puts two
    devices on every NUMA node. The configuration of resource managers: `node_managers.py`.
    `plugins=example.com/gpu:4` gives the node an emulated device plugin with four devices, `plugin-topology=0,0,1,1`
    says where they are, `plugin-options=pairs+pre-start` what it wants, `plugin-delay=20s` how long it takes to
    register again; `device-socket=true` lets others register. `restart-max=5s` is the longest crash-loop back-off.
    Raises: ValueError for an unknown option.
    """
    _check(options, _NODE_OPTIONS, "a node")
    made: Document = {"name": name, "memory": options.get("memory", "64Gi"), "pods": int(options.get("pods", "110"))}
    if "numa" in options:
        count, sign, cpus = options["numa"].partition("x")
        if not sign or not count.isdigit() or not cpus.isdigit():
            raise ValueError(f"numa={options['numa']}: want COUNTxCPUS, for example 2x8")
        devices = {k: int(v) for k, v in pairs(options.get("devices", "")).items()}
        made["numa"] = [{"cpus": int(cpus), "devices": devices} for _ in range(int(count))]
        made["cpu"] = options.get("cpu", str(int(count) * int(cpus)))
    else:
        made["cpu"] = options.get("cpu", "8")
    made |= managers(options)
    if "extended" in options:
        made["extended"] = pairs(options["extended"])
    if "labels" in options:
        made["labels"] = pairs(options["labels"])
    if "taints" in options:
        made["taints"] = [_taint(text) for text in options["taints"].split(",")]
    for option, field in (("zone", "zone"), ("region", "region")):
        if option in options:
            made[field] = options[option]
    for option, field in (("kube-reserved", "kubeReserved"), ("system-reserved", "systemReserved")):
        if option in options:
            made[field] = pairs(options[option])
    for option, field in (("app-armor", "appArmor"), ("groups-policy", "supplementalGroupsPolicy")):
        if option in options:
            made[field] = options[option]
    if "disk" in options:
        made["ephemeralStorage"] = options["disk"]
    if "attachable-volumes" in options:
        made["attachableVolumes"] = options["attachable-volumes"]
    if "restart-max" in options:
        made["maxContainerRestartPeriod"] = parse_duration(options["restart-max"])
    if "image-gc" in options:
        high, sign, low = options["image-gc"].partition("/")
        if not (sign and high.isdigit() and low.isdigit()):
            raise ValueError(f"image-gc={options['image-gc']}: want HIGH/LOW in percent of the disk, for example 85/80")
        made["imageGCHighThresholdPercent"], made["imageGCLowThresholdPercent"] = int(high), int(low)
    if "feature-gates" in options:
        made["featureGates"] = pairs(options["feature-gates"])
    if "declared-features" in options:
        made["declaredFeatures"] = options["declared-features"].split(",")
    if "evict-below" in options:
        made["eviction"] = {"hard": pairs(options["evict-below"])}
    if "shutdown" in options:
        total, _, critical = options["shutdown"].partition("/")
        made["shutdownGracePeriod"] = float(total.removesuffix("s"))
        made["shutdownGracePeriodCriticalPods"] = float((critical or "0").removesuffix("s"))
    if "images" in options:
        made["images"] = {}
        for each in options["images"].split(","):
            name, sign, size = each.rpartition("=")
            if not sign:
                raise ValueError(f"images={each}: want NAME=SIZE, for example shop:2=500Mi")
            made["images"][name] = size
    if (pulls := options.get("pulls", "serial")) != "serial":
        if pulls != "parallel" and not pulls.isdigit():
            raise ValueError(f"pulls={pulls}: want serial, parallel or a number of pulls at once")
        made["serializeImagePulls"] = False
        made["maxParallelImagePulls"] = int(pulls) if pulls.isdigit() else 0
    if "faults" in options:
        made["startFaults"] = options["faults"]
    if "drivers" in options:
        made["drivers"] = options["drivers"]
    return made | _device_plugins(options)


_PLUGIN_OPTIONS = ("pairs", "spread", "pre-start")


def _device_plugins(options: Mapping[str, str]) -> Document:
    """Return what a node definition says of device plugins: the same for all of the node's."""
    chosen = [option for option in options.get("plugin-options", "").split("+") if option]
    if unknown := [option for option in chosen if option not in _PLUGIN_OPTIONS]:
        raise ValueError(f"plugin-options={options['plugin-options']}: {unknown[0]}, want {', '.join(_PLUGIN_OPTIONS)}")
    shared: Document = {}
    if topology := options.get("plugin-topology", ""):
        shared["topology"] = [int(numa) for numa in topology.split(",")]
    if preferred := [option for option in chosen if option != "pre-start"]:
        shared["preferred"] = preferred[0]
    if "pre-start" in chosen:
        shared["preStart"] = True
    if "plugin-delay" in options:
        shared["delayS"] = parse_duration(options["plugin-delay"])
    made: Document = {}
    if "plugins" in options:
        made["devicePlugins"] = [
            {"resource": resource, "devices": int(count), **shared}
            for resource, count in pairs(options["plugins"]).items()
        ]
    elif shared:
        raise ValueError(f"{', '.join(o for o in options if o.startswith('plugin-'))}: there are no plugins=")
    if "device-socket" in options:
        made["deviceSocket"] = options["device-socket"] == "true"
    return made


def _taint(text: str) -> Document:
    key, _, effect = text.rpartition(":")
    name, _, value = key.partition("=")
    if not name or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ValueError(f"taints={text}: want KEY[=VALUE]:EFFECT")
    return {"key": name, "effect": effect, **({"value": value} if value else {})}
