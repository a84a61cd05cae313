"""The entry point of requests for every kind: authorization, choice of kind and verb, and plans of writes.

Writes come in two halves. When the request arrives, `authorize` checks it and `prepare` decodes it: everything that
needs no state. `prepare` returns a plan, made of a `Write` or `SubresourceWrite`. It runs inside the commit against the
newest state, and stages the change. Reads are in `reads`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from apiserver_fake.registry.accounts import NO_ACCOUNTS, ServiceAccounts
from apiserver_fake.registry.admission.attributes import EXEMPT, Admission, Complete, Connection
from apiserver_fake.registry.authorization.authorizer import authorize, rule_name
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.decode import decode, decode_object, json_object
from apiserver_fake.registry.errors import check_scope, method_not_allowed, no_such_path
from apiserver_fake.registry.managers import no_managers
from apiserver_fake.registry.policy import Policy, PolicySource
from apiserver_fake.registry.raw import SUBRESOURCE as RAW
from apiserver_fake.registry.raw import check_raw, raw_plan
from apiserver_fake.registry.read import ContinueTokens, Reads
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.strategy import delete_options, served_subresource
from apiserver_fake.registry.subresource_write import SubresourceWrite
from apiserver_fake.registry.write import Write
from apiserver_fake.registry.writes.bodies import APPLY
from apiserver_fake.registry.writes.contexts import MakeManagers, WriteContexts, document_of
from apiserver_fake.registry.writes.new_objects import Limits, new_uid
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Staged, Store
from services.api.errors import ApiError, BadRequest, Conflict, Forbidden
from services.api.identity import NODE_HOST_PREFIX, Identity
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.volumeattachment import ATTACHMENTS
from services.api.meta import Document, Resource
from services.api.seams import Clock, Random
from services.api.selectors import Term
from services.api.switches import Switches
from services.api.unbind import UnbindSwitches
from services.api.wire import STALE_LEASE_EPOCH, LeaseEpoch, Request, Response, WatchRequest

LEASES = "leases.coordination.k8s.io"

_ASKED_WHOLE = (CLAIMS, "persistentvolumes", ATTACHMENTS)

FORBIDDEN_MAX = 1_000
"""Maximum number of different forbidden requests of components that are counted."""

Plan = Callable[[Staged], Response]


class Registry:
    """The entry point of requests for every kind; `reads` answers those that change nothing."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        *,
        clock: Clock,
        random: Random,
        switches: Switches,
        cursors: ContinueTokens,
        limits: Limits,
        stored_policy: PolicySource | None = None,
        accounts: ServiceAccounts = NO_ACCOUNTS,
        is_converting: bool = True,
        managers: MakeManagers = no_managers,
        admission: Callable[[], Admission | None] = lambda: None,
    ) -> None:
        """Set up the write and read paths. `stored_policy` None: RBAC objects are stored and grant nothing.

        `is_converting`: whether conversion webhooks can be called. `admission`: returns webhooks and policies, or None;
        first called when one of them is stored.
        """
        self._store, self._catalogue, self._switches, self._random = store, catalogue, switches, random
        self._stored_policy = stored_policy
        self._surroundings = WriteContexts(
            catalogue,
            clock=clock,
            random=random,
            switches=switches,
            limits=limits,
            policy=self.policy_for if stored_policy is not None else None,
            accounts=accounts,
            is_converting=is_converting,
            managers=managers,
        )
        self._admission = admission
        self.is_guarded = False
        """Whether any webhook or policy is configured."""
        if any(store.counts().get(kind) for kind in EXEMPT):
            self.refresh_admission()
        self.forbidden: dict[tuple[str, str, str], int] = {}
        """Numbers of requests that the roles of mesh components do not allow, by user, verb and resource."""
        self.reads = Reads(store, catalogue, clock=clock, cursors=cursors)

    def policy_for(self, identity: Identity) -> Policy | None:
        """Return the RBAC policy for this caller; None for a component of the mesh, or without RBAC."""
        return self._stored_policy.current() if self._stored_policy is not None and identity.is_external else None

    def authorize(self, identity: Identity, request: Request, *, is_asked: bool = False) -> str:
        """Check that the identity may make the request, by names, identity and stored objects only.

        Returns the RBAC binding that allows the request, or "". `is_asked`: the decision is only queried; a refusal
        is not counted. Raises: Forbidden.
        """
        try:
            if request.subresource == RAW:
                check_raw(identity, self._switches)
                return ""
            policy = self.policy_for(identity) if self._stored_policy is not None else None
            return authorize(identity, request, self._lookup, partial(self._documents, identity), policy)
        except Forbidden:
            if not is_asked:
                self._count_forbidden(identity, request)
            raise

    def _count_forbidden(self, identity: Identity, request: Request) -> None:
        # The number of clients is unlimited, and the rights of nodes change with each pod.
        if identity.is_external or identity.node or identity.user.startswith(NODE_HOST_PREFIX):
            return
        asked = identity.user, request.verb, "/".join(filter(None, (request.resource, request.subresource)))
        if asked in self.forbidden or len(self.forbidden) < FORBIDDEN_MAX:
            self.forbidden[asked] = self.forbidden.get(asked, 0) + 1

    def decision(self, identity: Identity, request: Request) -> tuple[bool, str]:
        """Return whether the identity may make the request, and the allowing rule or binding, for the audit log."""
        try:
            reason = self.authorize(identity, request, is_asked=True)
        except ApiError as refused:
            return False, refused.message.partition("RBAC: ")[2]
        return True, reason or rule_name(identity, request, self._lookup)

    def authorize_watch(self, identity: Identity, request: WatchRequest) -> None:
        """Check that the identity may open the watch. Raises: Forbidden."""
        as_request = Request(
            verb="watch",
            resource=request.resource,
            api_version=request.api_version,
            namespace=request.namespace,
            label_selector=request.label_selector,
            field_selector=request.field_selector,
        )
        self.authorize(identity, as_request)

    def _documents(self, identity: Identity, resource: str, namespace: str) -> Iterable[Document]:
        """List objects for authorization; for a node, list only the node's own pods."""
        own = (Term("spec.nodeName", "in", (identity.node,)),) if identity.node else ()
        selection = Selection(namespace, fields=own if resource == "pods" else ())
        for record in self._store.select(resource, selection).records:
            yield msgspec.json.decode(record.body)

    def _lookup(self, resource: str, namespace: str, name: str) -> Document | None:
        """Return the part of an object that authorization reads: name, namespace, labels and a pod's node.

        Kinds whose content decides what nodes may read are returned whole.
        """
        record = self._store.get(resource, namespace, name)
        if record is None:
            return None
        if resource in _ASKED_WHOLE:
            document: Document = msgspec.json.decode(record.body)
            return document
        metadata = {"name": name, "namespace": namespace, "labels": record.labels}
        return {"metadata": metadata, "spec": {"nodeName": record.fields.get("spec.nodeName", "")}}

    def refresh_admission(self) -> None:
        """Read the stored webhook configurations and admission policies again."""
        admission = self._admission()
        if admission is None:
            return
        admission.refresh()
        self.is_guarded = admission.is_active
        self._surroundings.admission = admission if admission.is_active else None

    def may_call(self, request: Request) -> bool:
        """Whether a webhook may have to be called before the commit: one configured for the write, or a conversion
        webhook.
        """
        kind = self._catalogue.kinds.get(request.resource)
        if kind is None:
            raise no_such_path()
        if kind.asks:
            return True
        concern = self._surroundings.concern(kind.resource, request) if self.is_guarded else None
        return concern is not None and concern.calls

    def connect(
        self, identity: Identity, request: Request, options: Document, complete: Complete, session: Session
    ) -> Connection:
        """Return a connection's options after admission, evaluated on the visible state. Raises: ApiError, Pending."""
        if self._surroundings.admission is None:
            return Connection(options)
        kind = self._catalogue.kind(request.resource)
        write = Write(self._surroundings, kind, identity, request, "", session)
        return write.connect(self._store.stage(), options, complete)

    def prepare(self, identity: Identity, request: Request, traceparent: str, session: Session | None = None) -> Plan:
        """Return the write as a plan that runs inside the commit, fenced if the request has a lease epoch (C11).

        `session`: the webhooks' answers for this write; without a session no webhook is called. Raises: ApiError.
        """
        plan = self._plan(identity, request, traceparent, session)
        return fence(plan, request.lease_epoch) if request.lease_epoch else plan

    def _plan(self, identity: Identity, request: Request, traceparent: str, session: Session | None) -> Plan:
        kind = self._catalogue.kinds.get(request.resource)
        if kind is None:
            raise no_such_path()
        resource = kind.resource
        if not request.name or resource.namespaced is not bool(request.namespace):
            check_scope(resource, request)
        if request.subresource == RAW:
            return raw_plan(resource, request, traceparent, lambda: new_uid(self._random))
        if request.subresource:
            part = SubresourceWrite(self._surroundings, kind, identity, request, traceparent, session)
            return _prepare_subresource(part, resource, request)
        write = Write(self._surroundings, kind, identity, request, traceparent, session)
        match request.verb:
            case "create":
                body = decode_object(request.body, f"a {resource.kind}", write.bodies.repeated)
                return lambda staged: write.create(staged, body)
            case "update":
                body = decode_object(request.body, f"a {resource.kind}", write.bodies.repeated)
                return lambda staged: write.replace(staged, body)
            case "patch" if request.patch_type == APPLY:
                config = _configuration(request.body, write.bodies.repeated)
                as_create = msgspec.structs.replace(request, verb="create")
                return lambda staged: write.apply(staged, config, lambda: self.authorize(identity, as_create))
            case "patch":
                patch = decode(request.body, write.bodies.repeated)
                return lambda staged: write.update(
                    staged, lambda old: write.bodies.apply_patch(old, patch), is_patch=True
                )
            case "delete":
                options = delete_options(request)
                return lambda staged: write.delete(staged, options)
        raise method_not_allowed()


