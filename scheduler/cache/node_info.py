"""A pod and a node as plugins see them: parsed once, so that a cycle only compares integers.

The requests of a pod are parsed once for each distinct template: the real ones and those that scoring
assumes. Scoring pretends that a container without a request still needs 100 m CPU and 200 MiB, or
best-effort pods would all pile up on one node (scheduler-queue-and-cycles 6). An explicit `0` stays 0.

A pod's conditions on other pods are compiled once: label selectors, and terms of pod affinity and
anti-affinity. A missing selector selects nothing, an empty one everything. A selector that the API server
would have refused selects nothing, because one odd pod must not stop all others. Source:
scheduler-queue-and-cycles 6, 12.4.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from services.api.kinds.node import Node
from services.api.kinds.pod import Affinity, Container, Pod, PodAffinity, PodAffinityTerm, PodSpec, ResourceRequirements
from services.api.lru import LRU
from services.api.meta import Key, LabelSelector, LabelSelectorRequirement, ObjectMeta
from services.api.podresources import Amounts, as_in_use, pod_requests
from services.api.selectors import Selector, Term, from_label_selector

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
DEFAULTS: Final = {"cpu": "100m", "memory": str(200 * 2**20)}
TEMPLATES_MAX: Final = 8192
AMOUNT_MAX: Final = 2**53 - 1
"""The largest amount that a column (float64) holds exactly."""
SELECTORS_MAX: Final = 16384
HostPort = tuple[str, str, int]
"""A host port: `(host IP, protocol, port)`."""
ANY_IP = "0.0.0.0"
_generations: Final = itertools.count(1)
K = TypeVar("K", bound=Hashable)


# -- what a pod asks for


@dataclass(frozen=True, slots=True, eq=False)
class PodRequests:
    """A pod's requests: milli for cpu, units for all else. Compared by identity: equal templates share one.

    `wanted`: the requests above zero, in a fixed order. `nonzero_*` are the amounts of a bound pod in scoring,
    `scoring_*` those of an incoming pod: upstream ignores pod-level resources there (12.6). `unactuated`: the
    part that a pod on a node has requested and not been given yet, if that is tracked.
    """

    amounts: Amounts
    wanted: tuple[tuple[str, int], ...]
    nonzero_cpu: int
    nonzero_memory: int
    scoring_cpu: int
    scoring_memory: int
    is_malformed: bool = False
    unactuated: Amounts = field(default_factory=dict)


_templates: LRU[Hashable, PodRequests] = LRU(TEMPLATES_MAX)


def _shape(resources: ResourceRequirements) -> Hashable:
    return (tuple(resources.requests.items()), tuple(resources.limits.items()))


def _signature(pod: Pod) -> Hashable:
    spec = pod.spec
    return (
        tuple(_shape(c.resources) for c in spec.containers),
        tuple((c.restart_policy, _shape(c.resources)) for c in spec.init_containers),
        tuple(spec.overhead.items()),
        None if spec.resources is None else _shape(spec.resources),
    )


def requests_of(pod: Pod, specified: PodRequests | None = None) -> PodRequests:
    """Return the pod's requests, shared by its template.

    A pod on a node counts with the most that a resize may hold (KEP-1287). `specified`: those of its spec, if known.
    """
    used = pod
    if pod.status.container_statuses and pod.spec.node_name:
        with contextlib.suppress(ValueError):  # a malformed quantity shows below, in the spec
            used = as_in_use(pod)
    return specified if specified is not None and used is pod else as_specified(used)


def as_specified(pod: Pod) -> PodRequests:
    """Return the requests of the pod's spec, shared in the same way, whatever its status says."""
    signature = _signature(pod)
    requests = _templates.get(signature)
    if requests is None:
        requests = _parse(pod)
        _templates.put(signature, requests)
    return requests


