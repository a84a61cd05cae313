"""One write of a subresource as it runs inside the commit: how its body is read, what it does, what is staged.

What a subresource does is its own (`registry/subresources/`); how what is written to it is read, patched and applied is
a `Form`, by its name. Source: guarantees 8.2 for the order of work, kubectl-requests 5 and 7 for the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apiserver_fake.registry.admission.attributes import SUBRESOURCE_KINDS, Admitting
from apiserver_fake.registry.admission.guard import Guard
from apiserver_fake.registry.admission.quota import charges
from apiserver_fake.registry.authorization.authorizer import admit, authorize_in_write
from apiserver_fake.registry.errors import not_found
from apiserver_fake.registry.managers import SCALE, STATUS, Applied, FieldManagers, set_managers
from apiserver_fake.registry.schema.schemas import conform, shape_of
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.strategy import DeleteOptions, Subresource, SubresourceResult, WriteContext
from apiserver_fake.registry.writes.bodies import APPLY, Bodies
from apiserver_fake.registry.writes.contexts import WriteContexts
from apiserver_fake.registry.writes.preconditions import check_preconditions
from apiserver_fake.registry.writes.staging import Stager, answer
from apiserver_fake.storage.records import Record
from apiserver_fake.storage.store import Staged
from services.api.errors import BadRequest
from services.api.identity import Identity
from services.api.meta import Document, Resource, metadata_of
from services.api.wire import Request, Response

_COMPLETED: Final = ("status", "finalize", "resize", "ephemeralcontainers")
"""Subresources whose bodies are read once more after webhooks and policies have changed them."""


def _of_type(sub: Subresource, body: Document) -> Document:
    """Return a subresource's body as its type reads it. Raises: BadRequest where it is not of that type."""
    version, kind = sub.body
    return conform(shape_of(version, kind), version, kind, body) if kind else body


def _sent_as_is(bodies: Bodies, body: Document, old: Document) -> Document:
    return body


def _sent_status(bodies: Bodies, body: Document, old: Document) -> Document:
    return bodies.as_stored(body, old)


def _patched_form(bodies: Bodies, sub: Subresource, form: Document, patch: Any) -> Document:
    return _of_type(sub, bodies.patched_form(form, patch))


def _patched_status(bodies: Bodies, sub: Subresource, form: Document, patch: Any) -> Document:
    return bodies.apply_patch(form, patch)


def _applied_object(
    bodies: Bodies,
    sub: Subresource,
    old: Document,
    config: Document,
    managers: Callable[[], FieldManagers],
    wall_s: float,
) -> Applied:
    return managers().apply(old, bodies.with_path_identity(config), wall_s)


def _applied_scale(
    bodies: Bodies,
    sub: Subresource,
    old: Document,
    config: Document,
    managers: Callable[[], FieldManagers],
    wall_s: float,
) -> Applied:
    form = sub.read(old)
    if (config.get("apiVersion"), config.get("kind")) != (form["apiVersion"], form["kind"]):
        group, _, name = str(config.get("apiVersion") or "").rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{name}, Kind={config.get('kind')}")
    config = _of_type(sub, config)
    # The manager of a Scale's replicas is one of the replicas of the object that is scaled.
    spec = {name: value for name, value in (config.get("spec") or {}).items() if name == "replicas"}
    resource = bodies.resource
    mapped = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}
    outcome = managers().apply(old, mapped, wall_s)
    return Applied({**form, "spec": {"replicas": outcome.document["spec"].get("replicas")}}, outcome.managers)


def _answer_as_is(sub: Subresource, body: bytes) -> bytes:
    return body


def _answer_scale(sub: Subresource, body: bytes) -> bytes:
    return msgspec.json.encode(sub.read(msgspec.json.decode(body)))


