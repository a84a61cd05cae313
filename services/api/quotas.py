"""Rules of ResourceQuota: the names that apply to a kind, the usage of an object, and the objects in scope.

The API server charges by these rules when an object is created or resized; the quota controller recounts by the
same rules. Amounts are integers: milli for cpu, whole units for all else. Source: KEP-1287 "Notes" (a resizing
pod counts with the most of desired, allocated and actual); upstream `pkg/quota/v1/evaluator/core` (v1.36).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.api.kinds import resourceclaim
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod, PodAffinity
from services.api.kinds.resourceclaim import ALL, DEVICES_MAX, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from services.api.kinds.resourcequota import ResourceQuota, ScopedResourceSelectorRequirement
from services.api.kinds.service import Service
from services.api.meta import View
from services.api.podresources import Amounts, amounts, as_in_use, limits_in_use, pod_requests, qos_class
from services.api.quantity import amount, format_amount
from services.api.times import parse_time

RESOURCE = "resourcequotas"
PODS, CLAIMS, SERVICES = "pods", "persistentvolumeclaims", "services"
DEVICE_CLAIMS = resourceclaim.CLAIMS
COUNT = "count/"
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
"""Suffix of the quota name that limits the devices of a class that claims request."""
DEVICES_BY_CLASS = "requests.deviceclass.resource.kubernetes.io/"
"""Prefix of the quota name of a class's devices as an extended resource (KEP-5004)."""
COMPUTE = ("cpu", "memory", "ephemeral-storage")
_POD_NAMES = frozenset((PODS, *COMPUTE, *(f"{part}.{name}" for part in ("requests", "limits") for name in COMPUTE)))
_SERVICE_NAMES = frozenset((SERVICES, "services.nodeports", "services.loadbalancers"))
_BY_CLASS = (".storageclass.storage.k8s.io/requests.storage", ".storageclass.storage.k8s.io/persistentvolumeclaims")
_COUNTED_PLAINLY = frozenset(("configmaps", "replicationcontrollers", RESOURCE, "secrets"))
STANDARD = _POD_NAMES | _SERVICE_NAMES | _COUNTED_PLAINLY | {CLAIMS, "requests.storage"}
"""Quota names without a slash."""
REQUIRED = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")
"""Quota names that every container must set when a quota limits them; in alphabetical order.

Upstream regrets the rule, so it covers no others.
"""
_BINARY = ("memory", "storage")


def resource_of(name: str) -> str:
    """Return the wire name of the kind whose objects consume the quota `name`; empty if no kind does."""
    if name.startswith(COUNT):
        return name[len(COUNT) :]
    if name in _POD_NAMES or name.startswith(("hugepages-", "requests.hugepages-")):
        return PODS
    if name in _SERVICE_NAMES:
        return SERVICES
    if name in (CLAIMS, "requests.storage") or name.endswith(_BY_CLASS):
        return CLAIMS
    if name in _COUNTED_PLAINLY:
        return name
    if name.endswith(DEVICES_OF_CLASS) or name.startswith(DEVICES_BY_CLASS):
        return DEVICE_CLAIMS
    if name.startswith("requests.") and _is_extended(name.removeprefix("requests.")):
        return PODS
    return ""


def is_extended_request(name: str) -> bool:
    """Whether a quota name limits an extended resource; pods consume it, and claims on a class that backs it."""
    return name.startswith("requests.") and _is_extended(name.removeprefix("requests."))


