"""Warnings to clients about accepted writes: fields that are deprecated, ignored, or have an unexpected
meaning.

Each kind has a function; `of` finds it by wire name. Only clients from outside are warned. The texts are
upstream's. Source: upstream `pkg/api/pod/warnings.go`, `pkg/api/node/util.go`, `pkg/api/service/warnings.go`,
`pkg/api/job/warnings.go`, `pkg/api/persistentvolume/util.go`, `pkg/api/persistentvolumeclaim/util.go`, and
`WarningsOnCreate` of the strategies in `pkg/registry`.
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import Any

from apiserver_fake.registry.validation.formats import label
from services.api.meta import Document
from services.api.quantity import milli

Warnings = Callable[[Document | None, Document], Iterable[str]]

_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_POD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_APPARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_TOPOLOGY_HINTS, _TOPOLOGY_MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_ENVIRONMENT = "env"
INDEXES_MAX, PARALLEL_MAX = 100_000, 10_000


def of(resource: str, old: Document | None, new: Document) -> list[str]:
    """Return the warnings about a write that is accepted, each once."""
    found = WARNINGS.get(resource)
    return [] if found is None else list(dict.fromkeys(found(old, new)))


# -- pods


def _pod(old: Document | None, new: Document) -> Iterator[str]:
    # People seldom write pods that exist, so nothing is said about updates.
    if old is not None:
        return
    yield from _name(new, "the Pod's hostname")
    yield from _pod_spec(new.get("spec") or {}, new["metadata"], "", is_template=False)


def _name(new: Document, what: str) -> Iterator[str]:
    name = new["metadata"].get("name") or ""
    faults = [cause.message.partition(": ")[2].partition(": ")[2] for cause in label("metadata.name", name)]
    if faults:
        yield (
            f"metadata.name: this is used in {what}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(faults)}]"
        )


def _template(template: Document, path: str) -> Iterator[str]:
    yield from _pod_spec(template.get("spec") or {}, template.get("metadata") or {}, f"{path}.", is_template=True)


def _pod_spec(spec: Document, meta: Document, at: str, *, is_template: bool) -> Iterator[str]:
    annotations = meta.get("annotations") or {}
    yield from _placement(spec, f"{at}spec")
    for key, text in _POD_ANNOTATIONS.items():
        if key in annotations:
            yield f"{at}metadata.annotations[{key}]: {text}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, f"{at}spec.volumes[{index}]")
    yield from _projected_paths(spec, f"{at}spec.volumes")
    yield from _duplicates(spec.get("hostAliases"), "ip", f"{at}spec.hostAliases")
    yield from _duplicates(spec.get("imagePullSecrets"), "name", f"{at}spec.imagePullSecrets")
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{at}spec.imagePullSecrets[{index}].name: invalid empty name ""'
    yield from _fractions(spec.get("overhead"), f"{at}spec.overhead")
    security = spec.get("securityContext") or {}
    if not security.get("seccompProfile") and "seccomp.security.alpha.kubernetes.io/pod" in annotations:
        yield f"{at}metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: {_SECCOMP}"
    for container, path in _containers(spec, f"{at}spec"):
        own = container.get("securityContext") or {}
        key = f"container.seccomp.security.alpha.kubernetes.io/{container.get('name')}"
        if not own.get("seccompProfile") and key in annotations:
            yield f"{at}metadata.annotations[{key}]: {_SECCOMP}"
        key = f"container.apparmor.security.beta.kubernetes.io/{container.get('name')}"
        has_field = security.get("appArmorProfile") or own.get("appArmorProfile")
        if is_template and not has_field and key in annotations:
            yield f"{at}metadata.annotations[{key}]: {_APPARMOR}"
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            yield from _fractions(resources.get(part), f"{path}.resources.{part}")
        yield from _environment(container.get(_ENVIRONMENT) or [], f"{path}.env")
    yield from _ports(spec, f"{at}spec")
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        path = f"{at}spec.terminationGracePeriodSeconds"
        yield f"{path}: must be >= 0; negative values are invalid and will be treated as 1"
    yield from _null_selectors(spec.get("affinity") or {}, f"{at}spec.affinity")


def _placement(spec: Document, at: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in _LABELS:
            yield f"{at}.nodeSelector[{key}]: {_LABELS[key]}"
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    path = f"{at}.affinity.nodeAffinity"
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    yield from _terms(required, f"{path}.requiredDuringSchedulingIgnoredDuringExecution")
    for index, preferred in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        here = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference"
        yield from _term(preferred.get("preference") or {}, here)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        here, key = f"{at}.topologySpreadConstraints[{index}]", constraint.get("topologyKey")
        if key in _LABELS:
            yield f"{here}.topologyKey: {key} is {_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{here}.labelSelector: a null labelSelector results in matching no pod"


def _terms(selector: Document, at: str) -> Iterator[str]:
    for index, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        yield from _term(term, f"{at}.nodeSelectorTerms[{index}]")


def _term(term: Document, at: str) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        if (key := expression.get("key")) in _LABELS:
            yield f"{at}.matchExpressions[{index}].key: {key} is {_LABELS[key]}"


def _volume(volume: Document, at: str) -> Iterator[str]:
    for name, text in _VOLUMES.items():
        if name in volume:
            yield f"{at}.{'storageOS' if name == 'storageos' else name}: {text}"
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template:
        yield from _claim_spec(template.get("spec") or {}, f"{at}.ephemeral.volumeClaimTemplate.spec")


def _projected_paths(spec: Document, at: str) -> Iterator[str]:
    projected = [
        (index, source)
        for index, volume in enumerate(spec.get("volumes") or ())
        for source in (volume.get("projected") or {}).get("sources") or ()
    ]
    tokens = {source["serviceAccountToken"].get("path") for _, source in projected if source.get("serviceAccountToken")}
    if not tokens:
        return
    for index, source in projected:
        for name, shown in (("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")):
            for place, item in enumerate((source.get(name) or {}).get("items") or ()):
                if item.get("path") in tokens:
                    here = f"{at}[{index}].projected.sources.{shown}[{place}]"
                    yield f'{here}: has duplicated path with ServiceAccountToken "{item["path"]}"'
        path = (source.get("clusterTrustBundle") or {}).get("path")
        if path in tokens:
            here = f"{at}[{index}].projected.sources.ClusterTrustBundle"
            yield f'{here}: has duplicated path with ServiceAccountToken "{path}"'


def _duplicates(items: Any, key: str, at: str) -> Iterator[str]:
    seen = set()
    for index, item in enumerate(items or ()):
        value = item.get(key) or ""
        if value in seen:
            yield f'{at}[{index}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _fractions(amounts: Any, at: str, names: tuple[str, ...] = ("memory", "ephemeral-storage")) -> Iterator[str]:
    for name in names:
        text = str((amounts or {}).get(name) or "")
        if text and milli(text) % 1000:
            yield f'{at}[{name}]: fractional byte value "{text}" is invalid, must be an integer'


def _containers(spec: Document, at: str) -> Iterator[tuple[Document, str]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{at}.{kind}[{index}]"


def _environment(variables: list[Document], at: str) -> Iterator[str]:
    seen = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
            yield f'{at}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _ports(spec: Document, at: str) -> Iterator[str]:
    known: dict[tuple[Any, Any], list[tuple[str, Document]]] = {}
    for container, path in _containers(spec, at):
        for index, port in enumerate(container.get("ports") or ()):
            here, address, number = f"{path}.ports[{index}]", port.get("hostIP") or "", port.get("hostPort") or 0
            if address and not number:
                shown = (
                    f"{{Name:{port.get('name') or ''} HostPort:{number} ContainerPort:{port.get('containerPort')} "
                    f"Protocol:{port.get('protocol') or ''} HostIP:{address}}}"
                )
                yield f"{here}: hostIP set without hostPort: {shown}"
            others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for there, other in others:
                its_address, its_number = other.get("hostIP") or "", other.get("hostPort") or 0
                if (address, number) == (its_address, its_number):
                    yield f"{here}: duplicate port definition with {there}"
                elif not number or not its_number:
                    yield f"{here}: overlapping port definition with {there}"
                elif number == its_number and bool(address) != bool(its_address):
                    yield f"{here}: dangerously ambiguous port definition with {there}"
            others.append((here, port))


def _null_selectors(affinity: Document, at: str) -> Iterator[str]:
    text = "labelSelector: a null labelSelector results in matching no pod"
    for kind in ("podAffinity", "podAntiAffinity"):
        pod_affinity = affinity.get(kind) or {}
        for index, term in enumerate(pod_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}].{text}"
        for index, term in enumerate(pod_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{at}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm.{text}"


# -- workloads


def _is_news(old: Document | None, new: Document) -> bool:
    return old is None or old.get("spec") != new.get("spec")


def _workload(old: Document | None, new: Document) -> Iterator[str]:
    if old is None and new.get("kind") in ("Deployment", "ReplicaSet"):
        yield from _name(new, "Pod names and hostnames")
    if _is_news(old, new):
        yield from _template(new["spec"].get("template") or {}, "spec.template")


def _stateful_set(old: Document | None, new: Document) -> Iterator[str]:
    yield from _workload(old, new)
    if not _is_news(old, new):
        return
    for index, claim in enumerate(new["spec"].get("volumeClaimTemplates") or ()):
        yield from _claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]")
    if (new["spec"].get("revisionHistoryLimit") or 0) < 0:
        text = "a negative value retains all historical revisions; a value >= 0 is recommended"
        yield f"spec.revisionHistoryLimit: {text}"


def _job(old: Document | None, new: Document) -> Iterator[str]:
    if old is None:
        yield from _name(new, "Pod names and hostnames")
    if _is_news(old, new):
        yield from _job_spec(new["spec"], "spec")


def _job_spec(spec: Document, at: str) -> Iterator[str]:
    completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
    if spec.get("completionMode") == "Indexed" and completions > INDEXES_MAX and parallelism > PARALLEL_MAX:
        yield (
            f"{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
            "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    yield from _template(spec.get("template") or {}, f"{at}.template")


def _cron_job(old: Document | None, new: Document) -> Iterator[str]:
    if old is None:
        yield from _name(new, "Pod names and hostnames")
    if _is_news(old, new):
        yield from _job_spec((new["spec"].get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    if "TZ" in str(new["spec"].get("schedule")):
        yield (
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones for more information"
        )


def _pod_template(old: Document | None, new: Document) -> Iterator[str]:
    yield from _template(new.get("template") or {}, "template")


# -- networking


def _service(old: Document | None, new: Document) -> Iterator[str]:
    spec, kind = new.get("spec") or {}, (new.get("spec") or {}).get("type")
    if _TOPOLOGY_HINTS in (new["metadata"].get("annotations") or {}):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use {_TOPOLOGY_MODE} instead"
    is_headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    outer = spec.get("externalIPs") or []
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        yield from _address(address, f"spec.clusterIPs[{index}]")
    if is_headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if outer:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity", "None") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for index, address in enumerate(outer):
        yield from _address(address, f"spec.externalIPs[{index}]")
    if outer and not is_headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from _address(spec["loadBalancerIP"], "spec.loadBalancerIP")
    if kind == "ExternalName" and outer:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _address(text: str, at: str) -> Iterator[str]:
    try:
        ip = ip_address(text)
    except ValueError:
        return
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            yield (
                f'{at}: non-standard IP address "{text}" will be considered invalid in a future Kubernetes release: '
                f'use "{ip.ipv4_mapped}"'
            )
        elif str(ip) != text:
            yield f'{at}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{ip}")'


def _ingress(old: Document | None, new: Document) -> Iterator[str]:
    if _INGRESS_CLASS in (new["metadata"].get("annotations") or {}):
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


# -- storage and nodes


def _claim(old: Document | None, new: Document) -> Iterator[str]:
    yield from _class_annotation(new)
    yield from _claim_spec(new.get("spec") or {}, "spec")


def _class_annotation(new: Document) -> Iterator[str]:
    if _STORAGE_CLASS in (new["metadata"].get("annotations") or {}):
        text = 'deprecated since v1.8; use "storageClassName" attribute instead'
        yield f"metadata.annotations[{_STORAGE_CLASS}]: {text}"


def _claim_spec(spec: Document, at: str) -> Iterator[str]:
    resources = spec.get("resources") or {}
    for part in ("requests", "limits"):
        yield from _fractions(resources.get(part), f"{at}.resources.{part}", ("storage",))


def _volume_object(old: Document | None, new: Document) -> Iterator[str]:
    spec = new.get("spec") or {}
    yield from _class_annotation(new)
    if _MOUNT_OPTIONS in (new["metadata"].get("annotations") or {}):
        text = 'deprecated since v1.31; use "mountOptions" attribute instead'
        yield f"metadata.annotations[{_MOUNT_OPTIONS}]: {text}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    yield from _terms((spec.get("nodeAffinity") or {}).get("required") or {}, "spec.nodeAffinity.required")
    for name in ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"):
        if name in spec:
            yield f"spec.{'storageOS' if name == 'storageos' else name}: {_VOLUMES[name]}"


def _storage_class(old: Document | None, new: Document) -> Iterator[str]:
    for index, topology in enumerate(new.get("allowedTopologies") or ()):
        for place, expression in enumerate(topology.get("matchLabelExpressions") or ()):
            if (key := expression.get("key")) in _LABELS:
                yield f"allowedTopologies[{index}].matchLabelExpressions[{place}].key: {_LABELS[key]}"


def _runtime_class(old: Document | None, new: Document) -> Iterator[str]:
    for key in (new.get("scheduling") or {}).get("nodeSelector") or ():
        if key in _LABELS:
            yield f"scheduling.nodeSelector: {_LABELS[key]}"


def _node(old: Document | None, new: Document) -> Iterator[str]:
    spec = new.get("spec") or {}
    if spec.get("configSource") is not None:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


WARNINGS: dict[str, Warnings] = {
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _workload,
    "deployments.apps": _workload,
    "ingresses.networking.k8s.io": _ingress,
    "jobs.batch": _job,
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume_object,
    "pods": _pod,
    "podtemplates": _pod_template,
    "replicasets.apps": _workload,
    "replicationcontrollers": _workload,
    "runtimeclasses.node.k8s.io": _runtime_class,
    "services": _service,
    "statefulsets.apps": _stateful_set,
    "storageclasses.storage.k8s.io": _storage_class,
}