@dataclass(frozen=True)
class Form:
    """How what is written to a subresource is read, and what its writer is answered.

    `sent(bodies, body, old)`: what an update sends. `patched(bodies, sub, form, patch)`: what a patch makes of what the
    subresource reads. `applied(bodies, sub, old, config, managers, wall_s)`: what applying a configuration makes of
    it, and of the object's managers. All raise ApiError, Unanswered. `answer(sub, body)`: from the object's bytes to
    those that are answered. `missing`: the subresource that is named when there is no such object.
    """

    sent: Callable[[Bodies, Document, Document], Document] = _sent_as_is
    patched: Callable[[Bodies, Subresource, Document, Any], Document] = _patched_form
    applied: Callable[[Bodies, Subresource, Document, Document, Callable[[], FieldManagers], float], Applied] = (
        _applied_object
    )
    answer: Callable[[Subresource, bytes], bytes] = _answer_as_is
    missing: str = ""


_PLAIN: Final = Form()
FORMS: Final[Mapping[str, Form]] = {
    STATUS: Form(sent=_sent_status, patched=_patched_status),
    SCALE: Form(applied=_applied_scale, answer=_answer_scale, missing=SCALE),
}
"""The forms of subresources by name; all others have the plain one."""


class SubresourceWrite:
    """One write of a subresource being evaluated inside the commit."""

    def __init__(
        self,
        contexts: WriteContexts,
        resource: Resource,
        identity: Identity,
        request: Request,
        traceparent: str,
        session: Session | None = None,
    ) -> None:
        self._contexts, self._resource, self._identity = contexts, resource, identity
        self._request, self._session = request, session
        self._kind, self._is_outside = contexts.catalogue.kind(resource.name), bool(request.field_validation)
        self.strategy = self._kind.strategy
        self.bodies = Bodies(contexts.catalogue, self._kind, request, session)
        self._guard = Guard(contexts, resource, identity, request, session, authorize_in_write)
        self._stager = Stager(resource, traceparent, contexts.catalogue.find, request.dry_run)

    def subresource(self, staged: Staged, sub: Subresource, body: Any) -> Response:
        """Stage the result of the subresource call and return its answer. Raises: ApiError."""
        request, resource, form = self._request, self._resource, FORMS.get(sub.name, _PLAIN)
        stored = staged.get(resource.name, request.namespace, request.name)
        old = None if stored is None else self.bodies.old(stored)
        ctx = self._contexts.context(self._identity, request, staged, self._session)
        if request.verb in ("create", "update"):
            body = _of_type(sub, body)
        sub.check_first(old, body, ctx)
        if stored is None or old is None:
            raise not_found(resource, request.name, subresource=form.missing)
        managed: list[Document] | None = None
        if request.verb in ("update", "patch"):
            check_preconditions(resource, stored, request.uid, request.resource_version)
            change = self._change(form, sub, old, body)
            if change is None:
                current = sub.read(old)
                return answer(stored.body if current is old else msgspec.json.encode(current), stored.rv, ctx, 200)
            body, managed = change
            body = self._checked_body(sub, stored, old, body, ctx)
        result = self._apply(sub, old, body, ctx)
        remains = result.document
        if request.verb in ("update", "patch") and (self._is_outside or "managedFields" in old["metadata"]):
            remains = self._with_managers(old, remains, managed, ctx)
        bytes_, rv = self._stage(staged, sub, stored, old, remains, result, ctx)
        if result.response is not None:
            return answer(msgspec.json.encode(result.response), rv, ctx, result.code)
        return answer(form.answer(sub, bytes_), rv, ctx, result.code)

    def _change(
        self, form: Form, sub: Subresource, old: Document, body: Any
    ) -> tuple[Document, list[Document] | None] | None:
        """Return what an update, patch or apply makes of what the subresource reads, and the object's managers where it
        is applied; None for a patch that changes nothing."""
        request = self._request
        if request.patch_type == APPLY:
            return form.applied(self.bodies, sub, old, body, self._managers, self._contexts.wall_s())
        if request.verb == "patch":
            current = sub.read(old)
            after = form.patched(self.bodies, sub, current, body)
            return None if after == current else (after, None)
        return form.sent(self.bodies, body, old), None

    def _checked_body(
        self, sub: Subresource, stored: Record, old: Document, body: Document, ctx: WriteContext
    ) -> Document:
        """Return the changed form once it names the object that is stored, as its type reads it. Raises: ApiError."""
        meta = body.get("metadata")
        if isinstance(meta, dict):
            uid, version = str(meta.get("uid") or ""), str(meta.get("resourceVersion") or "")
            check_preconditions(self._resource, stored, uid, version)
            self.bodies.check_name(meta.get("name", self._request.name))
        if not sub.body[1]:  # it is written in the form of the object
            body = self.bodies.typed_form(body, old)
        if self._is_outside:
            ctx.warnings.extend(self.bodies.faults())
        return body

    def _apply(self, sub: Subresource, old: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
        """Return what the subresource does, once it is admitted. Raises: ApiError."""
        request = self._request
        admitting = self._guard.admitting(ctx)
        if admitting is not None:
            body = self._mutated_form(admitting, sub, body, old, ctx)
        result = sub.apply(old, body, ctx)
        if result.document is not None and not sub.admits:
            admit(self._identity, request, old, result.document, ctx)
        if admitting is not None and request.verb != "create":
            after = body if result.document is None else sub.read(result.document)
            self._guard.examine(admitting, self._guard.attributes(after, sub.read(old), request.name), ctx)
        return result

    def _mutated_form(
        self, admitting: Admitting, sub: Subresource, body: Document, old: Document, ctx: WriteContext
    ) -> Document:
        """Return what is written to a subresource as policies and webhooks change it.

        What is created there (a binding, an eviction) is examined at once: the object it leads to is another.
        """
        request = self._request
        is_creation = request.verb == "create"
        is_form = not is_creation and sub.name in _COMPLETED
        if is_creation and (kind := SUBRESOURCE_KINDS.get(sub.name)) is not None:
            meta = {"name": request.name, "namespace": request.namespace, **metadata_of(body)}
            body = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        before = None if is_creation else sub.read(old)

        def complete(document: Document) -> Document:
            return self.bodies.typed_form(document, old) if is_form else document

        changed = self._guard.mutate(admitting, self._guard.attributes(body, before, request.name), ctx, complete)
        body = body if changed is None else changed
        if is_creation:
            self._guard.examine(admitting, self._guard.attributes(body, None, request.name), ctx)
        return body

    def _stage(
        self,
        staged: Staged,
        sub: Subresource,
        stored: Record,
        old: Document,
        remains: Document | None,
        result: SubresourceResult,
        ctx: WriteContext,
    ) -> tuple[bytes, int]:
        """Stage what remains of the object, and other objects; return the object's bytes and version."""
        is_gone = False
        charged = charges(self._resource, old, remains, ctx) if sub.is_charged and remains is not None else []
        if result.delete is not None:
            remains, is_gone = self._after_delete(old, remains, result.delete, ctx)
        self._stager.put_others(staged, result.also)
        if remains is not None and (self._request.dry_run or is_gone or remains != old):
            return self._stager.store(staged, stored, remains, charged, is_gone=is_gone)
        return stored.body, stored.rv

    def _after_delete(
        self, old: Document, remains: Document | None, options: DeleteOptions, ctx: WriteContext
    ) -> tuple[Document | None, bool]:
        """Return what a deletion leaves to store, None for nothing new, and whether the object is gone."""
        before = old if remains is None else remains
        rest = self.strategy.before_delete(before, ctx, options)
        if rest is None:
            return before, True
        return (None if rest is old else rest), False

    def _managers(self) -> FieldManagers:
        return self._contexts.managers(self._kind, self._identity, self._request, self.bodies.versions)

    def _with_managers(
        self, old: Document, remains: Document | None, managed: list[Document] | None, ctx: WriteContext
    ) -> Document | None:
        """Return what is to be stored with its `managedFields`; None for nothing, not even another manager."""
        new = old if remains is None else remains
        meta = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
        new = {**new, "metadata": meta}
        set_managers(self._managers, old, new, None, managed, ctx.wall_s)
        return None if remains is None and new == old else new
