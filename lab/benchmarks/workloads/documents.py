"""Documents of single objects from a workload's templates; for speed, each template is encoded only once."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from apiserver_fake.registry.validation.pod import defaults as pod_defaults
from apiserver_fake.registry.validation.pod.spec import POD_SPEC
from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateDevices, CreateNodes, CreatePods, DeferResizes, Size, Volume, Workload
from services.api.meta import Document

NAME, NAMESPACE, UID, CLAIM = "@name@", "@namespace@", "@uid@", "@claim@"
CREATED: Final = "2026-01-01T00:00:00Z"
EBS: Final = "ebs.csi.aws.com"
DRA_VERSION: Final = "resource.k8s.io/v1"
PRIORITY_CLASS: Final = "perf-{}"


@dataclass(frozen=True)
class NewObject:
    """One object to create. `body` is its JSON."""

    namespace: str
    name: str
    body: bytes


def nodes_of(op: CreateNodes, size: Size) -> Iterator[NewObject]:
    """Yield the nodes of a step."""
    template = copy.deepcopy(op.template)
    labels = {**template["metadata"].get("labels", {}), templates.HOSTNAME: NAME}
    template["metadata"] = {"name": NAME, "labels": labels}
    attachable = {f"attachable-volumes-csi-{driver}": str(count) for driver, count in op.attachable}
    for part in ("capacity", "allocatable"):
        template["status"][part] = {**template["status"][part], **attachable}
    bodies = []
    for zone in op.zones or ("",):
        labels_there = {**labels, **({templates.ZONE: zone} if zone else {})}
        bodies.append(msgspec.json.encode({**template, "metadata": {"name": NAME, "labels": labels_there}}))
    for number in range(size.count(op.count)):
        name = node_name(op, number)
        yield NewObject("", name, bodies[number % len(bodies)].replace(b"@name@", name.encode()))


def node_name(op: CreateNodes, number: int) -> str:
    """Return the name of a step's node by its number."""
    return op.name or f"node-{number:05d}"