def _prepare_subresource(write: SubresourceWrite, resource: Resource, request: Request) -> Plan:
    sub = served_subresource(resource, write.strategy, request)
    body: Any
    if request.patch_type == APPLY:
        body = _configuration(request.body, write.bodies.repeated)
    elif request.verb == "patch":
        body = decode(request.body, write.bodies.repeated)
    else:
        body = decode_object(request.body, f"a {request.subresource}", write.bodies.repeated) if request.body else {}
    return lambda staged: write.subresource(staged, sub, body)


def _configuration(body: bytes, repeated: list[str] | None) -> Document:
    json_object(body, "error decoding YAML", "an apply patch must be an object")
    config: Document = decode(body, repeated)
    return config


UNBINDS = frozenset(("unbind", "binding"))
"""Subresources whose requests may be an unbind in either spelling."""


def as_unbind(request: Request, switches: Switches) -> Request:
    """Return an unbind in either spelling as `create` on `unbind`; return every other request unchanged.

    With `unbind.api=binding_delete` an unbind is a DELETE of the binding. After this step, authorization, audit and
    checks see only one name. Raises: NotFound for a spelling that is not the configured one.
    """
    spelled = (request.verb, request.subresource)
    if request.resource != "pods" or spelled not in (("create", "unbind"), ("delete", "binding")):
        return request
    if spelled != switches.of(UnbindSwitches).spelling:
        raise no_such_path()
    return msgspec.structs.replace(request, verb="create", subresource="unbind")


