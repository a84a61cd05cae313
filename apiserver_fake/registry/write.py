"""One write as it runs inside the commit: preconditions, defaults, admission, validation, staging.

Kinds differ by their `Strategy`, verbs by their `Subresource`; preconditions are checked here, against the
newest state (S7). A new object gets a name and a uid, and is checked against the limits on the number of
objects. Source: guarantees 8.2 for the order of work, kubectl-requests 5 and 7 for the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from apiserver_fake.registry import warnings
from apiserver_fake.registry.admission.attributes import Admitting, Complete, Connection
from apiserver_fake.registry.admission.guard import Guard
from apiserver_fake.registry.admission.quota import CHARGED_ON_UPDATE, charges
from apiserver_fake.registry.authorization.authorizer import admit, authorize_in_write
from apiserver_fake.registry.catalogue import Kind
from apiserver_fake.registry.errors import conflict, details_of
from apiserver_fake.registry.gated_fields import drop_disabled
from apiserver_fake.registry.managers import Applied, FieldManagers, set_managers
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.strategy import DeleteOptions, WriteContext
from apiserver_fake.registry.validation.formats import Cause, Causes, new_finalizers, required
from apiserver_fake.registry.writes.bodies import Bodies
from apiserver_fake.registry.writes.contexts import WriteContexts
from apiserver_fake.registry.writes.new_objects import (
    already_exists,
    check_capacity,
    check_namespace,
    generated_name,
    uid_for,
)
from apiserver_fake.registry.writes.preconditions import check_preconditions, check_uid, stored_object
from apiserver_fake.registry.writes.staging import QUOTAS, Stager, answer
from apiserver_fake.storage.records import Record, parse_rv
from apiserver_fake.storage.store import Staged
from services.api.errors import BadRequest, invalid
from services.api.identity import Identity
from services.api.meta import Document, metadata_of
from services.api.times import format_time
from services.api.wire import Request, Response

PODS = "pods"
ANSWERED_WHOLE = frozenset(
    (
        PODS, QUOTAS, "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims", "podtemplates",
        "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io", "csidrivers.storage.k8s.io",
        "volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
        "deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io",
    )
)  # fmt: skip
"""Kinds whose deletion is answered with the object instead of a Status, even when it is removed at once.

Source: upstream `pkg/registry` (`ReturnDeletedObject`).
"""
RBAC = "rbac.authorization.k8s.io"
CREATED_BY_UPDATE = frozenset(
    f"leases.coordination.k8s.io endpoints events limitranges runtimeclasses.node.k8s.io services "
    f"roles.{RBAC} rolebindings.{RBAC} clusterroles.{RBAC} clusterrolebindings.{RBAC}".split()
)
"""Kinds for which an update without a resourceVersion creates a missing object.