def _parse(pod: Pod) -> PodRequests:
    try:
        real = pod_requests(pod)
        filled = _with_defaults(pod)
        assumed = pod_requests(filled)
        incoming = pod_requests(replace(filled, spec=replace(filled.spec, resources=None)))
    except ValueError:
        # The API server refuses such quantities; one that came through must not stop all other pods.
        return PodRequests({}, (), 0, 0, 0, 0, is_malformed=True)
    real = {name: min(value, AMOUNT_MAX) for name, value in real.items()}
    return PodRequests(
        amounts=real,
        wanted=tuple((name, real[name]) for name in sorted(real, key=native_first) if real[name] > 0),
        nonzero_cpu=assumed.get("cpu", 0),
        nonzero_memory=min(assumed.get("memory", 0), AMOUNT_MAX),
        scoring_cpu=incoming.get("cpu", 0),
        scoring_memory=min(incoming.get("memory", 0), AMOUNT_MAX),
    )


def most(one: PodRequests, other: PodRequests) -> PodRequests:
    """Return the larger request of both for each resource; one of the two when it covers the other."""
    names = list(dict.fromkeys((*one.amounts, *other.amounts)))
    amounts = {name: max(one.amounts.get(name, 0), other.amounts.get(name, 0)) for name in names}
    if amounts == one.amounts:
        return one
    return dataclasses.replace(
        other,
        amounts=amounts,
        wanted=tuple((name, amounts[name]) for name in sorted(names, key=native_first) if amounts[name] > 0),
        nonzero_cpu=max(one.nonzero_cpu, other.nonzero_cpu),
        nonzero_memory=max(one.nonzero_memory, other.nonzero_memory),
    )


def native_first(name: str) -> tuple[int, str]:
    """Return the sort key of a resource: the native ones in their order, then all others by name."""
    return (NATIVE.index(name) if name in NATIVE else len(NATIVE), name)


def _with_defaults(pod: Pod) -> Pod:
    def fill_requests(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            replace(c, resources=replace(c.resources, requests=DEFAULTS | c.resources.limits | c.resources.requests))
            for c in containers
        )

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec, containers=fill_requests(spec.containers), init_containers=fill_requests(spec.init_containers)
        ),
    )


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports a pod occupies: main containers and sidecars, not plain init containers (12.7)."""
    ports: list[HostPort] = []
    for i, container in enumerate((*pod.spec.containers, *pod.spec.init_containers)):
        if i >= len(pod.spec.containers) and container.restart_policy != "Always":
            continue
        for port in container.ports:
            if port.host_port > 0:
                ports.append((port.host_ip or ANY_IP, port.protocol or "TCP", port.host_port))
    return tuple(ports)


def volume_claims(pod: Pod) -> tuple[Key, ...]:
    """Return the claims that a pod mounts, its own generated claims included, without duplicates."""
    meta = pod.metadata
    names = dict.fromkeys(name for volume in pod.spec.volumes if (name := volume.claim_name(meta.name)))
    return tuple(Key(meta.namespace, name) for name in names)


# -- what a pod says of others


@lru_cache(maxsize=SELECTORS_MAX)
def _compile_selector(
    labels: tuple[tuple[str, str], ...], wanted: tuple[LabelSelectorRequirement, ...]
) -> Selector | None:
    try:
        return from_label_selector(LabelSelector(match_labels=dict(labels), match_expressions=wanted))
    except ValueError:
        return None


def compile_selector(selector: LabelSelector | None) -> Selector | None:
    """Return the matcher, shared by equal selectors; None selects nothing."""
    if selector is None:
        return None
    return _compile_selector(tuple(selector.match_labels.items()), selector.match_expressions)


def with_labels(selector: Selector | None, labels: Iterable[tuple[str, str]]) -> Selector | None:
    """Return the selector that also requires these labels; without labels it is unchanged."""
    more = tuple(Term(key, "in", (value,)) for key, value in labels)
    if not more:
        return selector
    return Selector(more + (selector.terms if selector is not None else ()))


class Identity(NamedTuple):
    """The attributes of a pod that selectors can distinguish; `labels` are sorted pairs."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    is_terminating: bool