def fence(plan: Plan, text: str) -> Plan:
    """Return the write with a fence: it is refused if the Lease under which it was made has changed holders since.

    Leader election is only a hint: a leader that was frozen, or whose packets were delayed, does not know that it was
    replaced. So each of its writes names the Lease and the `leaseTransitions` at which it acquired the Lease
    (`<namespace>/<name>/<transitions>`). A write made under an older value is refused inside the commit, where the
    stored Lease is the newest; its content is not examined. A Lease that is not stored fences no writer.

    `text`: the header `x-lease-epoch`. Source: guarantees C11 and 15.5 (client-go does not fence). Raises: BadRequest
    for a malformed text; from the plan, Conflict with reason StaleLeaseEpoch.
    """
    try:
        epoch = LeaseEpoch.parse(text)
    except ValueError as error:
        raise BadRequest(f"x-lease-epoch: {error}") from None

    def check_epoch(staged: Staged) -> Response:
        lease = document_of(staged.get(LEASES, epoch.namespace, epoch.name)) or {}
        transitions = (lease.get("spec") or {}).get("leaseTransitions") or 0
        if transitions > epoch.transitions:
            raise Conflict(
                f"lease {epoch.namespace}/{epoch.name} was taken again: it is at {transitions} transitions, "
                f"this write was made at {epoch.transitions}",
                reason=STALE_LEASE_EPOCH,
                details={"name": epoch.name, "group": "coordination.k8s.io", "kind": "leases"},
            )
        return plan(staged)

    return check_epoch
