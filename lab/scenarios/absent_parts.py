"""Parts that an initial state refers to and the mesh lacks: drivers, schedulers, KWOK's kinds.

The mesh lacks them because the state does not say how they were created. Pods that need them wait, so the
reader is informed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubelet.node.definition import NodeDefinition
from lab.scenarios.initial_state import PODS, State
from lab.scenarios.mesh import MeshPlan
from scheduler.configuration.parser import read as read_configuration
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key
from services.dra.pod_claims import claim_keys
from services.runtime.components import DEFAULT_SCHEDULER

KWOK_GROUP: Final = ".kwok.x-k8s.io"
NAMED_MAX: Final = 3
"""Maximum number of objects named in a sentence; the others are counted."""


def absent_parts(plan: MeshPlan) -> list[str]:
    """Return a sentence for each part that the plan's state refers to and its mesh lacks, with the line that
    would declare it.
    """
    if plan.state is None:
        return []
    files = (f"the recording's scenario says `{line}`, which this mesh does not have" for line in _unread_files(plan))
    return [*_drivers(plan, plan.state), *_schedulers(plan, plan.state), *_kwok_kinds(plan, plan.state), *files]


def _unread_files(plan: MeshPlan) -> Iterable[str]:
    assert plan.state is not None
    has_config = bool(plan.schedulers.config)
    for line in plan.state.parts.file_lines:
        word, _, name = line.partition(" ")
        if not (has_config if word == "scheduler-config" else name in plan.stages):
            yield line


def _drivers(plan: MeshPlan, state: State) -> Iterable[str]:
    """Yield what nodes lack of drivers whose devices are allocated, in use or published."""
    nodes_of = _nodes_by_driver(plan)
    claims = {_key(claim): claim for claim in (msgspec.convert(each, ResourceClaim) for each in state.of(CLAIMS))}
    claims_of: dict[str, list[str]] = {}
    for key, claim in claims.items():
        for driver in _drivers_of(claim):
            claims_of.setdefault(driver, []).append(f"{key.namespace}/{key.name}")
    published = {str((each.get("spec") or {}).get("driver")) for each in state.of(SLICES)}
    for driver in sorted(claims_of.keys() | published):
        declare = f"declare nodes … drivers={driver}:0"
        lacking = f"{driver}, which no node of this mesh has"
        if driver in nodes_of:
            yield from _nodes_without(driver, nodes_of[driver], claims, state)
        elif driver in claims_of:
            named = claims_of[driver]
            what = f"claim {named[0]} is" if len(named) == 1 else f"claims {_names(named)} are"
            yield f"{what} allocated from {lacking}: pods with it will not start; {declare}"
        else:
            yield f"ResourceSlices are published by {lacking}: pods with its devices will not start; {declare}"


def _nodes_without(
    driver: str, nodes: frozenset[str], claims: Mapping[Key, ResourceClaim], state: State
) -> Iterable[str]:
    """Yield the nodes that have pods with claims of the driver, and not the driver."""
    waiting: dict[str, list[str]] = {}
    for pod in (msgspec.convert(each, Pod) for each in state.of(PODS)):
        node = pod.spec.node_name
        used = (claims[key] for key in claim_keys(pod) if key in claims)
        if node and node not in nodes and any(driver in _drivers_of(claim) for claim in used):
            waiting.setdefault(node, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    for node, pods in sorted(waiting.items()):
        what = f"pod {pods[0]} on {node} uses" if len(pods) == 1 else f"pods {_names(pods)} on {node} use"
        yield f"{what} claims of {driver}, which {node} does not have in this mesh"


def _nodes_by_driver(plan: MeshPlan) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for definition in map(NodeDefinition.parse, plan.nodes):
        for driver in definition.drivers:
            found.setdefault(driver.name, set()).add(definition.name)
    return {driver: frozenset(nodes) for driver, nodes in found.items()}


def _drivers_of(claim: ResourceClaim) -> set[str]:
    allocation = claim.status.allocation
    return {result.driver for result in allocation.devices.results} if allocation is not None else set()


def _schedulers(plan: MeshPlan, state: State) -> Iterable[str]:
    """Yield the schedulers that pods without a node name and the mesh does not have."""
    profiles = {DEFAULT_SCHEDULER}
    if plan.schedulers.config:
        configuration = read_configuration(Path(plan.schedulers.config).read_text(encoding="utf-8"))
        profiles = {each.scheduler_name or DEFAULT_SCHEDULER for each in configuration.profiles} or profiles
    known = profiles.union(plan.schedulers.others)
    waiting: dict[str, list[str]] = {}
    for pod in state.of(PODS):
        spec = pod.get("spec") or {}
        name = str(spec.get("schedulerName", DEFAULT_SCHEDULER))
        if name not in known and not spec.get("nodeName"):
            waiting.setdefault(name, []).append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    for name, pods in sorted(waiting.items()):
        what = f"pod {pods[0]} waits" if len(pods) == 1 else f"pods {_names(pods)} wait"
        yield f"{what} for scheduler {name}, which this mesh does not have; declare scheduler {name}"


def _kwok_kinds(plan: MeshPlan, state: State) -> Iterable[str]:
    """Yield the kinds of KWOK's that have objects and are not played."""
    stored = {str(each.document.get("kind")) for each in state.objects if each.resource.endswith(KWOK_GROUP)}
    for kind in sorted(stored.difference(plan.enable_crds)):
        yield f"objects of kind {kind} change nothing in this mesh; declare enable-crds {kind}"


def _key(claim: ResourceClaim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
