"""Fields behind feature gates: dropped from a write while the gate is off, unless they are stored already.

One table lists the fields of each kind by gate, and every write of a kind in it goes through it. Stored fields
stay, so that switching a gate off takes nothing from existing objects. A field whose gate keplab does not have
is dropped in each release in which the gate is off by default; if it were kept, it would be shown but have no
effect. Source: dra-core 0.1; kep-5194 2; upstream `dropDisabledFields` in `pkg/registry/resource/*/strategy.go`
(v1.36).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from apiserver_fake.registry.strategy import WriteContext
from apiserver_fake.registry.switches import ApiServerSwitches
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document
from services.api.release import is_before

CLAIM_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
POD_GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
Path = tuple[str, ...]
"""Names of members; `[]` is every item of a list, `{}` every value of a map.

A member whose name ends in `?` is dropped when it becomes empty; one whose name ends in `!` is dropped together
with the field taken from it.
"""


@dataclass(frozen=True)
class Gated:
    """Fields behind one gate: `paths` are kept while `is_on`, or when the stored object has a value at one of them."""

    is_on: Callable[[ApiServerSwitches], bool]
    paths: tuple[Path, ...]


def _row(is_on: Callable[[ApiServerSwitches], bool], *paths: str) -> Gated:
    return Gated(is_on, tuple(tuple(path.replace("[]", ".[]").replace("{}", ".{}").split(".")) for path in paths))


def _pods(spec: str) -> tuple[Gated, ...]:
    """Return what a kind that has a pod's spec there may not say.

    ContainerStopSignals and VolumeBindMountOptions are off in every release, ClusterTrustBundleProjection and
    PodCertificateRequest before 1.37; EnvFiles, HostnameOverride and ImageVolume before 1.35.
    """
    source = f"{spec}.volumes[].projected.sources[]"
    containers = [f"{spec}.{name}[]" for name in ("containers", "initContainers", "ephemeralContainers")]
    return (
        _row(
            _since("1.35"),
            *(f"{each}.env[].valueFrom.fileKeyRef" for each in containers),
            f"{spec}.hostnameOverride",
            f"{spec}.volumes[].image",
        ),
        _row(never, *(f"{spec}.{name}[].lifecycle?.stopSignal" for name in ("containers", "initContainers"))),
        _row(never, *(f"{each}.volumeMounts[].bindMountOptions" for each in containers)),
        _row(_since("1.37"), f"{source}.clusterTrustBundle", f"{source}.podCertificate"),
    )


def _since(release: str) -> Callable[[ApiServerSwitches], bool]:
    return lambda switches: not is_before(switches.release, release)


def never(switches: ApiServerSwitches) -> bool:
    """Return False, for a gate that is off by default in every emulated release and that keplab does not have."""
    return False


def _requests(spec: str) -> tuple[Gated, ...]:
    requests = f"{spec}.devices.requests[]"
    result = "status.allocation.devices.results[]"
    return (
        _row(lambda s: s.dra_prioritized_list, f"{requests}.firstAvailable"),
        _row(
            lambda s: s.dra_device_taints, f"{requests}.exactly.tolerations", f"{requests}.firstAvailable[].tolerations"
        ),
        _row(lambda s: s.dra_admin_access, f"{requests}.exactly.adminAccess", f"{result}.adminAccess"),
        _row(
            lambda s: s.dra_consumable_capacity,
            f"{spec}.devices.constraints[].distinctAttribute",
            f"{requests}.exactly.capacity",
            f"{requests}.firstAvailable[].capacity",
            f"{result}.shareID",
            f"{result}.consumedCapacity",
            "status.devices[].shareID",
        ),
        _row(lambda s: s.reserved_for_mode == "kep5194", f"{spec}.reservedFor", "status.allocation.reservedForAnyPod"),
    )


_DEVICES = "spec.devices[]"
GATED: dict[str, tuple[Gated, ...]] = {
    CLAIMS: (
        *_requests("spec"),
        _row(lambda s: s.dra_device_status, "status.devices"),
        _row(
            lambda s: s.dra_binding_conditions,
            "status.allocation.devices.results[].bindingConditions",
            "status.allocation.devices.results[].bindingFailureConditions",
        ),
    ),
    CLAIM_TEMPLATES: _requests("spec.spec"),
    CLASSES: (_row(lambda s: s.dra_extended_resource, "spec.extendedResourceName"),),
    SLICES: (
        _row(lambda s: s.dra_device_taints, f"{_DEVICES}.taints"),
        _row(
            lambda s: s.dra_partitionable_devices,
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            *(f"{_DEVICES}.{name}" for name in ("consumesCounters", "nodeName", "nodeSelector", "allNodes")),
        ),
        _row(
            lambda s: s.dra_binding_conditions and s.dra_device_status,
            *(f"{_DEVICES}.{name}" for name in ("bindingConditions", "bindingFailureConditions", "bindsToNode")),
        ),
        _row(
            lambda s: s.dra_consumable_capacity,
            f"{_DEVICES}.allowMultipleAllocations",
            f"{_DEVICES}.capacity{{}}.requestPolicy",
        ),
        _row(
            lambda s: s.dra_list_type_attributes,
            *(f"{_DEVICES}.attributes{{}}.{name}" for name in ("ints", "bools", "strings", "versions")),
        ),
        _row(never, f"{_DEVICES}.nodeAllocatableResourceMappings"),  # DRANodeAllocatableResources
    ),
    POD_GROUPS: (
        _row(lambda s: s.reserved_for_mode == "kep5729", "spec.resourceClaims", "status.resourceClaimStatuses"),
        _row(never, "spec.schedulingConstraints"),  # TopologyAwareWorkloadScheduling
    ),
    WORKLOADS: (
        _row(lambda s: s.reserved_for_mode == "kep5729", "spec.podGroupTemplates[].resourceClaims"),
        _row(never, "spec.podGroupTemplates[].schedulingConstraints"),
    ),
    # VolumeLimitScaling, on from 1.37.
    "csidrivers.storage.k8s.io": (_row(_since("1.37"), "spec.preventPodSchedulingIfMissing"),),
    # CrossNamespaceVolumeDataSource; of a reference into another namespace nothing is kept.
    "persistentvolumeclaims": (_row(never, "spec.dataSourceRef!.namespace"),),
    "leases.coordination.k8s.io": (_row(never, "spec.strategy", "spec.preferredHolder"),),  # CoordinatedLeaderElection
    # HPAConfigurableTolerance, on from 1.35.
    "horizontalpodautoscalers.autoscaling": (
        _row(_since("1.35"), *(f"spec.behavior.{way}.tolerance" for way in ("scaleUp", "scaleDown"))),
    ),
    "pods": _pods("spec"),
    "podtemplates": _pods("template.spec"),
    "cronjobs.batch": _pods("spec.jobTemplate.spec.template.spec"),
    **dict.fromkeys(
        (
            "replicationcontrollers",
            "deployments.apps",
            "replicasets.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "jobs.batch",
        ),
        _pods("spec.template.spec"),
    ),
}


def drop_disabled(resource: str, old: Document | None, new: Document, ctx: WriteContext) -> None:
    """Remove the fields whose gates are off from a new document; `old` is the stored document.

    The document's top-level members are assigned anew; deeper values are copied where they change.
    """
    for row in _off(resource, ctx.switches):
        if old is not None and any(_has(old, path) for path in row.paths):
            continue
        for path in row.paths:
            value = new.get(path[0])
            # Most documents do not have the second member.
            if not value or (path[1].isalpha() and path[1] not in value):
                continue
            if (changed := _without(value, path[1:])) is not value:
                new[path[0]] = changed


@cache
def _off(resource: str, switches: ApiServerSwitches) -> tuple[Gated, ...]:
    return tuple(row for row in GATED.get(resource, ()) if not row.is_on(switches))


def _has(value: Any, path: Path) -> bool:
    if not path:
        return value is not None and value != [] and value != {}
    return any(_has(each, path[1:]) for each in _members(value, path[0]))


def _members(value: Any, name: str) -> Iterator[Any]:
    if name == "[]":
        yield from value or ()
    elif name == "{}":
        yield from (value or {}).values()
    elif value is not None and (name := name.rstrip("?!")) in value:
        yield value[name]


def _without(value: Any, path: Path) -> Any:
    """Return the value without what is at the path; the value itself when there is nothing."""
    name, rest = path[0].rstrip("?!"), path[1:]
    if not value:
        return value
    if name == "[]":
        items = value
        for place, item in enumerate(value):
            if (changed := _without(item, rest)) is not item:
                items = [*items] if items is value else items
                items[place] = changed
        return items
    if name == "{}":
        values = {key: _without(each, rest) for key, each in value.items()}
        return values if any(values[key] is not value[key] for key in value) else value
    if name not in value:
        return value
    if not rest:
        return {key: each for key, each in value.items() if key != name}
    changed = _without(value[name], rest)
    if changed is value[name]:
        return value
    if path[0].endswith("!") or (path[0].endswith("?") and not changed):
        return {key: each for key, each in value.items() if key != name}
    return {**value, name: changed}
