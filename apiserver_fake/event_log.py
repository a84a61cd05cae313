"""The server's lines in the event log: requests and responses, commits, and events sent to watchers.

Each line is written before its effect is disclosed. A commit's line carries, besides the hash of the bytes, the
fields by which invariants judge the object. Source: guarantees 1.2 for names and fields.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypedDict

import msgspec

from apiserver_fake.registry.admission.attributes import Connection
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.requests import MUTATING
from apiserver_fake.storage.journal import Recovered
from apiserver_fake.storage.records import ADDED, DELETED, Change, Entry, entry_of
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_hub import Watcher
from apiserver_fake.storage.writer import BATCH_CHANGES
from services.api.errors import UNREADABLE, ApiError
from services.api.identity import Identity
from services.api.kinds.job import Job
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import POD_CLAIM_NAME, ResourceClaim
from services.api.meta import Document
from services.api.podresources import amounts, as_allocated, pod_requests
from services.api.seams import EventLog, Span
from services.api.wire import Request, Response, WatchEvent, WatchRequest

_CLAIM = msgspec.json.Decoder(ResourceClaim)
_WHOLE_POD = msgspec.json.Decoder(Pod)
_JOB = msgspec.json.Decoder(Job)


class _Metadata(TypedDict, total=False):
    deletionTimestamp: Any
    finalizers: Any
    generation: Any
    ownerReferences: Any


class _Head(TypedDict, total=False):
    metadata: _Metadata


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    resourceClaims: Any
    schedulingGroup: Any


class _PodStatus(TypedDict, total=False):
    phase: Any
    bindingGeneration: Any
    unbindCount: Any
    observedGeneration: Any
    nominatedNodeName: Any
    resourceClaimStatuses: Any


class _PodHead(_Head, total=False):
    spec: _PodSpec | None
    status: _PodStatus | None


_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    "pods": msgspec.json.Decoder(_PodHead),
    **dict.fromkeys(
        (
            *("nodes", "leases.coordination.k8s.io", "podgroups.scheduling.k8s.io", "jobs.batch"),
            *("resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"),
        ),
        msgspec.json.Decoder(),
    ),
}
"""Decoders of what is judged, by kind."""
_HEAD: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Head)
"""Decoder of what is judged of all other kinds."""


def facts_of(resource: str, body: bytes, *, is_new: bool) -> Document:
    """Return the fields of a stored object by which invariants judge it: those that may only change in one
    direction.

    `is_new`: also return the fields that never change afterwards, and a pod's resource requests, which are recorded
    again when they change.
    """
    try:
        document: Document = _DECODERS.get(resource, _HEAD).decode(body)
    except msgspec.ValidationError:  # a value of a wrong shape, written past admission
        document = msgspec.json.decode(body)
    meta, facts = document["metadata"], Document()
    if meta.get("deletionTimestamp"):
        facts["deletion"] = meta["deletionTimestamp"]
    if meta.get("finalizers"):
        facts["finalizers"] = meta["finalizers"]
    if meta.get("ownerReferences"):
        facts["owners"] = [owner.get("uid") or "" for owner in meta["ownerReferences"]]
    if resource not in _DECODERS:
        return facts
    spec, status = document.get("spec") or {}, document.get("status") or {}
    match resource:
        case "pods":
            facts |= _pod(body, meta, spec, status, is_new=is_new)
        case "nodes":
            try:
                facts["allocatable"] = amounts(status.get("allocatable") or {})
            except ValueError:
                facts["allocatable"] = {}
        case "leases.coordination.k8s.io":
            facts["transitions"] = spec.get("leaseTransitions") or 0
        case "podgroups.scheduling.k8s.io":
            facts["min_count"] = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount") or 0
        case "jobs.batch":
            facts["job"] = _counts(_JOB.decode(body))
        case "resourceclaims.resource.k8s.io":
            facts |= _grant(_CLAIM.decode(body)) | {"bytes": len(body)}
        case "resourceslices.resource.k8s.io":
            facts["node"] = spec.get("nodeName") or ""
    return facts


def _pod(body: bytes, meta: Document, spec: Document, status: Document, *, is_new: bool) -> Document:
    bound = status.get("bindingGeneration") or 0
    facts: Document = {
        "node": spec.get("nodeName") or "",
        "phase": status.get("phase") or "",
        "binding_generation": bound,
        "unbind_count": status.get("unbindCount") or 0,
        "observed": status.get("observedGeneration") or 0,
        "nominated": status.get("nominatedNodeName") or "",
    }
    if claims := spec.get("resourceClaims"):
        generated_names = {
            each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()
        }
        names = (each.get("resourceClaimName") or generated_names.get(each.get("name")) for each in claims)
        facts["claims"] = [name for name in names if name]
    # A spec that changed after the pod was bound may ask for another size, and the node may have granted it.
    is_changed = (meta.get("generation") or 0) > max(1, bound)
    if is_new or (is_changed and not meta.get("deletionTimestamp")):
        facts["requests"] = _requests(body)
    if is_new and spec.get("schedulingGroup") is not None:
        facts["group"] = spec["schedulingGroup"].get("podGroupName") or ""
    return facts


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
    facts: Document = {"consumers": [each.uid for each in claim.status.reserved_for]}
    workloads = [each for each in claim.status.reserved_for if not each.is_pod]
    if workloads:
        facts["workloads"] = [each.name for each in workloads]
        facts["shared"] = claim.status.allocation is not None and claim.status.allocation.reserved_for_any_pod
    if POD_CLAIM_NAME in claim.metadata.annotations:
        facts["generated"] = True
    allocation = claim.status.allocation
    if allocation is None:
        return facts
    # Shares of one device are things of their own, and admin access takes nothing from others.
    exclusive = (each for each in allocation.devices.results if not each.admin_access)
    facts["granted"] = ["/".join((*each.id, *((each.share_id,) if each.share_id else ()))) for each in exclusive]
    selector = allocation.node_selector
    if selector is not None and len(selector.node_selector_terms) == 1:
        term = selector.node_selector_terms[0]
        if not term.match_expressions and len(term.match_fields) == 1 and term.match_fields[0].operator == "In":
            facts["nodes"] = list(term.match_fields[0].values)
    return facts


def _requests(body: bytes) -> dict[str, int]:
    try:
        return pod_requests(as_allocated(_WHOLE_POD.decode(body)))
    except (*UNREADABLE, ValueError):
        return {}  # what no reader can make out asks for nothing


class EventLines:
    """Writes the server's lines to the event log. With a state hash, each commit's line carries the hash after
    the commit.
    """

    def __init__(self, events: EventLog, store: Store, catalogue: Catalogue) -> None:
        self._events, self._store, self._catalogue = events, store, catalogue
        self._hash = 0

    def on_recovered(self, recovered: Recovered) -> None:
        """Write the state of the store after the start, and the commits whose lines may be missing."""
        store = self._store
        self._hash = store.state_hash
        data: Document = {"durable_rv": store.rv, "replayed": len(recovered.entries), "bytes_cut": recovered.bytes_cut}
        if store.hashing:
            data["state_hash"] = f"{store.state_hash:064x}"
        self._events.write("store.recovered", rv=store.rv, data=data)
        if recovered.is_copy:
            for record in sorted(store.state_at(recovered.base_rv), key=attrgetter("rv")):
                self._write_replayed_entry(entry_of(Change(record.rv, ADDED, record, None, record.rv)))
        # At most the last batch can have become durable without its lines having been written.
        for entry in recovered.entries[-BATCH_CHANGES:]:
            self._write_replayed_entry(entry)

    def _write_replayed_entry(self, entry: Entry) -> None:
        data = {
            "type": entry.type,
            "group_end": entry.group_end,
            "content_sha256": hashlib.sha256(entry.body).hexdigest(),
            "prev_rv": entry.previous_rv,
            "replayed": True,
            **facts_of(entry.resource, entry.body, is_new=entry.type == ADDED),
        }
        known = self._catalogue.resources.get(entry.resource)
        kind = known.kind if known is not None else str(msgspec.json.decode(entry.body).get("kind", ""))
        self._events.write("store.commit", obj=(kind, entry.namespace, entry.name, entry.uid), rv=entry.rv, data=data)

    def request(self, identity: Identity, request: Request, span: Span) -> None:
        """Write that a call that may change something has arrived."""
        data: Document = {
            "verb": request.verb,
            "path": _path(request.resource, request.namespace, request.name, request.subresource),
        }
        if request.uid:
            data["uid"] = request.uid
        if request.resource_version:
            data["resourceVersion"] = request.resource_version
        self._events.write(
            "api.request", req_id=request.request_id, identity=identity.user, trace_id=span.trace_id, data=data
        )

    def response(self, identity: Identity, request: Request, span: Span, response: Response) -> None:
        """Write the answer to a call, before the answer leaves."""
        data: Document = {
            "verb": request.verb,
            "path": _path(request.resource, request.namespace, request.name, request.subresource),
            "code": response.code,
        }
        if response.code >= 400:
            data["reason"] = response.error().reason
        data["definite"] = response.code != 504 or request.verb not in MUTATING
        if response.audit:
            data["audit"] = dict(response.audit)
        self._events.write(
            "api.response",
            rv=response.rv or None,
            req_id=request.request_id,
            identity=identity.user,
            trace_id=span.trace_id,
            data=data,
        )

    def raw_write(self, identity: Identity, request: Request, response: Response) -> None:
        """Write that an object was written past admission. Invariants report later findings about it as "by hand"."""
        metadata = msgspec.json.decode(response.body)["metadata"]
        self._events.write(
            "raw.write",
            obj=(request.resource, request.namespace, request.name, metadata.get("uid") or ""),
            rv=response.rv,
            identity=identity.user,
            data={"verb": "put" if request.verb == "update" else "del"},
        )

    def connection(self, identity: Identity, request: Request, answer: Connection | ApiError) -> None:
        """Write a connection request and admission's audit annotations, before the connection is opened or refused."""
        path = _path(request.resource, request.namespace, request.name, request.subresource)
        asked: Document = {"verb": request.verb, "path": path}
        data = {**asked, "audit": dict(answer.audit)} if answer.audit else asked
        self._events.write("api.request", identity=identity.user, data=data)
        if isinstance(answer, ApiError):
            refused = {**asked, "code": answer.code, "reason": answer.reason, "definite": True}
            self._events.write("api.response", identity=identity.user, data=refused)

    def commits(self, changes: Sequence[Change], *, is_replayed: bool = False) -> None:
        """Write a line for each change, in the order of versions, before any watch shows it.

        `is_replayed`: another API server has committed the changes, and writes lines of its own.
        """
        known = self._catalogue.resources
        for change in changes:
            record, previous = change.record, change.previous
            data: Document = {
                "type": change.type,
                "group_end": change.group_end,
                "content_sha256": hashlib.sha256(record.body).hexdigest(),
                "prev_rv": previous.rv if previous is not None else 0,
            }
            if is_replayed:
                data["replayed"] = True
            cause = change.cause
            if cause is not None:
                data["verb"], data["subresource"] = cause.verb, cause.subresource
                if cause.lease_epoch:
                    data["lease_epoch"] = cause.lease_epoch
            data |= facts_of(record.resource, record.body, is_new=change.type == ADDED)
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
                identity=cause.identity if cause else "",
                req_id=cause.request_id if cause else "",
                trace_id=trace_id,
                data=data,
            )

    def watch_opened(self, watcher: Watcher, request: WatchRequest) -> None:
        """Write that a watch begins, and its start resourceVersion."""
        data = {
            "watch": watcher.number,
            "resource": watcher.resource.name,
            "start_rv": watcher.start_rv,
            **_selector(request),
        }
        self._events.write("watch.open", identity=watcher.identity.user, data=data)

    def watch_events(self, watcher: Watcher, events: list[WatchEvent]) -> None:
        """Write the events that a watcher is about to receive."""
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
            "queued": watcher.queue_length,
        }
        self._events.write("watch.close", identity=watcher.identity.user, data=data)


@lru_cache(maxsize=1024)
def _path(resource: str, namespace: str, name: str, subresource: str) -> str:
    """Return the path of a request; its answer's line asks for it again."""
    return "/".join((resource, namespace, name, subresource)).rstrip("/")


def _selector(request: WatchRequest) -> dict[str, str]:
    found = {"namespace": request.namespace, "labels": request.label_selector, "fields": request.field_selector}
    return {name: text for name, text in found.items() if text}
