"""One write of a subresource as it runs inside the commit: it reads the body, calls the subresource, stages the result.

Each subresource has its own function (`registry/subresources/`). A `Form`, by the subresource's name, says how its body
is read, patched and applied. Source: guarantees 8.2 for the order of work, kubectl-requests 5 and 7 for the answers.
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
from apiserver_fake.registry.catalogue import Kind
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
from services.api.meta import Document, metadata_of
from services.api.wire import Request, Response

_COMPLETED: Final = ("status", "finalize", "resize", "ephemeralcontainers")
"""Subresources whose bodies are read again after webhooks and policies have changed them."""


def _of_type(sub: Subresource, body: Document) -> Document:
    """Return a subresource's body, decoded as its type. Raises: BadRequest if it is not of that type."""
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
    # The field manager of a Scale's replicas manages the replicas of the scaled object.
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
    """How the body of a write of a subresource is read, and how the write is answered.

    `sent(bodies, body, old)`: returns the body of an update as stored. `patched(bodies, sub, form, patch)`: returns the
    subresource's document after a patch. `applied(bodies, sub, old, config, managers, wall_s)`: returns the document
    after applying a configuration, and the object's field managers. All raise ApiError, Unanswered. `answer(sub,
    body)`: returns the answer's bytes for the object's bytes. `missing`: the subresource that NotFound names.
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
"""The forms of subresources by name; all other subresources have the plain form."""


class SubresourceWrite:
    """One write of a subresource being evaluated inside the commit."""

    def __init__(
        self,
        contexts: WriteContexts,
        kind: Kind,
        identity: Identity,
        request: Request,
        traceparent: str,
        session: Session | None = None,
    ) -> None:
        self._contexts, self._resource, self._identity = contexts, kind.resource, identity
        self._request, self._session = request, session
        self._kind, self._is_outside, self.strategy = kind, bool(request.field_validation), kind.strategy
        self.bodies = Bodies(contexts.catalogue, kind, request, session)
        self._guard = Guard(contexts, kind.resource, identity, request, session, authorize_in_write)
        self._stager = Stager(kind.resource, traceparent, contexts.catalogue.find, request.dry_run)

    def subresource(self, staged: Staged, sub: Subresource, body: Any) -> Response:
        """Stage the result of the subresource call and return its answer. Raises: ApiError."""
        request, resource, form = self._request, self._resource, FORMS.get(sub.name, _PLAIN)
        stored = staged.get(resource.name, request.namespace, request.name)
        old = None if stored is None else self.bodies.old(stored)
        ctx = self._contexts.context(self._identity, request, staged, self.strategy, self._session)
        if request.verb in ("create", "update"):
            body = _of_type(sub, body)
        sub.check_first(old, body, ctx)
        if stored is None or old is None:
            raise not_found(resource, request.name, subresource=form.missing)
        managed: list[Document] | None = None
        if request.verb in ("update", "patch"):
            if request.uid or request.resource_version:
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
        """Return the subresource's document after an update, patch or apply, and the field managers after an apply.

        None for a patch that changes nothing.
        """
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
        """Check that the changed document names the stored object; return it decoded as its type. Raises: ApiError."""
        meta = body.get("metadata")
        # Metadata that equals the stored one names the stored object.
        if isinstance(meta, dict) and meta != old["metadata"]:
            uid, version = str(meta.get("uid") or ""), str(meta.get("resourceVersion") or "")
            check_preconditions(self._resource, stored, uid, version)
            self.bodies.check_name(meta.get("name", self._request.name))
        if not sub.body[1]:  # its body has the form of the object
            body = self.bodies.typed_form(body, old)
        if self._is_outside:
            ctx.warnings.extend(self.bodies.faults())
        return body

    def _apply(self, sub: Subresource, old: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
        """Admit the write and return the result of the subresource. Raises: ApiError."""
        request = self._request
        admitting = None if self._contexts.admission is None else self._guard.admitting(ctx)
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
        """Return the body of a subresource's write after mutating policies and webhooks.

        A created object (a Binding, an Eviction) is also validated here, because it is not the object that is stored.
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
        """Stage the changed or deleted object, and other objects; return the object's bytes and resourceVersion."""
        is_gone = False
        charged = charges(self._resource, old, remains, ctx) if sub.is_charged and remains is not None else []
        if result.delete is not None:
            remains, is_gone = self._after_delete(old, remains, result.delete, ctx)
        if result.also:
            self._stager.put_others(staged, result.also)
        if remains is not None and (self._request.dry_run or is_gone or remains != old):
            return self._stager.store(staged, stored, remains, charged, is_gone=is_gone)
        return stored.body, stored.rv

    def _after_delete(
        self, old: Document, remains: Document | None, options: DeleteOptions, ctx: WriteContext
    ) -> tuple[Document | None, bool]:
        """Return the document to store after a deletion, None if unchanged, and whether the object is gone."""
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
        """Return the document to store, with its `managedFields`; None if neither it nor its managers change."""
        new = old if remains is None else remains
        meta = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
        new = {**new, "metadata": meta}
        set_managers(self._managers, old, new, None, managed, ctx.wall_s)
        return None if remains is None and new == old else new
