"""Node declared features (KEP-5328): what a kubelet declares, what a pod needs of its node, and what is
missing. Pure.

One table has a row for each feature; kubelet, scheduler and admission read only this table. The release of the
asking component decides which rows exist: an API server of 1.35 knows nothing of what only 1.37 can declare.
Source: node-declared-features 1; upstream `staging/src/k8s.io/component-helpers/nodedeclaredfeatures` (v0.35.6,
v0.36.3 and the branch of 1.37).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from services.api.kinds.pod import Container, Pod, PodSpec, ResourceRequirements
from services.api.podresources import amounts
from services.api.release import RELEASES, is_before

GATE: Final = "NodeDeclaredFeatures"
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
INIT_CONTAINER_RESIZE: Final = "InPlacePodVerticalScalingInitContainers"
HOST_USERS: Final = "UserNamespacesHostNetworkSupport"
MEMORY_VOLUMES: Final = "InPlacePodVerticalScalingMemoryBackedVolumes"
MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
GUARANTEED_CPU_RESIZE: Final = "GuaranteedQoSPodCPUResize"
EXCLUSIVE_CPUS: Final = "InPlacePodVerticalScalingExclusiveCPUs"


class KubeletConfiguration(NamedTuple):
    """The kubelet settings that features depend on. `runtime`: features of its container runtime."""

    gates: Mapping[str, bool]
    cpu_policy: str = "none"
    runtime: frozenset[str] = frozenset()


def _never_to_schedule(spec: PodSpec) -> bool:
    return False


def _never_to_update(old: Pod, new: Pod) -> bool:
    return False


@dataclass(frozen=True)
class Feature:
    """One feature: the releases whose registry has it, what a kubelet needs to declare it, and which pods need it.

    `is_declared` None: declared when its gate is on and the runtime has `runtime`, if that is named. `max_version`:
    the last release in which pods need it declared, because every later kubelet has it; empty if there is no such
    release yet.
    """

    name: str
    since: str
    until: str = ""
    max_version: str = ""
    runtime: str = ""
    is_declared: Callable[[KubeletConfiguration], bool] | None = None
    needed_to_schedule: Callable[[PodSpec], bool] = _never_to_schedule
    needed_to_update: Callable[[Pod, Pod], bool] = _never_to_update

    def declares(self, kubelet: KubeletConfiguration) -> bool:
        """Whether a kubelet with that configuration declares the feature."""
        if self.is_declared is not None:
            return self.is_declared(kubelet)
        return kubelet.gates.get(self.name, False) and (not self.runtime or self.runtime in kubelet.runtime)


def _restarts_all(spec: PodSpec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


def _has_host_users(spec: PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


def _has_mount_options(spec: PodSpec) -> bool:
    containers = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    return any(mount.bind_mount_options for container in containers for mount in container.volume_mounts)


def _differ(one: ResourceRequirements | None, other: ResourceRequirements | None) -> bool:
    """Whether two sizes differ as quantities: `500m` is `0.5`; none at all differs from an empty one."""
    if one is None or other is None:
        return one is not other
    return (amounts(one.requests), amounts(one.limits)) != (amounts(other.requests), amounts(other.limits))


def _changes_pod_level(old: Pod, new: Pod) -> bool:
    return _differ(old.spec.resources, new.spec.resources)


def _changes_init_containers(old: Pod, new: Pod) -> bool:
    def plain(spec: PodSpec) -> dict[str, Container]:
        return {each.name: each for each in spec.init_containers if each.restart_policy != "Always"}

    wanted = plain(new.spec)
    return any(
        (now := wanted.get(name)) is not None and _differ(was.resources, now.resources)
        for name, was in plain(old.spec).items()
    )


def _changes_memory_volumes(old: Pod, new: Pod) -> bool:
    if len(old.spec.volumes) != len(new.spec.volumes):
        return False
    for was, now in zip(old.spec.volumes, new.spec.volumes, strict=True):
        before, after = was.empty_dir, now.empty_dir
        if was.name != now.name or before is None or after is None or after.medium != "Memory":
            continue
        if before.size_limit is not None and after.size_limit is not None:
            was_size, size = (amounts({"memory": str(each)}) for each in (before.size_limit, after.size_limit))
            if was_size != size:
                return True
    return False


def _changes_guaranteed_cpus(old: Pod, new: Pod) -> bool:
    if old.status.qos_class != "Guaranteed":
        return False
    pairs = zip(old.spec.containers, new.spec.containers, strict=False)
    return any(_cpus(was) != _cpus(now) for was, now in pairs)


def _cpus(container: Container) -> int:
    return amounts(container.resources.requests).get("cpu", 0)


def _resizes_guaranteed_pods(kubelet: KubeletConfiguration) -> bool:
    has_gate = kubelet.gates.get(EXCLUSIVE_CPUS, False)
    return kubelet.cpu_policy == "none" or (kubelet.cpu_policy == "static" and has_gate)


FEATURES: Final = (
    Feature("DRANodeAllocatableResources", "1.37"),
    Feature("DRAOptionalNodeOperations", "1.37"),
    Feature("ExtendWebSocketsToKubelet", "1.36"),
    Feature(
        GUARANTEED_CPU_RESIZE,
        "1.35",
        until="1.35",
        is_declared=_resizes_guaranteed_pods,
        needed_to_update=_changes_guaranteed_cpus,
    ),
    Feature(POD_LEVEL_RESIZE, "1.35", needed_to_update=_changes_pod_level),
    Feature(INIT_CONTAINER_RESIZE, "1.36", needed_to_update=_changes_init_containers),
    Feature(MEMORY_VOLUMES, "1.37", needed_to_update=_changes_memory_volumes),
    Feature(RESTART_ALL, "1.35", needed_to_schedule=_restarts_all),
    Feature(HOST_USERS, "1.36", runtime="UserNamespacesHostNetwork", needed_to_schedule=_has_host_users),
    Feature(MOUNT_OPTIONS, "1.37", runtime="MountOptions", needed_to_schedule=_has_mount_options),
)
"""Every feature of any release, sorted by name."""
NAMES: Final = tuple(each.name for each in FEATURES)


@cache
def registry(release: str) -> tuple[Feature, ...]:
    """Return the features that components of a release know, sorted by name."""
    return tuple(
        each
        for each in FEATURES
        if not is_before(release, each.since) and not (each.until and is_before(each.until, release))
    )


def declared_names(kubelet: KubeletConfiguration, release: str) -> tuple[str, ...]:
    """Return the features that a kubelet of that release and configuration declares: sorted, each once."""
    return tuple(each.name for each in registry(release) if each.declares(kubelet) and not _is_over(each, release))


def needed_to_schedule(spec: PodSpec, release: str) -> tuple[str, ...]:
    """Return the features that a node must declare to run the pod, sorted; `release`: the asking component's."""
    return tuple(
        each.name for each in registry(release) if each.needed_to_schedule(spec) and not _is_over(each, release)
    )


