"""Extended resources that are devices of a class: their look-up, and the claim that a pod gets for them. Pure.

A pod requests `example.com/gpu: 1` as if a device plugin offered it. On a node without such a plugin, a
claim made by the scheduler requests a device of the class that names this resource. Containers that live
long have devices of their own; init containers that end use those of the containers after them, and more
only if that is not enough. Source: dra-core 6.9; KEP-5004; upstream
`pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go`, `extended/cache.go`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.pod import Container, ContainerExtendedResourceRequest, Pod
from services.api.kinds.resourceclaim import (
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from services.api.meta import Document, ObjectMeta
from services.api.quantity import amount
from services.reconcile.controller import Change

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix that makes a class's name an extended resource; every class has this one."""
IN_MEMORY: Final = "<extended-resources>"
"""The name of a claim that is not written yet; no object can have it."""


@dataclass
class BackedResources:
    """The extended resources that are devices of a class.

    If several classes name the same resource, the newest counts; among those made together, the first by name.
    """

    classes: dict[str, DeviceClass] = field(default_factory=dict)
    """The device classes by name; if empty, no resource is backed."""
    _by_resource: dict[str, str] = field(default_factory=dict)

    def on_change(self, change: Change[DeviceClass]) -> None:
        """Take a class that was added, changed or deleted."""
        if change.new is not None:
            self.classes[change.new.metadata.name] = change.new
        else:
            self.classes.pop(change.object.metadata.name, None)
        ordered = sorted(self.classes.values(), key=lambda each: each.metadata.name, reverse=True)
        ordered.sort(key=lambda each: each.metadata.creation_timestamp)
        named = ((each.spec.extended_resource_name, each.metadata.name) for each in ordered)
        self._by_resource = {resource: name for resource, name in named if resource}

    def class_of(self, resource: str) -> str:
        """Return the class whose devices are that resource; "" if there is none."""
        if resource.startswith(IMPLICIT):
            name = resource.removeprefix(IMPLICIT)
            return name if name in self.classes else ""
        return self._by_resource.get(resource, "")

    def among(self, wanted: Iterable[tuple[str, int]]) -> frozenset[str]:
        """Return those of the requested resources that are devices of a class."""
        if not self.classes:
            return frozenset()
        return frozenset(name for name, count in wanted if "/" in name and count and self.class_of(name))


def made_for(pod: Pod, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
    """Return the claim that an earlier attempt made for the pod's extended resources."""
    for claim in claims:
        owner = claim.metadata.controller
        if (
            claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"
            and owner is not None
            and (owner.name, owner.uid) == (pod.metadata.name, pod.metadata.uid)
        ):
            return claim
    return None


def claim_in_memory(pod: Pod, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    """Return the claim for the allocator, before it is written."""
    meta = ObjectMeta(name=IN_MEMORY, namespace=pod.metadata.namespace, uid=f"{IN_MEMORY}/{pod.metadata.uid}")
    return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))))


def claim_to_write(pod: Pod, requests: Sequence[DeviceRequest]) -> Document:
    """Return the claim to create, owned by the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{pod.metadata.name}-extended-resources-",
            "namespace": pod.metadata.namespace,
            "ownerReferences": [owner],
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
        },
        "spec": {"devices": {"requests": [_document(each) for each in requests]}},
    }


def _document(request: DeviceRequest) -> Document:
    asked = request.exactly
    assert asked is not None, f"request {request.name} was made here and asks for devices"
    exactly = {"deviceClassName": asked.device_class_name, "allocationMode": asked.allocation_mode}
    return {"name": request.name, "exactly": {**exactly, "count": asked.count}}


Mappings = list[ContainerExtendedResourceRequest]


def requests_for(pod: Pod, resources: Iterable[str], backed: BackedResources) -> tuple[list[DeviceRequest], Mappings]:
    """Return the claim's requests for these resources, and the part of each container."""
    requests: list[DeviceRequest] = []
    mappings: Mappings = []
    for resource in sorted(resources):
        resource_requests, of_containers = _of_resource(pod, resource, backed.class_of(resource))
        requests += resource_requests
        mappings += of_containers
    return sorted(requests, key=lambda each: each.name), mappings


def _of_resource(pod: Pod, resource: str, class_name: str) -> tuple[list[DeviceRequest], Mappings]:
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    inits = len(pod.spec.init_containers)
    short = [i for i, each in enumerate(containers) if i < inits and each.restart_policy != "Always"]
    lasting: list[DeviceRequest | None] = [None] * len(containers)
    mappings: Mappings = []
    for i, container in enumerate(containers):
        if i not in short:
            lasting[i], named = _of_container(i, container, resource, class_name, ())
            mappings += named
    largest: DeviceRequest | None = None
    names: set[str] = set()
    of_short: Mappings = []
    for i in short:
        request, named = _of_container(
            i, containers[i], resource, class_name, [r for r in lasting[i:] if r is not None]
        )
        of_short += named
        if request is not None:
            names.add(request.name)
            if largest is None or _count(largest) < _count(request):
                largest = request
    if largest is not None:  # they run one after the other, and so have the largest request together
        of_short = [_with_request_name(each, largest.name) if each.request_name in names else each for each in of_short]
    requests = [each for each in (largest, *lasting) if each is not None]
    return requests, [*mappings, *of_short]


def _of_container(
    index: int, container: Container, resource: str, class_name: str, reusable: Sequence[DeviceRequest]
) -> tuple[DeviceRequest | None, Mappings]:
    requests = container.resources.requests
    wanted = amount(resource, requests[resource]) if resource in requests else 0
    if not wanted:
        return None, []
    mappings: Mappings = []
    for request in reusable:
        mappings.append(_mapping(container, resource, request.name))
        wanted -= _count(request)
        if wanted <= 0:
            return None, mappings
    name = f"container-{index}-request-{sorted(requests).index(resource)}"
    mappings.append(_mapping(container, resource, name))
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=class_name, count=wanted)), mappings


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def _with_request_name(mapping: ContainerExtendedResourceRequest, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(
        container_name=mapping.container_name, resource_name=mapping.resource_name, request_name=request
    )


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0