@dataclass(frozen=True)
class Backing:
    """Extended resource that each device class backs, by class; empty while the gate DRAExtendedResource is off."""

    resources: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def by(classes: Iterable[DeviceClass]) -> "Backing":
        """Return the backing that these classes define."""
        return Backing({each.metadata.name: each.spec.extended_resource_name or "" for each in classes})

    def counts(self, name: str) -> bool:
        """Whether claims consume the quota of that name."""
        if name.startswith(DEVICES_BY_CLASS):
            return bool(self.resources.get(name.removeprefix(DEVICES_BY_CLASS)))
        return is_extended_request(name) and name.removeprefix("requests.") in self.resources.values()

    def usage(self, claim: ResourceClaim, pod_usage: Mapping[str, int]) -> Amounts:
        """Return a claim's usage by class and as extended resources, minus what its pod is already charged for."""
        used = _of_device_claim(claim)
        more: Amounts = {}
        for name, count in used.items():
            device_class = name.removesuffix(DEVICES_OF_CLASS)
            more[DEVICES_BY_CLASS + device_class] = count
            if resource := self.resources.get(device_class):
                more[f"requests.{resource}"] = count
        return used | {name: left for name, count in more.items() if (left := count - pod_usage.get(name, 0)) > 0}


def pod_of(claim: ResourceClaim) -> str:
    """Return the name of the pod whose extended resources the claim was made for; empty otherwise."""
    owner = claim.metadata.controller
    is_made = claim.metadata.annotations.get(resourceclaim.EXTENDED_RESOURCE_CLAIM) == "true"
    return owner.name if is_made and owner is not None and (owner.kind, owner.api_version) == ("Pod", "v1") else ""


def charged_pod_usage(claim: ResourceClaim, pod: Pod | None, claims: Iterable[ResourceClaim], wall_s: float) -> Amounts:
    """Return the usage already charged to the pod, so that its devices do not count twice.

    Only the claim that the pod's status names counts; until it names one, the oldest claim made for it.
    """
    owner = claim.metadata.controller
    if pod is None or owner is None or owner.uid != pod.metadata.uid:
        return {}
    status = pod.status.extended_resource_claim_status
    if status is not None:
        if status.resource_claim_name != claim.metadata.name:
            return {}
    else:
        pod_claims = [
            each
            for each in claims
            if pod_of(each) and (controller := each.metadata.controller) and controller.uid == owner.uid
        ]
        own = (claim.metadata.creation_timestamp, claim.metadata.name)
        if any((each.metadata.creation_timestamp, each.metadata.name) < own for each in pod_claims):
            return {}
    return usage_of(PODS, pod, wall_s)


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def amount_of(name: str, text: str) -> int:
    """Return a quota's quantity as an integer. Raises: ValueError naming a malformed one."""
    return amount("cpu" if name.rpartition(".")[2] == "cpu" else name, text)


def text_of(name: str, value: int) -> str:
    """Return the canonical quantity of a value of `amount_of`."""
    what = name.rpartition(".")[2]
    if what == "cpu" or what.startswith("hugepages-") or (what.endswith(_BINARY) and value % 1024 == 0):
        return format_amount("cpu" if what == "cpu" else name, value)
    for suffix, power in (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3)):
        if value and value % 10**power == 0:
            return f"{value // 10**power}{suffix}"
    return str(value)


def usage_of(resource: str, view: View, wall_s: float) -> Amounts:
    """Return the usage of one object, by every quota name it counts under. Raises: ValueError for a bad quantity."""
    used = {COUNT + resource: 1}
    match view:
        case Pod():
            if not is_counted(view, wall_s):
                return used
            return used | {PODS: 1, **_compute(pod_requests(as_in_use(view)), limits_in_use(view))}
        case PersistentVolumeClaim():
            return used | _of_claim(view)
        case Service():
            return used | _of_service(view)
        case ResourceClaim():
            return used | _of_device_claim(view)
    return used | ({resource: 1} if resource in _COUNTED_PLAINLY else {})


def is_counted(pod: Pod, wall_s: float) -> bool:
    """Whether a pod still counts: it has not ended, and its grace period has not run out."""
    meta = pod.metadata
    if pod.is_terminal or meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return not pod.is_terminal
    return wall_s <= parse_time(meta.deletion_timestamp) + meta.deletion_grace_period_seconds