def needed_to_update(old: Pod, new: Pod, release: str) -> tuple[str, ...]:
    """Return the features that the pod's node must declare to allow this pod update, sorted; `release`: the asking
    component's.
    """
    return tuple(
        each.name for each in registry(release) if each.needed_to_update(old, new) and not _is_over(each, release)
    )


def missing(needed: Iterable[str], has: Iterable[str]) -> tuple[str, ...]:
    """Return the needed features that the node does not declare, sorted; names that no registry has do not matter."""
    there = frozenset(has)
    return tuple(sorted(name for name in needed if name not in there))


def _is_over(feature: Feature, release: str) -> bool:
    return bool(feature.max_version) and is_before(feature.max_version, release)


ON_FROM: Final[Mapping[str, str]] = {"ExtendWebSocketsToKubelet": "1.36"}
"""Feature gates without a switch that are on by default: gate → first such release. All others are alpha and off."""


def default_gates(release: str) -> dict[str, bool]:
    """Return the default values of feature gates without a switch, in a release."""
    return {name: name in ON_FROM and not is_before(release, ON_FROM[name]) for name in (*NAMES, EXCLUSIVE_CPUS)}


assert sorted(NAMES) == list(NAMES), "declared features are listed by name"
assert all(each.since in RELEASES for each in FEATURES), "every feature came with a release that is emulated"
