"""A pod and a node as plugins see them: parsed once, so that a cycle only compares integers."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any, Final

from scheduler.cache.pod_terms import Identity, PodTerms, identity_of, terms_of
from scheduler.cache.requests import PodRequests, requests_of
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod, PodSpec
from services.api.meta import Key, ObjectMeta

HostPort = tuple[str, str, int]
"""`(host IP, protocol, port)`."""
ANY_IP = "0.0.0.0"
_generations: Final = itertools.count(1)


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports a pod occupies: main containers and sidecars, not plain init containers (12.7)."""
    ports: list[HostPort] = []
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port > 0:
                ports.append((port.host_ip or ANY_IP, port.protocol or "TCP", port.host_port))
    return tuple(ports)


def volume_claims(pod: Pod) -> tuple[Key, ...]:
    """Return the claims a pod mounts, those made for it alone included, each once."""
    meta = pod.metadata
    names = dict.fromkeys(name for volume in pod.spec.volumes if (name := volume.claim_name(meta.name)))
    return tuple(Key(meta.namespace, name) for name in names)


class PodInfo:
    """A pod with what its cycles need of it, computed when it is first seen.

    `signature` caches the runner's identity of the row-pure part of its spec; `attempts` survives an
    unbind, because the pod's queue entry does not (kubelet-unbinding 7.2). `claims`: the volume claims it
    mounts, each once.
    """

    __slots__ = (
        "_identity",
        "_terms",
        "attempts",
        "claims",
        "key",
        "pod",
        "ports",
        "priority",
        "requests",
        "signature",
        "uid",
    )

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.key: Key = pod.metadata.key
        self.uid: str = pod.metadata.uid
        self.priority: int = pod.spec.priority
        self.requests: PodRequests = requests_of(pod)
        self.ports: tuple[HostPort, ...] = host_ports(pod)
        self.claims: tuple[Key, ...] = volume_claims(pod) if pod.spec.volumes else ()
        self.signature: int | None = None
        self.attempts = 0
        self._identity: Identity | None = None
        self._terms: PodTerms | None = None

    @property
    def spec(self) -> PodSpec:
        """The pod's spec."""
        return self.pod.spec

    @property
    def metadata(self) -> ObjectMeta:
        """The pod's metadata."""
        return self.pod.metadata

    @property
    def identity(self) -> Identity:
        """What selectors saw of the pod when they were first asked."""
        if self._identity is None:
            self._identity = identity_of(self.pod)
        return self._identity

    @property
    def terms(self) -> PodTerms:
        """What the pod says of other pods."""
        if self._terms is None:
            self._terms = terms_of(self.pod)
        return self._terms

    @property
    def unbind_count(self) -> int:
        """How often this pod has been unbound."""
        return self.pod.status.unbind_count

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


class NodeInfo:
    """A node with what runs, or is assumed to run, on it.

    `requested` counts real requests by resource, `nonzero_*` those with the defaults of scheduler-queue-and-cycles 6
    (milli-CPU, bytes). `allocatable` is parsed. A NodeInfo without `node` holds pods of a node that is
    not known (yet, or any more). `slot` is the node's row in the columns, -1 without one. `generation` is
    another number, of no order in particular, after each change of the node or of a pod on it. `claims`: volume
    claims in use here, with the number of pods that use each. `unactuated_pods`: the pods of whom a part of what is
    requested the kubelet has not actuated.
    """

    __slots__ = (
        "allocatable",
        "claims",
        "generation",
        "name",
        "node",
        "nonzero_cpu",
        "nonzero_memory",
        "pods",
        "requested",
        "slot",
        "unactuated_pods",
        "used_ports",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.slot = -1
        self.pods: dict[str, PodInfo] = {}
        self.allocatable: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        self.nonzero_cpu = 0
        self.nonzero_memory = 0
        self.used_ports: dict[HostPort, int] = {}
        self.claims: dict[Key, int] = {}
        self.unactuated_pods: dict[str, PodInfo] = {}
        self.generation = next(_generations)

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels; empty for an unknown node."""
        return self.node.metadata.labels if self.node is not None else {}

    def add(self, pod: PodInfo) -> None:
        """Count a pod in."""
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> PodInfo | None:
        """Count a pod out; None when it was not here."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod

    def requested_to(self, priority: int) -> dict[str, int]:
        """Return what counts as requested for a pod of that priority: not what lower ones have not been given yet."""
        lesser = [pod.requests.unactuated for pod in self.unactuated_pods.values() if pod.priority < priority]
        requested = self.requested
        if lesser:
            requested = dict(requested)
            for unactuated in lesser:
                for name, amount in unactuated.items():
                    requested[name] -= amount
        return requested

    def touch(self) -> None:
        """Note a change that no count shows: of the node itself, or of a pod that costs what it did."""
        self.generation = next(_generations)

    def _count(self, pod: PodInfo, sign: int) -> None:
        self.generation = next(_generations)
        need = pod.requests
        requested = self.requested
        for name, amount in need.wanted:
            requested[name] = requested.get(name, 0) + sign * amount
        if need.unactuated:
            if sign > 0:
                self.unactuated_pods[pod.uid] = pod
            else:
                self.unactuated_pods.pop(pod.uid, None)
        self.nonzero_cpu += sign * need.nonzero_cpu
        self.nonzero_memory += sign * need.nonzero_memory
        for port in pod.ports:
            count = self.used_ports.get(port, 0) + sign
            if count:
                self.used_ports[port] = count
            else:
                del self.used_ports[port]
        for claim in pod.claims:
            users = self.claims.get(claim, 0) + sign
            if users:
                self.claims[claim] = users
            else:
                del self.claims[claim]

    def with_pods(self, pods: list[PodInfo]) -> NodeInfo:
        """Return a copy with these pods added, as if they ran here."""
        copy = NodeInfo(self.name)
        copy.node, copy.slot, copy.allocatable = self.node, self.slot, self.allocatable
        copy.pods, copy.requested, copy.used_ports = dict(self.pods), dict(self.requested), dict(self.used_ports)
        copy.nonzero_cpu, copy.nonzero_memory = self.nonzero_cpu, self.nonzero_memory
        copy.claims = dict(self.claims)
        copy.unactuated_pods = dict(self.unactuated_pods)
        for pod in pods:
            copy.add(pod)
        return copy


def freeze(value: Any) -> Hashable:
    """Return a hashable twin of a view, dict or tuple, equal when the originals are."""
    if isinstance(value, dict):
        return tuple(sorted((k, freeze(v)) for k, v in value.items()))
    if isinstance(value, tuple | list):
        return tuple(freeze(v) for v in value)
    result: Hashable = value
    return result