class PodTerm(NamedTuple):
    """A pod affinity term: pods in matching namespaces whose labels match, grouped by a node label.

    A pod's namespace matches by name, or by its labels if there is a namespace selector.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector | None
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether the term matches a pod of that namespace with these labels."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        return namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )


class WeightedTerm(NamedTuple):
    """A preferred term."""

    weight: int
    term: PodTerm


class PodTerms(NamedTuple):
    """All pod affinity and anti-affinity terms of one pod."""

    required_affinity: tuple[PodTerm, ...] = ()
    required_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[WeightedTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedTerm, ...] = ()


NO_TERMS: Final = PodTerms()


def terms_of(pod: Pod) -> PodTerms:
    """Return the pod's terms; without namespaces and namespace selector a term means the pod's own namespace."""
    affinity: Affinity | None = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    own = pod.metadata.namespace
    likes, dislikes = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    return PodTerms(
        tuple(_term(each, own) for each in likes.required),
        tuple(_term(each, own) for each in dislikes.required),
        tuple(WeightedTerm(each.weight, _term(each.pod_affinity_term, own)) for each in likes.preferred),
        tuple(WeightedTerm(each.weight, _term(each.pod_affinity_term, own)) for each in dislikes.preferred),
    )


def _term(term: PodAffinityTerm, own: str) -> PodTerm:
    names = frozenset(term.namespaces)
    if not names and term.namespace_selector is None:
        names = frozenset((own,))
    return PodTerm(
        namespaces=names,
        namespace_selector=compile_selector(term.namespace_selector),
        selector=compile_selector(term.label_selector),
        topology_key=term.topology_key,
    )


# -- the pod and the node


def _are_alike(before: PodSpec, spec: PodSpec) -> bool:
    """Whether two specs say the same; where the pod runs is not a part of what is computed from them."""
    if before.node_name == spec.node_name:
        return before == spec
    return replace(before, node_name=spec.node_name) == spec


class PodInfo:
    """A pod with the values that its cycles need, computed when it is first seen.

    `signature` caches the runner's identity of the row-pure part of its spec; `attempts` survives an unbind,
    because the pod's queue entry does not (kubelet-unbinding 7.2). `claims`: the volume claims it mounts,
    without duplicates. `spec` and `metadata` are the pod's.
    """

    __slots__ = (
        "_identity",
        "_is_shown_otherwise",
        "_specified",
        "_terms",
        "attempts",
        "claims",
        "key",
        "metadata",
        "pod",
        "ports",
        "priority",
        "requests",
        "signature",
        "spec",
        "uid",
    )

    def __init__(self, pod: Pod, before: PodInfo | None = None) -> None:
        """`before`: an earlier form of the same pod; what their spec and labels say alike is taken from it."""
        self.pod = pod
        self.spec: PodSpec = pod.spec
        self.metadata: ObjectMeta = pod.metadata
        self.uid: str = pod.metadata.uid
        self.priority: int = pod.spec.priority
        self.signature: int | None = None
        self.attempts = 0
        self._identity: Identity | None = None
        self._terms: PodTerms | None = NO_TERMS if pod.spec.affinity is None else None
        self._is_shown_otherwise = False
        if before is not None and not before._is_shown_otherwise and _are_alike(before.spec, pod.spec):
            self._take_after(before)
            return
        self.key: Key = pod.metadata.key
        self._specified = as_specified(pod)
        self.requests: PodRequests = requests_of(pod, self._specified)
        self.ports: tuple[HostPort, ...] = host_ports(pod)
        self.claims: tuple[Key, ...] = volume_claims(pod) if pod.spec.volumes else ()

    def _take_after(self, before: PodInfo) -> None:
        """Share what the equal spec says, and the identity when the metadata says the same."""
        self.key, self.ports, self.claims, self._terms = before.key, before.ports, before.claims, before._terms
        self._specified = before._specified
        self.requests = requests_of(self.pod, self._specified)
        was, now = before.metadata, self.metadata
        if was.labels == now.labels and (was.deletion_timestamp is None) == (now.deletion_timestamp is None):
            self._identity = before._identity

    def counts_like(self, before: PodInfo) -> bool:
        """Whether this form took after an earlier one, and counts, matches and asks for the same: only its status, or
        metadata that no plugin looks at, may differ.
        """
        return (
            self.requests is before.requests
            and self._identity is not None
            and self._identity is before._identity
            and self._terms is before._terms
        )

    def show(self, pod: Pod) -> None:
        """Show a newer form of the pod; what was computed stays as of the earlier one."""
        self.pod, self.spec, self.metadata = pod, pod.spec, pod.metadata
        self._is_shown_otherwise = True

    @property
    def identity(self) -> Identity:
        """The pod's identity for selectors, as of the first request for it."""
        if self._identity is None:
            meta = self.pod.metadata
            labels = tuple(sorted(meta.labels.items()))
            self._identity = Identity(meta.namespace, labels, meta.deletion_timestamp is not None)
        return self._identity

    @property
    def terms(self) -> PodTerms:
        """The pod's terms about other pods."""
        if self._terms is None:
            self._terms = terms_of(self.pod)
        return self._terms

    def is_seen_like(self, other: PodInfo) -> bool:
        """Whether selectors and other pods' terms meet the two forms of a pod alike."""
        has_shared_terms = self._terms is not None and self._terms is other._terms
        if not has_shared_terms and self.terms != other.terms:
            return False
        return (self._identity is not None and self._identity is other._identity) or self.identity == other.identity

    @property
    def unbind_count(self) -> int:
        """The number of times this pod has been unbound."""
        return self.pod.status.unbind_count

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


