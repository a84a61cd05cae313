"""Disk contents of a mesh with a known state: its store, and what runs on its nodes."""

from collections.abc import Iterable, Mapping

import msgspec

from apiserver_fake.storage.journal import copied_files
from apiserver_fake.storage.records import BaseObject
from kubelet.agent.journal import files_of
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.records import PodRecord
from kubelet.runtime.runtime_state import reported_record
from kubelet.view import KubeletPod
from lab.scenarios.initial_state import PODS, State
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Document, Key
from services.dra.pod_claims import claim_keys

CLAIMS = "resourceclaims.resource.k8s.io"


def store_files(state: State) -> dict[str, bytes]:
    """Return the files of a store that has these objects."""
    kept = [
        BaseObject(each.resource, int(each.document["metadata"]["resourceVersion"]), msgspec.json.encode(each.document))
        for each in state.objects
    ]
    return copied_files(state.rv, kept)


def node_files(state: State, nodes: Iterable[str]) -> dict[str, bytes]:
    """Return the files of a kubelet host whose nodes run the pods bound to them."""
    wanted = frozenset(nodes)
    claims = {Key(made.metadata.namespace, made.metadata.name): made for made in map(_claim, state.of(CLAIMS))}
    pods = (msgspec.convert(each, KubeletPod) for each in state.of(PODS))
    made = (_record(pod, claims, state.wall_s) for pod in pods if pod.spec.node_name in wanted)
    return files_of(record for record in made if record is not None)


def _record(pod: KubeletPod, claims: Mapping[Key, ResourceClaim], wall_s: float) -> PodRecord | None:
    held = tuple(_held_claim(claims[key]) for key in claim_keys(pod) if key in claims and claims[key].status.allocation)
    return reported_record(pod, held, wall_s)


def _claim(document: Document) -> ResourceClaim:
    return msgspec.convert(document, ResourceClaim)


def _held_claim(claim: ResourceClaim) -> HeldClaim:
    assert claim.status.allocation is not None, "asked before"
    devices: dict[str, tuple[str, ...]] = {}
    for result in claim.status.allocation.devices.results:
        devices[result.driver] = (*devices.get(result.driver, ()), f"{result.pool}/{result.device}")
    return HeldClaim(claim.metadata.uid, claim.metadata.namespace, claim.metadata.name, devices)