def csi_nodes_of(op: CreateNodes, size: Size) -> Iterator[Document]:
    """Yield a CSINode with the attach limits for each of the step's nodes; nothing when there are no limits."""
    drivers = [{"name": driver, "nodeID": "@", "allocatable": {"count": count}} for driver, count in op.attachable]
    for node in nodes_of(op, size) if drivers else ():
        named = [{**driver, "nodeID": node.name} for driver in drivers]
        meta = {"name": node.name}
        yield {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": named}}


def pods_of(op: CreatePods, step: int, size: Size, *, is_stored: bool = False) -> Iterator[NewObject]:
    """Yield the pods of a step, as a user sends them or, with `is_stored`, as a watch delivers them."""
    template = with_name(op.template, NAME)
    template["metadata"]["namespace"] = NAMESPACE
    if op.volume:
        claim = {"name": "vol", "persistentVolumeClaim": {"claimName": NAME}}
        template["spec"]["volumes"] = [*template["spec"].get("volumes", ()), claim]
    if op.claims:
        names = [f"claim-{number}" for number in range(len(op.claims))]
        template["spec"]["resourceClaims"] = [{"name": n, "resourceClaimName": f"{CLAIM}-{n}"} for n in names]
    body = msgspec.json.encode(stored_pod(template) if is_stored else as_sent(template))
    prefix = op.template["metadata"]["generateName"]
    for number in range(size.count(op.count)):
        name, namespace = f"{prefix}{step}-{number:06d}", op.namespace or f"namespace-{step}"
        if op.is_dealt:
            namespace = f"{op.namespace}-{number % size.namespaces}"
        filled = body.replace(b"@name@", name.encode()).replace(b"@namespace@", namespace.encode())
        if op.claims:
            filled = filled.replace(b"@claim@", _claims_name(op, step, number).encode())
        if is_stored:
            filled = filled.replace(b"@uid@", f"{namespace}-{name}".encode())
        yield NewObject(namespace, name, filled)


def _claims_name(op: CreatePods, step: int, number: int) -> str:
    return f"{op.template['metadata']['generateName']}{step}-{number // op.pods_per_claim:06d}"


def claims_of(op: CreatePods, step: int, size: Size) -> Iterator[Document]:
    """Yield the ResourceClaims of the step's pods, as a user creates them."""
    count = size.count(op.count) if op.claims else 0
    for number in range(0, count, op.pods_per_claim):
        for place, spec in enumerate(op.claims):
            name = f"{_claims_name(op, step, number)}-claim-{place}"
            meta = {"name": name, "namespace": op.namespace or f"namespace-{step}"}
            yield {"apiVersion": DRA_VERSION, "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def devices_of(op: CreateDevices, size: Size) -> Iterator[tuple[str, Document]]:
    """Yield the device class and the nodes' slices, as `(resource, document)`."""
    selectors = [{"cel": {"expression": op.selector}}] if op.selector else []
    meta: Document = {"name": op.class_name}
    head = {"apiVersion": DRA_VERSION, "kind": "DeviceClass", "metadata": meta, "spec": {"selectors": selectors}}
    yield "deviceclasses", head
    devices = [{"name": f"{op.class_name}-{number}", **op.device} for number in range(op.per_node)]
    for number in range(size.nodes):
        node = node_name(CreateNodes(), number)
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": op.driver, "pool": pool, "nodeName": node, "devices": devices}
        meta = {"name": f"{node}-{op.driver}"}
        yield "resourceslices", {"apiVersion": DRA_VERSION, "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def deferred_of(
    op: DeferResizes, step: int, size: Size, *, is_stored: bool = False
) -> Iterator[tuple[NewObject, Document]]:
    """Yield the step's pods, each bound to a node, with the status that its kubelet would write.

    `is_stored`: as a watch delivers them, status included.
    """
    container = op.template["spec"]["containers"][0]["name"]
    now = {"lastTransitionTime": CREATED, "status": "True"}
    status = {
        "phase": "Running",
        "startTime": CREATED,
        "conditions": [{"type": "PodScheduled", **now}, {"type": "PodResizePending", "reason": "Deferred", **now}],
        "containerStatuses": [
            {"name": container, "allocatedResources": op.allocated, "resources": {"requests": op.allocated}}
        ],
    }
    plain = CreatePods(op.template, op.count, namespace=op.namespace)
    for number, pod in enumerate(pods_of(plain, step, size, is_stored=is_stored)):
        document = msgspec.json.decode(pod.body)
        document["spec"]["nodeName"] = node_name(CreateNodes(), number % size.nodes)
        if is_stored:
            document["status"] = {**document["status"], **status}
        yield NewObject(pod.namespace, pod.name, msgspec.json.encode(document)), {"status": status}


def with_name(document: Document, name: str) -> Document:
    """Return a copy with this name instead of a name prefix."""
    copied = copy.deepcopy(document)
    copied["metadata"].pop("generateName", None)
    copied["metadata"]["name"] = name
    return copied


def as_sent(pod: Document) -> Document:
    """Return the pod with a priority class instead of a number, which only admission may write."""
    priority = pod["spec"].pop("priority", None)
    if priority is not None:
        pod["spec"]["priorityClassName"] = PRIORITY_CLASS.format(priority)
    return pod


def stored_pod(pod: Document) -> Document:
    """Return the pod as the API server completes it; its uid is `UID`."""
    spec = pod_defaults.requests_from_limits(POD_SPEC.complete(pod["spec"]))
    spec["tolerations"] = pod_defaults.tolerations_with_defaults(list(spec.get("tolerations") or []))
    spec |= {"serviceAccountName": "default", "serviceAccount": "default", "enableServiceLinks": True}
    if "priority" in spec:
        spec["priorityClassName"] = PRIORITY_CLASS.format(spec["priority"])
    spec.setdefault("priority", 0)
    metadata = {**pod["metadata"], "uid": UID, "resourceVersion": "1", "creationTimestamp": CREATED}
    status = {"phase": "Pending", "qosClass": pod_defaults.qos_class(spec)}
    return {**pod, "metadata": metadata, "spec": spec, "status": status}


def priorities_of(workload: Workload) -> list[int]:
    """Return the distinct priorities of the workload's pods, ascending."""
    found = set()
    for op in workload.ops:
        documents = [op.template] if isinstance(op, CreatePods) else [d for _, d in getattr(op, "templates", ())]
        found |= {document["spec"]["priority"] for document in documents if "priority" in document.get("spec", {})}
    return sorted(found)


def volumes_of(volume: Volume, namespace: str, name: str) -> Iterator[tuple[str, Document]]:
    """Yield a volume and its claim, bound to each other, as `(resource, document)`."""
    amount = {"storage": "1Gi"}
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": name}
    is_csi = volume == "csi"
    source = {"csi": {"driver": EBS, "volumeHandle": name}} if is_csi else {"awsElasticBlockStore": {"volumeID": name}}
    holds = {"accessModes": ["ReadOnlyMany"], "capacity": amount}
    yield (
        "persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}", "annotations": {"pv.kubernetes.io/bound-by-controller": "true"}},
            "spec": {**holds, "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim, **source},
            "status": {"phase": "Bound"},
        },
    )
    annotations = {"pv.kubernetes.io/bind-completed": "true"}
    wants = {"accessModes": holds["accessModes"], "resources": {"requests": amount}}
    yield (
        "persistentvolumeclaims",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {**wants, "volumeName": f"pv-{name}"},
            "status": {"phase": "Bound", **holds},
        },
    )
