"""The server's lines in the event log: what was asked and answered, committed, and given to watchers.

Each is written before its effect is disclosed. Besides its bytes the log says of a change the fields by which
invariants judge it. Source: guarantees 1.2 for names and fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from apiserver_fake.errors import find_resource
from apiserver_fake.storage.journal import Recovered
from apiserver_fake.storage.records import ADDED, DELETED, Cause, Change, Entry
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_hub import Watcher
from apiserver_fake.storage.writer import BATCH_CHANGES
from services.api.identity import Identity
from services.api.kinds.job import Job
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import CLAIMS, POD_CLAIM_NAME, ResourceClaim
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document
from services.api.podresources import amounts, as_allocated, pod_requests
from services.api.resources import resources
from services.api.seams import EventLog, Span
from services.api.wire import Request, Response, WatchEvent, WatchRequest


class _Owner(msgspec.Struct):
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    generation: int = 0
    deletion_timestamp: str = ""
    finalizers: list[str] = []
    owner_references: list[_Owner] = []


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    binding_generation: int = 0
    unbind_count: int = 0
    observed_generation: int = 0
    nominated_node_name: str = ""
    resource_claim_statuses: list[_PodClaim] = []


class _PodClaim(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


class _SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_group: _SchedulingGroup | None = None
    resource_claims: list[_PodClaim] = []


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, str] = {}


class _LeaseSpec(msgspec.Struct, rename="camel"):
    lease_transitions: int | None = None


class _SliceSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Any(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Pod(_Any):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Node(_Any):
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Slice(_Any):
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Lease(_Any):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_LEASES, _GROUPS, _JOBS = "leases.coordination.k8s.io", "podgroups.scheduling.k8s.io", "jobs.batch"
_ANY = msgspec.json.Decoder(_Any)
_POD = msgspec.json.Decoder(_Pod)
_NODE = msgspec.json.Decoder(_Node)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "pods": _POD,
    "nodes": _NODE,
    _LEASES: msgspec.json.Decoder(_Lease),
    SLICES: msgspec.json.Decoder(_Slice),
}
_CLAIM = msgspec.json.Decoder(ResourceClaim)
_WHOLE_POD = msgspec.json.Decoder(Pod)
_GROUP = msgspec.json.Decoder(PodGroup)
_JOB = msgspec.json.Decoder(Job)


def facts_of(resource: str, body: bytes, *, is_new: bool) -> Document:
    """Return what the invariants judge a stored object by: the fields that may only go one way.

    `is_new`: also what does not change afterwards, and what a pod asks for, which is recorded again when it changes.
    """
    found: Document = {}
    decoded: _Any = _DECODERS.get(resource, _ANY).decode(body)
    if decoded.metadata.deletion_timestamp:
        found["deletion"] = decoded.metadata.deletion_timestamp
    if decoded.metadata.finalizers:
        found["finalizers"] = decoded.metadata.finalizers
    if decoded.metadata.owner_references:
        found["owners"] = [owner.uid for owner in decoded.metadata.owner_references]
    if isinstance(decoded, _Pod):
        found |= {
            "node": decoded.spec.node_name,
            "phase": decoded.status.phase,
            "binding_generation": decoded.status.binding_generation,
            "unbind_count": decoded.status.unbind_count,
            "observed": decoded.status.observed_generation,
            "nominated": decoded.status.nominated_node_name,
        }
        if decoded.spec.resource_claims:
            made = {each.name: each.resource_claim_name for each in decoded.status.resource_claim_statuses}
            names = (each.resource_claim_name or made.get(each.name) for each in decoded.spec.resource_claims)
            found["claims"] = [name for name in names if name]
        # A spec that changed after the pod was bound may ask for another size, and the node may have granted it.
        is_changed = decoded.metadata.generation > max(1, decoded.status.binding_generation)
        if is_new or (is_changed and not decoded.metadata.deletion_timestamp):
            found["requests"] = _requests(body)
        if is_new and decoded.spec.scheduling_group is not None:
            found["group"] = decoded.spec.scheduling_group.pod_group_name
    elif resource == _GROUPS:
        gang = _GROUP.decode(body).spec.scheduling_policy.gang
        found["min_count"] = gang.min_count if gang is not None else 0
    elif resource == _JOBS:
        found["job"] = _counts(_JOB.decode(body))
    elif resource == CLAIMS:
        found |= _grant(_CLAIM.decode(body))
    elif isinstance(decoded, _Slice):
        found["node"] = decoded.spec.node_name
    elif isinstance(decoded, _Lease):
        found["transitions"] = decoded.spec.lease_transitions or 0
    elif isinstance(decoded, _Node):
        try:
            found["allocatable"] = amounts(decoded.status.allocatable)
        except ValueError:
            found["allocatable"] = {}
    return found


def _counts(job: Job) -> Document:
    """Return a Job's counters. `exact`: every end of a pod counts, whatever the pod was and how it ended."""
    listed = job.status.uncounted_terminated_pods
    return {
        "succeeded": job.status.succeeded,
        "failed": job.status.failed,
        "uncounted": [*listed.succeeded, *listed.failed] if listed is not None else [],
        "finished": job.is_finished,
        "complete": any(c.type == "Complete" and c.status == "True" for c in job.status.conditions),
        "exact": not job.spec.is_indexed and job.spec.pod_failure_policy is None,
    }