@dataclass(slots=True, eq=False)
class NodeInfo:
    """A node with the pods that run, or are assumed to run, on it.

    `requested` counts real requests by resource, `nonzero_*` those with the defaults of
    scheduler-queue-and-cycles 6 (milli-CPU, bytes). `allocatable` is parsed. A NodeInfo without `node` holds
    pods of a node that is not known (yet, or any more). `slot` is the node's row in the columns, -1 without
    one. `generation` is another number, of no order in particular, after each change of the node or of a pod on
    it. `claims`: volume claims in use here, with the number of pods that use each. `unactuated_pods`: pods with
    requests that the kubelet has not fully actuated.
    """

    name: str
    node: Node | None = None
    slot: int = -1
    pods: dict[str, PodInfo] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    nonzero_cpu: int = 0
    nonzero_memory: int = 0
    used_ports: dict[HostPort, int] = field(default_factory=dict)
    claims: dict[Key, int] = field(default_factory=dict)
    unactuated_pods: dict[str, PodInfo] = field(default_factory=dict)
    generation: int = field(default_factory=partial(next, _generations))

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels; empty for an unknown node."""
        return self.node.metadata.labels if self.node is not None else {}

    def add(self, pod: PodInfo) -> None:
        """Add a pod to the counts."""
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> PodInfo | None:
        """Remove a pod from the counts; None when it was not here."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod

    def requested_to(self, priority: int) -> dict[str, int]:
        """Return the requested amounts for a pod of that priority: without unactuated amounts of lower priorities."""
        lesser = [pod.requests.unactuated for pod in self.unactuated_pods.values() if pod.priority < priority]
        requested = self.requested
        if lesser:
            requested = dict(requested)
            for unactuated in lesser:
                for name, amount in unactuated.items():
                    requested[name] -= amount
        return requested

    def touch(self) -> None:
        """Note a change that changes no count: of the node itself, or of a pod with equal requests."""
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
            count(self.used_ports, port, sign)
        for claim in pod.claims:
            count(self.claims, claim, sign)

    def with_pods(self, pods: list[PodInfo]) -> NodeInfo:
        """Return a copy with these pods added, as if they ran here."""
        copy = dataclasses.replace(
            self,
            pods=dict(self.pods),
            requested=dict(self.requested),
            used_ports=dict(self.used_ports),
            claims=dict(self.claims),
            unactuated_pods=dict(self.unactuated_pods),
            generation=next(_generations),
        )
        for pod in pods:
            copy.add(pod)
        return copy


def count(counts: dict[K, int], key: K, by: int) -> None:
    """Change one of several counts by `by`; a count that falls to zero is removed."""
    there = counts.get(key, 0) + by
    if there:
        counts[key] = there
    else:
        counts.pop(key, None)