Source: upstream `pkg/registry` (`AllowCreateOnUpdate`).
"""
VERSION_REQUIRED = frozenset(("pods", "nodes", "resourceclaims.resource.k8s.io", "leases.coordination.k8s.io"))
"""Kinds whose PUT must name a resourceVersion (S6)."""
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT = ("uid", "resourceVersion", "creationTimestamp", *_DELETION, "generation", "generateName", "selfLink")
"""Metadata that an update does not change."""
_GIVEN = ("uid", "creationTimestamp", "generation")
"""Metadata that the server sets in a new object after admission changed it."""


class Write:
    """One write being evaluated inside the commit."""

    def __init__(
        self,
        contexts: WriteContexts,
        kind: Kind,
        identity: Identity,
        request: Request,
        traceparent: str,
        session: Session | None = None,
    ) -> None:
        self.contexts, self.resource, self.identity = contexts, kind.resource, identity
        self.request, self.traceparent, self._session = request, traceparent, session
        self._kind, self._is_outside, self.strategy = kind, bool(request.field_validation), kind.strategy
        self.bodies = Bodies(contexts.catalogue, kind, request, session)
        self._guard = Guard(contexts, kind.resource, identity, request, session, authorize_in_write)
        self._stager = Stager(kind.resource, traceparent, contexts.catalogue.find, request.dry_run)

    def _managers(self) -> FieldManagers:
        return self.contexts.managers(self._kind, self.identity, self.request, self.bodies.versions)

    # -- create

    def create(self, staged: Staged, body: Document, managed: list[Document] | None = None) -> Response:
        """Stage a new object and return it. `managed`: its `managedFields`, for an apply. Raises: ApiError."""
        self.bodies.forget_unknown()
        request, resource = self.request, self.resource
        ctx = self.contexts.context(self.identity, request, staged, self.strategy, self._session)
        new = self.bodies.own(body if managed is not None else self.bodies.as_stored(body, None))
        name = self._name_creation(staged, new["metadata"], ctx)
        taken = staged.get(resource.name, request.namespace, name)
        if self._is_outside:
            ctx.warnings.extend(self.bodies.faults())
        managers = self._complete_metadata(new, taken, managed, ctx)
        self._prepare_create(new, ctx)
        admit(self.identity, request, None, new, ctx)
        admitting = None if self.contexts.admission is None else self._guard.admitting(ctx)
        if admitting is not None:
            new = self._mutated_creation(admitting, new, ctx, is_generated=not metadata_of(body).get("name"))
        self._refuse(name, self.strategy.validate(None, new, ctx))
        if self.strategy.check_bounds is not None:
            self.strategy.check_bounds(None, new, ctx)
        if admitting is not None:
            self._guard.examine(admitting, self._guard.attributes(new, None, name), ctx)
        if self._is_outside:
            ctx.warnings.extend(warnings.of(resource.name, None, new))
        charged = charges(resource, None, new, ctx)
        if taken is not None:
            raise already_exists(resource, taken)
        check_capacity(self.contexts.limits, staged, resource, request.namespace, name)
        if managers:
            new["metadata"]["managedFields"] = managers
        return answer(*self._stager.create(staged, new, charged), ctx, 201)

    def _name_creation(self, staged: Staged, meta: Document, ctx: WriteContext) -> str:
        """Return the name of a new object, and write it and the namespace into its metadata. Raises: ApiError."""
        request, resource = self.request, self.resource
        self.bodies.place(meta)
        name: str = meta.get("name") or ""
        if request.name and name and name != request.name:
            self.bodies.check_name(name)
        if resource.namespaced:
            check_namespace(staged, resource, request.namespace, name)
        if not name and meta.get("generateName"):
            prefix = meta["generateName"]
            name = generated_name(self._session, ctx.random, staged, resource, request.namespace, prefix)
            meta["name"] = name
        if not name:
            self._refuse(name, [required("metadata.name", "name or generateName is required")])
        return name

    def _complete_metadata(
        self, new: Document, taken: Record | None, managed: list[Document] | None, ctx: WriteContext
    ) -> list[Document]:
        """Give a new object the metadata that only the server sets; return its `managedFields`. Raises: BadRequest."""
        meta = new["metadata"]
        if str(meta.get("resourceVersion") or "0") != "0":
            raise BadRequest("resourceVersion should not be set on objects to be created")
        for field in (*_DELETION, "resourceVersion", "selfLink", "generation"):
            meta.pop(field, None)
        sent = meta.pop("managedFields", None)
        managers = managed
        if managers is None and self._is_outside:
            managers = self._managers().managers_after_create(sent, self.strategy.apply_defaults(new), ctx.wall_s)
        meta["uid"] = uid_for(self._session, ctx.random, taken)
        meta["creationTimestamp"] = format_time(ctx.wall_s)
        if self.resource.has_generation:
            meta["generation"] = 1
        return managers or []

    def _refuse(self, name: str, causes: Causes) -> None:
        if found := [*causes]:
            raise invalid(self.resource.qualified_kind, name, found)

    def _mutated_creation(
        self, admitting: Admitting, new: Document, ctx: WriteContext, *, is_generated: bool
    ) -> Document:
        """Return a new object after policies and webhooks, which do not see the fields that the server sets."""
        given = {name: new["metadata"][name] for name in _GIVEN if name in new["metadata"]}
        name = new["metadata"]["name"]
        if is_generated:
            given["name"] = name

        def without_server_fields(document: Document) -> Document:
            return {**document, "metadata": {n: v for n, v in document["metadata"].items() if n not in given}}

        def complete(document: Document) -> Document:
            found = self.bodies.own({**document, "metadata": {**(document.get("metadata") or {}), **given}})
            self.bodies.place(found["metadata"])
            self._check_name_is(found, name)
            self._prepare_create(found, ctx)
            return found

        attributes = self._guard.attributes(without_server_fields(new), None, "" if is_generated else name)
        changed = self._guard.mutate(
            admitting, attributes, ctx, lambda document: without_server_fields(complete(document))
        )
        return new if changed is None or changed == attributes.object else complete(changed)

    def _prepare_create(self, new: Document, ctx: WriteContext) -> None:
        drop_disabled(self.resource.name, None, new, ctx)
        self.strategy.prepare_create(new, ctx)

    def _prepare_update(self, old: Document, new: Document, ctx: WriteContext) -> None:
        drop_disabled(self.resource.name, old, new, ctx)
        self.strategy.prepare_update(old, new, ctx)

    def _check_name_is(self, document: Document, name: str) -> None:
        if (said := document["metadata"].get("name")) != name:
            raise BadRequest(f"admission may not change the name of the object from {name} to {said}")

    def _mutated_update(
        self, admitting: Admitting, new: Document, old: Document, stored: Record, ctx: WriteContext
    ) -> Document:
        def complete(document: Document) -> Document:
            found = self._inherit(document, old, stored, is_patch=True)
            self._prepare_update(old, found, ctx)
            return found

        attributes = self._guard.attributes(new, old, self.request.name)
        changed = self._guard.mutate(admitting, attributes, ctx, complete)
        return new if changed is None or changed == new else complete(changed)

    def connect(self, staged: Staged, options: Document, complete: Complete) -> Connection:
        """Return the options of a connection after policies and webhooks. Stages nothing. Raises: ApiError, Pending."""
        ctx = self.contexts.context(self.identity, self.request, staged, self.strategy, self._session)
        return self._guard.connect(ctx, options, complete)

    # -- update and patch

    def replace(self, staged: Staged, body: Document) -> Response:
        """Stage the object as in `body`; create it if it is missing and the kind allows that. Raises: ApiError."""
        request, resource = self.request, self.resource
        named = request.resource_version or metadata_of(body).get("resourceVersion")
        if (
            resource.name not in CREATED_BY_UPDATE
            or named
            or staged.get(resource.name, request.namespace, request.name)
        ):
            return self.update(staged, lambda old: self.bodies.as_stored(body, old), is_patch=False)
        create = msgspec.structs.replace(request, verb="create")
        creation = Write(self.contexts, self._kind, self.identity, create, self.traceparent, self._session)
        creation.bodies.repeated = self.bodies.repeated
        return creation.create(staged, body)

    def update(self, staged: Staged, change: Callable[[Document], Document | Applied], *, is_patch: bool) -> Response:
        """Stage the result of `change` on the stored object and return it. Raises: ApiError."""
        self.bodies.forget_unknown()
        request, resource = self.request, self.resource
        stored = stored_object(staged, self.resource, self.request)
        old = self.bodies.old(stored)
        check_preconditions(self.resource, stored, request.uid, request.resource_version)
        changed, managed = change(old), None
        if isinstance(changed, Applied):
            changed, managed = changed
        elif changed is old and self.contexts.admission is None:
            return Response(code=200, rv=stored.rv, body=stored.body)
        new = self._inherit(changed, old, stored, is_patch=is_patch)
        sent = new["metadata"].pop("managedFields", None)
        ctx = self.contexts.context(self.identity, request, staged, self.strategy, self._session)
        if self._is_outside:
            ctx.warnings.extend(self.bodies.faults())
        self._prepare_update(old, new, ctx)
        admit(self.identity, request, old, new, ctx)
        admitting = None if self.contexts.admission is None else self._guard.admitting(ctx)
        if admitting is not None:
            new = self._mutated_update(admitting, new, old, stored, ctx)
        self._refuse(request.name, [*new_finalizers(old, new), *self.strategy.validate(old, new, ctx)])
        if self.strategy.check_bounds is not None:
            self.strategy.check_bounds(old, new, ctx)
        if admitting is not None:
            self._guard.examine(admitting, self._guard.attributes(new, old, request.name), ctx)
        if self._is_outside:
            ctx.warnings.extend(warnings.of(resource.name, old, new))
        charged = charges(resource, old, new, ctx) if resource.name in CHARGED_ON_UPDATE else []
        if resource.has_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
        if self._is_outside or "managedFields" in old["metadata"]:
            set_managers(self._managers, old, new, sent, managed, ctx.wall_s)
        # An unchanged object is not stored again.
        body, rv = (stored.body, stored.rv) if new == old else self._stager.store(staged, stored, new, charged)
        return answer(body, rv, ctx, 200)

    def apply(self, staged: Staged, config: Document, may_create: Callable[[], object]) -> Response:
        """Stage the object after applying the configuration, creating it if it is missing; return it.

        `may_create` raises for a caller that may not create the object. Raises: ApiError.
        """
        request, resource = self.request, self.resource
        config = self.bodies.with_path_identity(config)
        wall_s = self.contexts.wall_s()
        if staged.get(resource.name, request.namespace, request.name) is None:
            may_create()
            outcome = self._managers().apply(None, config, wall_s)
            return self.create(staged, {**outcome.document}, outcome.managers)
        return self.update(staged, lambda old: self._managers().apply(old, config, wall_s), is_patch=True)

    def _inherit(self, changed: Document, old: Document, stored: Record, *, is_patch: bool) -> Document:
        """Return the new document with the fields that only the server may set taken from the old one (S19, S22).

        A uid and a resourceVersion in the caller's document count as preconditions.
        """
        new = self.bodies.own_patched(changed, old) if is_patch else self.bodies.own(_sharing(changed, old), old)
        meta, before = new["metadata"], old["metadata"]
        self.bodies.check_name(meta.get("name", before["name"]))
        self.bodies.place(meta)
        meta["name"] = before["name"]
        version = str(meta.get("resourceVersion") or "")
        check_uid(self.resource, stored, str(meta.get("uid") or ""), is_patch=is_patch and self._is_outside)
        check_preconditions(self.resource, stored, "", version)
        is_named = is_patch or version or self.request.resource_version
        if not is_named and (self.strategy.needs_version or self.resource.name in VERSION_REQUIRED):
            text = "Invalid value: 0x0: must be specified for an update"
            self._refuse(stored.name, [Cause("metadata.resourceVersion", "FieldValueInvalid", text)])
        for field in _KEPT:
            if field in before:
                meta[field] = before[field]
            else:
                meta.pop(field, None)
        return new

    # -- delete

    def delete(self, staged: Staged, options: DeleteOptions) -> Response:
        """Stage the removal of the object, or its deletion mark if a grace period or finalizers remain. Raises:
        ApiError.
        """
        request, resource = self.request, self.resource
        stored = stored_object(staged, self.resource, self.request)
        check_preconditions(self.resource, stored, options.uid, "")
        version = options.resource_version
        if version and version != "0" and parse_rv(version) != stored.rv:
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
            raise conflict(resource, stored.name, f"{why} ({stored.rv}). The object might have been modified")
        old: Document = msgspec.json.decode(stored.body)
        ctx = self.contexts.context(self.identity, request, staged, self.strategy, self._session)
        admit(self.identity, request, old, None, ctx)
        if (admitting := self._guard.admitting(ctx)) is not None:
            attributes = self._guard.attributes(None, old, stored.name)
            admitting.mutate(attributes, lambda document: document)
            self._guard.examine(admitting, attributes, ctx)
        remains = self.strategy.before_delete(old, ctx, options)
        if remains is None:
            body, rv = self._stager.store(staged, stored, old, is_gone=True)
            if resource.name in ANSWERED_WHOLE:
                return answer(body, rv, ctx, 200)
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {**details_of(resource, stored.name), "uid": stored.uid},
            }
            return answer(msgspec.json.encode(status), rv, ctx, 200)
        body, rv = (stored.body, stored.rv) if remains == old else self._stager.store(staged, stored, remains)
        return answer(body, rv, ctx, 200)


def _sharing(new: Document, old: Document) -> Document:
    """Return the document with the old one's members where both are equal, so that rules skip them by identity."""
    return {name: old[name] if _is_same(value, old.get(name)) else value for name, value in new.items()}


def _is_same(one: Any, other: Any) -> bool:
    # Equality alone would treat 1 and true as the same.
    return (
        isinstance(one, dict | list)
        and one == other
        and msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    )