def _grant(claim: ResourceClaim) -> Document:
    """Return what a claim was granted and who may use it; `nodes` only where the selector names nodes."""
    found: Document = {"consumers": [each.uid for each in claim.status.reserved_for]}
    if POD_CLAIM_NAME in claim.metadata.annotations:
        found["generated"] = True
    allocation = claim.status.allocation
    if allocation is None:
        return found
    found["granted"] = ["/".join(each) for each in allocation.device_ids]
    selector = allocation.node_selector
    if selector is not None and len(selector.node_selector_terms) == 1:
        term = selector.node_selector_terms[0]
        if not term.match_expressions and len(term.match_fields) == 1 and term.match_fields[0].operator == "In":
            found["nodes"] = list(term.match_fields[0].values)
    return found


def _requests(body: bytes) -> dict[str, int]:
    try:
        return pod_requests(as_allocated(_WHOLE_POD.decode(body)))
    except (msgspec.MsgspecError, ValueError):
        return {}  # what no reader can make out asks for nothing


MUTATING = frozenset(("create", "update", "patch", "delete", "deletecollection"))


class EventLines:
    """The server's way to the event log. With a state hash, each commit's line carries the hash after it."""

    def __init__(self, events: EventLog, store: Store) -> None:
        self._events, self._store = events, store
        self._hash = 0

    def recovered(self, recovered: Recovered) -> None:
        """Write what the store held after the start, and the commits whose lines may be missing."""
        store = self._store
        self._hash = store.state_hash
        data: Document = {
            "durable_rv": store.rv,
            "replayed": len(recovered.entries),
            "bytes_cut": recovered.bytes_cut,
        }
        if store.hashing:
            data["state_hash"] = f"{store.state_hash:064x}"
        self._events.write("store.recovered", rv=store.rv, data=data)
        # At most the last batch can have become durable without its lines having been written.
        for entry in recovered.entries[-BATCH_CHANGES:]:
            self._replayed(entry)

    def _replayed(self, entry: Entry) -> None:
        data = {
            "type": entry.type,
            "group_end": entry.group_end,
            "content_sha256": hashlib.sha256(entry.body).hexdigest(),
            "prev_rv": entry.previous_rv,
            "replayed": True,
            **facts_of(entry.resource, entry.body, is_new=entry.type == ADDED),
        }
        kind = find_resource(entry.resource).kind
        self._events.write("store.commit", obj=(kind, entry.namespace, entry.name, entry.uid), rv=entry.rv, data=data)

    def request(self, identity: Identity, request: Request, span: Span) -> None:
        """Write that a call that may change something has arrived."""
        data: Document = {"verb": request.verb, "path": _path(request)}
        if request.uid:
            data["uid"] = request.uid
        if request.resource_version:
            data["resourceVersion"] = request.resource_version
        self._events.write(
            "api.request", req_id=request.request_id, identity=identity.user, trace_id=span.trace_id, data=data
        )

    def response(self, identity: Identity, request: Request, span: Span, response: Response) -> None:
        """Write what a call was answered; before the answer leaves."""
        data: Document = {"verb": request.verb, "path": _path(request), "code": response.code}
        if response.code >= 400:
            data["reason"] = response.error().reason
        data["definite"] = response.code != 504 or request.verb not in MUTATING
        self._events.write(
            "api.response",
            rv=response.rv or None,
            req_id=request.request_id,
            identity=identity.user,
            trace_id=span.trace_id,
            data=data,
        )

    def commits(self, changes: Sequence[Change]) -> None:
        """Write a line for each change, in the order of versions; before anybody sees them."""
        known = resources()
        for change in changes:
            record, previous = change.record, change.previous
            data: Document = {
                "type": change.type,
                "group_end": change.group_end,
                "content_sha256": hashlib.sha256(record.body).hexdigest(),
                "prev_rv": previous.rv if previous is not None else 0,
                **_cause(change.cause),
                **facts_of(record.resource, record.body, is_new=change.type == ADDED),
            }
            if self._store.hashing:
                added = 0 if change.type == DELETED else record.digest
                removed = previous.digest if previous is not None else 0
                self._hash = (self._hash + added - removed) % (1 << 256)
                data["state_hash"] = f"{self._hash:064x}"
            kind = known[record.resource].kind
            trace_id = change.traceparent[3:35] if change.traceparent.endswith("01") else ""
            self._events.write(
                "store.commit",
                obj=(kind, record.namespace, record.name, record.uid),
                rv=change.rv,
                identity=change.cause.identity if change.cause else "",
                req_id=change.cause.request_id if change.cause else "",
                trace_id=trace_id,
                data=data,
            )

    def watch_opened(self, watcher: Watcher, request: WatchRequest) -> None:
        """Write that a watch begins, and from where."""
        data = {
            "watch": watcher.number,
            "resource": watcher.resource.name,
            "start_rv": watcher.start_rv,
            **_selector(request),
        }
        self._events.write("watch.open", identity=watcher.identity.user, data=data)

    def watch_events(self, watcher: Watcher, events: list[WatchEvent]) -> None:
        """Write what a watcher is about to be given."""
        for event in events:
            data: Document = {"watch": watcher.number, "resource": watcher.resource.name}
            if event.type == "BOOKMARK":
                data["initial_events_end"] = event.initial_events_end
                self._events.write("watch.bookmark", rv=event.rv, identity=watcher.identity.user, data=data)
                continue
            data |= {"type": event.type, "content_sha256": hashlib.sha256(event.body).hexdigest()}
            obj = (watcher.resource.kind, event.namespace, event.name, event.uid)
            self._events.write("watch.event", obj=obj, rv=event.rv, identity=watcher.identity.user, data=data)

    def watch_closed(self, watcher: Watcher) -> None:
        """Write why a watch ended."""
        data = {
            "watch": watcher.number,
            "resource": watcher.resource.name,
            "reason": watcher.end_reason,
            "last_rv": watcher.last_rv,
            "queued": watcher.queued,
        }
        self._events.write("watch.close", identity=watcher.identity.user, data=data)


def _cause(cause: Cause | None) -> Document:
    if cause is None:
        return {}
    data: Document = {"verb": cause.verb, "subresource": cause.subresource}
    return data | {"lease_epoch": cause.lease_epoch} if cause.lease_epoch else data


def _path(request: Request) -> str:
    parts = (request.resource, request.namespace, request.name, request.subresource)
    return "/".join(parts).rstrip("/")


def _selector(request: WatchRequest) -> dict[str, str]:
    found = {"namespace": request.namespace, "labels": request.label_selector, "fields": request.field_selector}
    return {name: text for name, text in found.items() if text}
