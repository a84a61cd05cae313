"""A pod's resources, container by container: what it asks for, what it was allocated, what the runtime applied. Pure.

Of one pod there are up to three sizes: desired (the spec), allocated (what this node allocated, kept
durably) and actual (what the runtime last applied). They are carried on in that order and compared in
neighbouring pairs only. Source: kep-1287-in-place-resize 2.
"""

import msgspec

from kubelet.view import KubeletPod
from services.api.kinds.pod import Container, ResourceRequirements
from services.api.podresources import amounts

NOTHING = ResourceRequirements()


class PodResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests and limits by container name, and the pod's own (`level`), as text."""

    containers: dict[str, ResourceRequirements] = {}
    level: ResourceRequirements | None = None

    def of(self, container: str) -> ResourceRequirements:
        """Return what a container has; nothing for one that is not resizable."""
        return self.containers.get(container, NOTHING)

    def limits_of(self, container: str) -> dict[str, str]:
        """Return the limits in force: the container's own, and the pod's for what it does not limit itself."""
        own = self.of(container).limits
        return own if self.level is None else {**self.level.limits, **own}


NO_RESOURCES = PodResources()


def is_resizable(container: Container, *, is_init: bool) -> bool:
    """Whether a container's resources may change while it exists: main containers and sidecars."""
    return not is_init or container.restart_policy == "Always"


def resources_of(pod: KubeletPod) -> PodResources:
    """Return what the pod asks for now, container by container."""
    spec = pod.spec
    found = {c.name: c.resources for c in spec.init_containers if is_resizable(c, is_init=True)}
    for container in spec.containers:
        found[container.name] = container.resources
    return PodResources(found, spec.resources)


def overlaid(pod: KubeletPod, resources: PodResources) -> KubeletPod:
    """Return the pod as it would be had it always asked for `resources`."""
    replace = msgspec.structs.replace

    def sized(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(c, resources=resources.containers.get(c.name, c.resources)) for c in containers)

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=sized(spec.containers),
            init_containers=sized(spec.init_containers),
            resources=resources.level,
        ),
    )


def is_same(one: PodResources, other: PodResources) -> bool:
    """Whether two sizes are equal as quantities: `500m` is `0.5`."""
    if one is other or one == other:
        return True
    names = list(dict.fromkeys((*one.containers, *other.containers)))
    return is_equal(one.level or NOTHING, other.level or NOTHING) and all(
        is_equal(one.of(name), other.of(name)) for name in names
    )


def is_equal(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Whether requests and limits are equal as quantities."""
    return one == other or (
        amounts(one.requests) == amounts(other.requests) and amounts(one.limits) == amounts(other.limits)
    )
