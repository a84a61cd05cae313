"""Capacity of a workload's nodes for its pods, from the templates of both: pods that cannot fit are refused at once."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateNodes, CreatePods, Size, Workload
from services.api.meta import Document
from services.api.quantity import amount

PODS: Final = "pods"
ALONE: Final = "nodes without another such pod"
VOLUMES: Final = "attachable volumes"


class TooManyPods(ValueError):
    """More pods than the nodes can hold; the benchmark would wait for ever. The message has both figures."""


def check_fits(workload: Workload, size: Size) -> None:
    """Refuse a size at which the workload's pods cannot all have a node. Raises: TooManyPods.

    Pods that may wait are not counted, and pods of less priority that came before make room. Devices,
    affinities and skews are not judged.
    """
    pods = [op for op in workload.ops if isinstance(op, CreatePods) and not op.may_wait]
    nodes = [op for op in workload.ops if isinstance(op, CreateNodes)]
    for place, last in enumerate(pods):
        together = [op for op in pods[: place + 1] if _priority(op) >= _priority(last)]
        wanted = sum(size.count(op.count) for op in together)
        for resource in dict.fromkeys(name for op in together for name in requests_of(op)):
            capacity = sum(size.count(node.count) * _capacity(node, together, resource) for node in nodes)
            users = sum(size.count(op.count) for op in together if resource in requests_of(op))
            if users > capacity:
                refuse(wanted=wanted, users=users, capacity=capacity, resource=resource, nodes=size.nodes)


def refuse(*, wanted: int, users: int, capacity: int, resource: str, nodes: int) -> None:
    """Say how many pods do not fit. Raises: TooManyPods."""
    of = f"{users:,}" if users == wanted else f"{users:,} of {wanted:,}"
    raise TooManyPods(f"{of} pods do not fit: {nodes:,} nodes hold {capacity:,} such pods, limited by {resource}")


def check_default_nodes(*, nodes: int, pods: int, requests: Mapping[str, str], allocatable: Mapping[str, str]) -> None:
    """Refuse more pods than emulated nodes that are alike can hold. Raises: TooManyPods."""
    each = {resource: per_node(resource, text, allocatable) for resource, text in {PODS: "1", **requests}.items()}
    resource = min(each, key=each.__getitem__)
    if pods > nodes * each[resource]:
        refuse(wanted=pods, users=pods, capacity=nodes * each[resource], resource=resource, nodes=nodes)


def per_node(resource: str, request: str, allocatable: Mapping[str, str]) -> int:
    """Return how many pods with this request one node holds."""
    return amount(resource, allocatable.get(resource, "0")) // max(amount(resource, request), 1)


def requests_of(op: CreatePods) -> dict[str, int]:
    """Return what a pod of the step takes of each limited resource, in the resource's smallest unit."""
    requests: dict[str, int] = {PODS: 1}
    for container in op.template["spec"]["containers"]:
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            requests[resource] = requests.get(resource, 0) + amount(resource, text)
    if any(_keeps_apart(term, op.template) for term in _anti_terms(op.template)):
        requests[ALONE] = 1
    if op.volume == "csi":
        requests[VOLUMES] = 1
    return requests


def _capacity(node: CreateNodes, pods: list[CreatePods], resource: str) -> int:
    """Return how many pods that use the resource one node holds, as many of the smallest ones as can be."""
    smallest = min(of[resource] for op in pods if resource in (of := requests_of(op)))
    if resource == ALONE:
        return 1
    if resource == VOLUMES:
        return min((count for _, count in node.attachable), default=10**9)
    allocatable = node.template["status"]["allocatable"]
    return amount(resource, allocatable.get(resource, "0")) // max(smallest, 1)


def _priority(op: CreatePods) -> int:
    return int(op.template["spec"].get("priority", 0))


def _anti_terms(template: Document) -> Iterator[dict[str, Any]]:
    anti = template["spec"].get("affinity", {}).get("podAntiAffinity", {})
    yield from anti.get("requiredDuringSchedulingIgnoredDuringExecution", ())


def _keeps_apart(term: Mapping[str, Any], template: Document) -> bool:
    """Whether a pod of the template may not be on a node with another one."""
    labels = template["metadata"].get("labels", {})
    wanted = term.get("labelSelector", {}).get("matchLabels", {})
    return term["topologyKey"] == templates.HOSTNAME and bool(wanted) and wanted.items() <= labels.items()
