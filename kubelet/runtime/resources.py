"""A pod's resources by container: requested, allocated, and applied by the runtime. Pure.

A pod has up to three sizes: desired (the spec), allocated (by this node, kept durably) and actual (what the
runtime last applied). They are carried on in that order and compared in neighbouring pairs only. Source:
kep-1287-in-place-resize 2.
"""

import msgspec

from kubelet.view import KubeletPod
from services.api.kinds.pod import Container, ResourceRequirements
from services.api.podresources import amounts

NOTHING = ResourceRequirements()


class PodResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests and limits by container name, and the pod's own (`level`), as text.

    `passing`: those of `containers` that end before the main ones start, and never count beside them.
    """

    containers: dict[str, ResourceRequirements] = {}
    level: ResourceRequirements | None = None
    passing: tuple[str, ...] = ()

    @property
    def lasting(self) -> dict[str, ResourceRequirements]:
        """The resources of main containers and sidecars, which run side by side."""
        return {name: size for name, size in self.containers.items() if name not in self.passing}

    def of(self, container: str) -> ResourceRequirements:
        """Return a container's resources; empty for a container that is not resizable."""
        return self.containers.get(container, NOTHING)

    def limits_of(self, container: str) -> dict[str, str]:
        """Return the limits in force: the container's own, and the pod's for resources without one."""
        own = self.of(container).limits
        return own if self.level is None else {**self.level.limits, **own}


NO_RESOURCES = PodResources()


def resources_of(pod: KubeletPod, *, with_init_containers: bool = False) -> PodResources:
    """Return the pod's present requests and limits for each resizable container: main containers and sidecars.

    `with_init_containers`: also init containers that are not sidecars
    (InPlacePodVerticalScalingInitContainers).
    """
    spec = pod.spec
    passing = tuple(c.name for c in spec.init_containers if c.restart_policy != "Always")
    sizes = {c.name: c.resources for c in spec.init_containers if with_init_containers or c.name not in passing}
    sizes |= {c.name: c.resources for c in spec.containers}
    return PodResources(sizes, spec.resources, passing if with_init_containers else ())


def align_resources(recorded: PodResources, wanted: PodResources) -> PodResources:
    """Return a recorded size with exactly the containers of `wanted`.

    Containers that were not recorded have the size in `wanted`. A kubelet that starts with another gate records
    other containers than the one before.
    """
    if recorded.containers.keys() == wanted.containers.keys() and recorded.passing == wanted.passing:
        return recorded
    sizes = {name: recorded.containers.get(name, size) for name, size in wanted.containers.items()}
    return PodResources(sizes, recorded.level, wanted.passing)


def overlaid(pod: KubeletPod, resources: PodResources) -> KubeletPod:
    """Return the pod with `resources` in place of its requests and limits."""
    replace = msgspec.structs.replace

    def with_sizes(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(c, resources=resources.containers.get(c.name, c.resources)) for c in containers)

    mains, inits = with_sizes(pod.spec.containers), with_sizes(pod.spec.init_containers)
    return replace(pod, spec=replace(pod.spec, containers=mains, init_containers=inits, resources=resources.level))


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