def _compute(requests: Mapping[str, int], limits: Mapping[str, int]) -> Amounts:
    used: Amounts = {}
    for name, value in requests.items():
        if name in COMPUTE or name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = value
        elif _is_extended(name):
            used[f"requests.{name}"] = value
    used.update({f"limits.{name}": limits[name] for name in COMPUTE if name in limits})
    return used


def _of_claim(claim: PersistentVolumeClaim) -> Amounts:
    used = {CLAIMS: 1, "requests.storage": claim.requested_bytes}
    if name := claim.storage_class:
        used[name + _BY_CLASS[0]] = claim.requested_bytes
        used[name + _BY_CLASS[1]] = 1
    return used


def _of_device_claim(claim: ResourceClaim) -> Amounts:
    """Return the devices asked for by class: of alternatives the most, of `All` as many as a claim may have."""
    used: Amounts = {}
    for request in claim.spec.devices.requests:
        choices = request.first_available or ((request.exactly,) if request.exactly is not None else ())
        most: Amounts = {}
        for choice in choices:
            name = choice.device_class_name + DEVICES_OF_CLASS
            most[name] = max(most.get(name, 0), _devices(choice))
        for name, count in most.items():
            used[name] = used.get(name, 0) + count
    return used


def _devices(request: ExactDeviceRequest | DeviceSubRequest) -> int:
    return DEVICES_MAX if request.allocation_mode == ALL else request.count


def _of_service(service: Service) -> Amounts:
    spec, used = service.spec, {SERVICES: 1}
    if is_balanced := spec.type == "LoadBalancer":
        used["services.loadbalancers"] = 1
    if spec.type == "NodePort" or (is_balanced and spec.allocate_load_balancer_node_ports):
        used["services.nodeports"] = len(spec.ports)
    return used


def is_in_scope(quota: ResourceQuota, view: View) -> bool:
    """Whether an object counts for a quota; scopes select pods only, so a quota with scopes counts nothing else."""
    requirements = quota.requirements
    return not requirements or (isinstance(view, Pod) and all(_meets(view, each) for each in requirements))


def _meets(pod: Pod, requirement: ScopedResourceSelectorRequirement) -> bool:
    match requirement.scope_name:
        case "Terminating":
            return pod.spec.active_deadline_seconds is not None
        case "NotTerminating":
            return pod.spec.active_deadline_seconds is None
        case "BestEffort":
            return qos_class(pod) == "BestEffort"
        case "NotBestEffort":
            return qos_class(pod) != "BestEffort"
        case "PriorityClass":
            name, operator = pod.spec.priority_class_name, requirement.operator
            is_listed = bool(name) and name in requirement.values
            return {"In": is_listed, "NotIn": not is_listed, "DoesNotExist": not name}.get(operator, bool(name))
        case "CrossNamespacePodAffinity":
            affinity = pod.spec.affinity
            return affinity is not None and (
                _looks_elsewhere(affinity.pod_affinity) or _looks_elsewhere(affinity.pod_anti_affinity)
            )
    return False


def _looks_elsewhere(affinity: PodAffinity | None) -> bool:
    if affinity is None:
        return False
    terms = (*affinity.required, *(weighted.pod_affinity_term for weighted in affinity.preferred))
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def unsaid(pod: Pod, names: Iterable[str]) -> str:
    """Return the quota names that containers do not set: `limits.cpu for: a,b; memory for: b`; empty if all are set."""
    level = pod.spec.resources
    pod_names = set() if level is None else set(_compute(amounts(level.requests), amounts(level.limits)))
    wanted = set(names) - pod_names
    by_container = {
        c.name: _compute(amounts(c.resources.requests), amounts(c.resources.limits))
        for c in (*pod.spec.containers, *pod.spec.init_containers)
    }
    silent = {n: sorted(c for c, names in by_container.items() if n not in names) for n in REQUIRED if n in wanted}
    return "; ".join(f"{name} for: {','.join(containers)}" for name, containers in silent.items() if containers)
