"""Any kind's way in and out: decode, patch, defaults, admission, validation, commit; and reads of all forms.

Writes come in two halves. `prepare` runs when the request arrives: authorization and decoding, everything
that needs no state. What it returns runs inside the commit, against the newest state, and stages the change;
preconditions are checked there (S7). Kinds differ by their `Strategy`, verbs by their `Subresource`.
Source: guarantees 8.2 for the order of work, kubectl-requests 5 and 7 for the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from apiserver_fake.authorization import admit, authorize
from apiserver_fake.cursors import Cursors
from apiserver_fake.decoding import decode, decode_object
from apiserver_fake.patch import apply_patch
from apiserver_fake.rules import (
    DeleteOptions,
    ServerMemory,
    Strategy,
    Subresource,
    WriteContext,
    strategy_for,
    subresource,
)
from apiserver_fake.schemas import check_fields, conform
from apiserver_fake.store import Page, Record, Selection, Staged, Store
from apiserver_fake.versions import parse_rv
from services.api.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    invalid,
)
from services.api.identity import Identity
from services.api.meta import Document, Key, ObjectMeta
from services.api.resources import Resource, resources
from services.api.seams import Clock, Random
from services.api.selectors import Term
from services.api.switches import Switches
from services.api.times import format_time
from services.api.wire import Request, Response, WatchRequest

NAMESPACES = "namespaces"
GENERATED_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
GENERATE_TRIES = 8
GENERATED_BASE_MAX = 58
LIST_PAGE_OBJECTS = 10_000
LIST_PAGE_BYTES = 4 << 20
OBJECTS_MAX = 200_000
OBJECTS_PER_NAMESPACE_MAX = 50_000
VERSION_REQUIRED = frozenset(("pods", "nodes", "resourceclaims.resource.k8s.io", "leases.coordination.k8s.io"))
"""Kinds whose PUT must name a resourceVersion (S6)."""

SELDOM_WRITTEN = frozenset(("priorityclasses.scheduling.k8s.io",))
"""Kinds of which rules ask for all objects on every creation of another; kept decoded."""
DOCUMENTS_KEPT = 64

Plan = Callable[[Staged], Response]


@dataclass(frozen=True)
class Limits:
    """L-OBJ: how many objects there may be, in all and of one kind in one namespace."""

    objects: int = OBJECTS_MAX
    per_namespace: int = OBJECTS_PER_NAMESPACE_MAX


class NotYet(Exception):
    """A read asks for a version that is not visible yet; wait for `rv` and ask again (S12)."""

    def __init__(self, rv: int) -> None:
        super().__init__(f"version {rv} is not visible yet")
        self.rv = rv


def find_resource(name: str) -> Resource:
    """Return the served resource of that wire name. Raises: NotFound."""
    found = resources().get(name)
    if found is None:
        raise NotFound("the server could not find the requested resource")
    return found


def not_found(resource: Resource, name: str) -> NotFound:
    """Return Kubernetes' 404 for an object."""
    return NotFound(f'{resource.name} "{name}" not found', details=_details(resource, name))


def _details(resource: Resource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural}


def _conflict(resource: Resource, name: str, why: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {resource.name} "{name}": {why}', details=_details(resource, name)
    )


MODIFIED_TEXT = "the object has been modified; please apply your changes to the latest version and try again"


class Registry:
    """The write and read path of every kind."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        switches: Switches,
        cursors: Cursors,
        limits: Limits,
    ) -> None:
        self._store = store
        self._clock, self._random, self._switches = clock, random, switches
        self._cursors = cursors
        self._limits = limits
        self._memory = ServerMemory()
        self._documents: dict[tuple[str, Key], tuple[Record, Document]] = {}

    # -- before the commit

    def authorize(self, identity: Identity, request: Request) -> None:
        """Refuse what this identity may not do; looks at names, identity and stored objects only.

        Raises: Forbidden.
        """
        authorize(identity, request, self._lookup, self._listing(identity))

    def authorize_watch(self, identity: Identity, request: WatchRequest) -> None:
        """Refuse a watch this identity may not have. Raises: Forbidden."""
        as_request = Request(
            verb="watch",
            resource=request.resource,
            namespace=request.namespace,
            label_selector=request.label_selector,
            field_selector=request.field_selector,
        )
        authorize(identity, as_request, self._lookup, self._listing(identity))

    def _listing(self, identity: Identity) -> Callable[[str, str], Iterable[Document]]:
        """Return how authorization lists objects; to a node only its own pods matter, and those are indexed."""
        own = (Term("spec.nodeName", "in", (identity.node,)),) if identity.node else ()

        def documents(resource: str, namespace: str) -> Iterable[Document]:
            selection = Selection(namespace, fields=own if resource == "pods" else ())
            for record in self._store.select(resource, selection).records:
                yield msgspec.json.decode(record.body)

        return documents

    def _lookup(self, resource: str, namespace: str, name: str) -> Document | None:
        """Return what authorization may ask of an object: who it is, its labels, and a pod's node."""
        record = self._store.get(resource, namespace, name)
        if record is None:
            return None
        metadata = {"name": name, "namespace": namespace, "labels": record.labels}
        return {"metadata": metadata, "spec": {"nodeName": record.fields.get("spec.nodeName", "")}}

    def prepare(self, identity: Identity, request: Request, traceparent: str) -> Plan:
        """Return the write as it will run inside the commit.

        Raises: ApiError for what can be refused without looking at the object.
        """
        resource = find_resource(request.resource)
        self._check_scope(resource, request)
        write = _Write(self, resource, identity, request, traceparent)
        if request.subresource:
            return self._prepare_subresource(write)
        match request.verb:
            case "create":
                body = decode_object(request.body, f"a {resource.kind}")
                return lambda staged: write.create(staged, body)
            case "update":
                body = decode_object(request.body, f"a {resource.kind}")
                return lambda staged: write.update(staged, lambda old: body, is_patch=False)
            case "patch":
                patch = decode(request.body)
                return lambda staged: write.update(
                    staged,
                    lambda old: apply_patch(old, patch, request.patch_type, resource.api_version, resource.kind),
                    is_patch=True,
                )
            case "delete":
                options = self.delete_options(request)
                return lambda staged: write.delete(staged, options)
        raise MethodNotAllowed("the server does not allow this method on the requested resource")

    def _prepare_subresource(self, write: _Write) -> Plan:
        request, resource = write.request, write.resource
        found = subresource(resource.name, request.subresource)
        if found is None or request.subresource not in resource.subresources:
            raise NotFound("the server could not find the requested resource")
        if request.verb not in found.verbs:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        body: Any
        if request.verb == "patch":
            body = decode(request.body)
        else:
            body = decode_object(request.body, f"a {request.subresource}") if request.body else {}
        return lambda staged: write.subresource(staged, found, body)

    @staticmethod
    def delete_options(request: Request) -> DeleteOptions:
        """Return the options of a delete, preconditions of the call included. Raises: BadRequest."""
        body = decode_object(request.body, "DeleteOptions") if request.body else {}
        options = DeleteOptions.from_document(body)
        return replace(
            options,
            uid=options.uid or request.uid,
            resource_version=options.resource_version or request.resource_version,
        )

    @staticmethod
    def _check_scope(resource: Resource, request: Request) -> None:
        if resource.namespaced and not request.namespace and request.verb != "list":
            raise BadRequest(f"{resource.plural} are namespaced: a namespace is required")
        if not resource.namespaced and request.namespace:
            raise BadRequest(f"{resource.plural} are not namespaced: namespace {request.namespace!r} does not apply")
        if not request.name and request.verb in ("get", "update", "patch", "delete"):
            raise BadRequest(f"{request.verb} {resource.plural}: a name is required")

    def context(self, identity: Identity, request: Request, staged: Staged) -> WriteContext:
        """Return what rules may look at during one write."""

        def lookup(resource: str, namespace: str, name: str) -> Document | None:
            return _document(staged.get(resource, namespace, name))

        def documents(resource: str, namespace: str) -> Iterable[Document]:
            for record in staged.select(resource, Selection(namespace)):
                yield self._decoded(record) if resource in SELDOM_WRITTEN else msgspec.json.decode(record.body)

        def labels(resource: str, namespace: str, name: str) -> Mapping[str, str] | None:
            record = staged.get(resource, namespace, name)
            return None if record is None else record.labels

        return WriteContext(
            identity=identity,
            now_s=self._clock.now(),
            wall_s=self._clock.wall(),
            switches=self._switches,
            random=self._random,
            request=request,
            lookup=lookup,
            list=documents,
            memory=self._memory,
            labels=labels,
        )

    def _decoded(self, record: Record) -> Document:
        """Return a record's document, the same each time until the object changes; read-only."""
        known = self._documents.get((record.resource, record.key))
        if known is None or known[0] is not record:
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            known = self._documents[record.resource, record.key] = (record, msgspec.json.decode(record.body))
        return known[1]

    # -- reads

    def get(self, request: Request) -> Response:
        """Return the object, or the read form of a subresource.

        Raises: NotFound, NotYet.
        """
        resource = find_resource(request.resource)
        self._check_scope(resource, request)
        self._reach(parse_rv(request.resource_version))
        record = self._store.get(resource.name, request.namespace, request.name)
        if record is None:
            raise not_found(resource, request.name)
        if not request.subresource:
            return Response(code=200, rv=record.rv, body=record.body)
        found = subresource(resource.name, request.subresource)
        if found is None or request.subresource not in resource.subresources:
            raise NotFound("the server could not find the requested resource")
        if "get" not in found.verbs:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        stored = msgspec.json.decode(record.body)
        form = found.read(stored)
        body = record.body if form is stored else msgspec.json.encode(form)
        return Response(code=200, rv=record.rv, body=body)

    def list(self, request: Request) -> Response:
        """Return a snapshot of the selected objects, or a page of one (table 2.1).

        Raises: BadRequest, Expired, NotYet.
        """
        resource = find_resource(request.resource)
        self._check_scope(resource, request)
        selection = self.selection(resource, request)
        limit = min(request.limit, LIST_PAGE_OBJECTS) if request.limit > 0 else 0
        bytes_max = LIST_PAGE_BYTES if limit else 0
        fingerprint = Cursors.fingerprint(request)
        if request.continue_token:
            if request.resource_version or request.resource_version_match:
                raise BadRequest("specifying resourceVersion or resourceVersionMatch is not allowed with continue")
            cursor = self._cursors.read(request.continue_token, fingerprint)
            rv, after = cursor.rv or self._store.rv, cursor.after
            is_expired = cursor.expires_at_s < self._clock.now() and bool(cursor.rv)
        else:
            rv, after, is_expired = self._version_of(request, limit), None, False
        try:
            if is_expired:
                raise Expired("")
            page = self._store.select(resource.name, selection, at=rv, after=after, limit=limit, bytes_max=bytes_max)
        except Expired:
            raise self._expired(after, fingerprint) from None
        token = ""
        if page.next_after is not None:
            token = self._cursors.token(rv, page.next_after, fingerprint, self._clock.now())
        return Response(code=200, rv=rv, body=list_body(resource, page, rv, token))

    def selection(self, resource: Resource, request: Request) -> Selection:
        """Return what the request selects. Raises: BadRequest."""
        field_selector = request.field_selector
        if request.name:
            name = f"metadata.name={request.name}"
            field_selector = f"{field_selector},{name}" if field_selector else name
        return Selection.parse(resource, request.namespace, request.label_selector, field_selector)

    def _version_of(self, request: Request, limit: int) -> int:
        wanted, match = parse_rv(request.resource_version), request.resource_version_match
        if match not in ("", "Exact", "NotOlderThan"):
            raise BadRequest(f'resourceVersionMatch: Unsupported value: "{match}": supported: Exact, NotOlderThan')
        if match and not request.resource_version:
            raise BadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match == "Exact" and wanted == 0:
            raise BadRequest('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
        self._reach(wanted)
        is_exact = match == "Exact" or (not match and bool(limit) and wanted > 0)
        return wanted if is_exact else self._store.rv

    def _reach(self, wanted: int) -> None:
        if wanted > self._store.rv:
            raise NotYet(wanted)

    def _expired(self, after: Any, fingerprint: bytes) -> Expired:
        if after is None:
            return Expired("The resourceVersion for the provided list is too old.")
        # Whoever can live with an inconsistent list may go on at the newest state.
        token = self._cursors.token(0, after, fingerprint, self._clock.now())
        error = ExpiredPage(
            "The provided continue parameter is too old to display a consistent list result. You can start a new "
            "list without the continue parameter, or use the continue token in this response to retrieve the "
            "remainder of the results."
        )
        error.continue_token = token
        return error

    # -- names and quotas, for writes

    def choose_name(self, staged: Staged, resource: Resource, namespace: str, prefix: str) -> str:
        """Return a name that is not taken: the prefix and five random characters.

        Raises: AlreadyExists, marked as worth a retry, after eight collisions.
        """
        base = prefix[:GENERATED_BASE_MAX]
        name = ""
        for _ in range(GENERATE_TRIES):
            name = base + "".join(self._random.choice(GENERATED_CHARACTERS) for _ in range(5))
            if staged.get(resource.name, namespace, name) is None:
                return name
        raise AlreadyExists(
            f'{resource.name} "{name}" already exists, the server was not able to generate a unique name for the '
            "object",
            details=_details(resource, name),
            retry_after_s=1,
        )

    def new_uid(self) -> str:
        """Return a random version 4 uid (S20)."""
        bits = self._random.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def check_room(self, staged: Staged, resource: Resource, namespace: str, name: str) -> None:
        """Refuse a creation beyond the number of objects (L-OBJ). Raises: Forbidden `QuotaExceeded`."""
        for held, most, where in (
            (staged.count(), self._limits.objects, "the store"),
            (staged.count_in(resource.name, namespace), self._limits.per_namespace, f"namespace {namespace!r}"),
        ):
            if held >= most:
                raise Forbidden(
                    f'{resource.name} "{name}" is forbidden: {where} holds {held}, at most {most} are allowed',
                    reason="QuotaExceeded",
                    details=_details(resource, name),
                )


class ExpiredPage(Expired):
    """410 for a page, with a token for the rest of the list at the newest version."""

    continue_token = ""

    def status(self) -> dict[str, Any]:
        """Return the Status with the token in its metadata."""
        return {**super().status(), "metadata": {"continue": self.continue_token}}


def _document(record: Record | None) -> Document | None:
    if record is None:
        return None
    document: Document = msgspec.json.decode(record.body)
    return document


def list_body(resource: Resource, page: Page, rv: int, token: str) -> bytes:
    """Return the list document, its items being the stored bytes."""
    metadata: Document = {"resourceVersion": str(rv)}
    if token:
        metadata["continue"] = token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    head = msgspec.json.encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    )
    return b"".join((head[:-1], b',"items":[', b",".join([record.body for record in page.records]), b"]}"))


class _Write:
    """One write being evaluated inside the commit."""

    def __init__(
        self, registry: Registry, resource: Resource, identity: Identity, request: Request, traceparent: str
    ) -> None:
        self.registry = registry
        self.resource = resource
        self.identity = identity
        self.request = request
        self.traceparent = traceparent
        self.strategy: Strategy = strategy_for(resource.name)

    # -- create

    def create(self, staged: Staged, body: Document) -> Response:
        request, resource = self.request, self.resource
        ctx = self.registry.context(self.identity, request, staged)
        new = self._own(body)
        meta = new["metadata"]
        self._place(meta)
        name = meta.get("name") or ""
        if request.name and name and name != request.name:
            raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({request.name})")
        namespace = request.namespace
        if resource.namespaced:
            self._check_namespace(staged, namespace, name)
        if not name and meta.get("generateName"):
            name = self.registry.choose_name(staged, resource, namespace, meta["generateName"])
            meta["name"] = name
        if not name:
            raise self._invalid(
                name, [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
            )
        if staged.get(resource.name, namespace, name) is not None:
            raise AlreadyExists(f'{resource.name} "{name}" already exists', details=_details(resource, name))
        self.registry.check_room(staged, resource, namespace, name)
        ctx.warnings.extend(check_fields(resource.api_version, resource.kind, new, request.field_validation))
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink", "generation"):
            meta.pop(field, None)
        meta["uid"] = self.registry.new_uid()
        meta["creationTimestamp"] = format_time(ctx.wall_s)
        if resource.has_spec:
            meta["generation"] = 1
        self.strategy.prepare_create(new, ctx)
        admit(self.identity, request, None, new, ctx)
        self._validate(self.strategy.validate(None, new, ctx), name)
        if request.dry_run:
            return self._answer(msgspec.json.encode(new), staged.rv, ctx, 201)
        record = staged.put(resource, new, self.traceparent)
        return self._answer(record.body, record.rv, ctx, 201)

    def _own(self, body: Document) -> Document:
        """Return the document with right apiVersion and kind in front, and a metadata of its own.

        Raises: BadRequest when it is of another kind or its fields have wrong types.
        """
        resource = self.resource
        kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
        if (version, kind) != (resource.api_version, resource.kind):
            raise BadRequest(
                f"{resource.name} take {resource.api_version} {resource.kind}, the body is {version} {kind}"
            )
        meta = body.get("metadata")
        if meta is not None and not isinstance(meta, dict):
            raise BadRequest(f"metadata must be an object, got {type(meta).__name__}")
        new: Document = {"apiVersion": version, "kind": kind, "metadata": {}}
        new.update(body)
        new["apiVersion"], new["kind"] = version, kind
        new["metadata"] = {n: v for n, v in (meta or {}).items() if v is not None}
        return self._typed(new, None)

    def _typed(self, new: Document, old: Document | None) -> Document:
        typed = conform(self.resource.api_version, self.resource.kind, new, old)
        try:
            msgspec.convert(typed["metadata"], ObjectMeta)
        except msgspec.ValidationError as error:
            raise BadRequest(f"metadata cannot be read: {error}") from None
        return typed

    def _place(self, meta: Document) -> None:
        request, resource = self.request, self.resource
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        if meta.get("namespace") and meta["namespace"] != request.namespace:
            raise BadRequest(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f"{meta['namespace']} and {request.namespace}"
            )
        meta["namespace"] = request.namespace

    def _check_namespace(self, staged: Staged, namespace: str, name: str) -> None:
        found = staged.get(NAMESPACES, "", namespace)
        if found is None:
            raise NotFound(f'namespaces "{namespace}" not found', details={"name": namespace, "kind": NAMESPACES})
        if found.is_deleting:
            raise Forbidden(
                f'{self.resource.name} "{name}" is forbidden: unable to create new content in namespace {namespace} '
                "because it is being terminated",
                details={
                    **_details(self.resource, name),
                    "causes": [
                        {
                            "reason": "NamespaceTerminating",
                            "message": f"namespace {namespace} is being terminated",
                            "field": "metadata.namespace",
                        }
                    ],
                },
            )

    def _invalid(self, name: str, causes: list[tuple[str, str, str]]) -> Invalid:
        return invalid(self.resource.kind, name, causes)

    def _validate(self, causes: Any, name: str) -> None:
        if causes:
            raise self._invalid(name, [(cause[0], cause[1], cause[2]) for cause in causes])

    # -- update and patch

    def update(self, staged: Staged, change: Callable[[Document], Document], *, is_patch: bool) -> Response:
        request, resource = self.request, self.resource
        stored = self._stored(staged)
        old: Document = msgspec.json.decode(stored.body)
        self._check_preconditions(stored, request.uid, request.resource_version)
        changed = change(old)
        if changed is old:
            return Response(code=200, rv=stored.rv, body=stored.body)
        new = self._inherit(changed, old, stored, is_patch=is_patch)
        ctx = self.registry.context(self.identity, request, staged)
        ctx.warnings.extend(check_fields(resource.api_version, resource.kind, new, request.field_validation, old))
        if "status" in resource.subresources:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        self.strategy.prepare_update(old, new, ctx)
        admit(self.identity, request, old, new, ctx)
        self._validate([*self._new_finalizers(old, new), *self.strategy.validate(old, new, ctx)], request.name)
        if resource.has_spec and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
        return self._store(staged, stored, old, new, ctx)

    def _stored(self, staged: Staged) -> Record:
        stored = staged.get(self.resource.name, self.request.namespace, self.request.name)
        if stored is None:
            raise not_found(self.resource, self.request.name)
        return stored

    def _check_preconditions(self, stored: Record, uid: str, version: str) -> None:
        name = stored.name
        if uid and uid != stored.uid:
            raise _conflict(
                self.resource,
                name,
                f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). "
                "The object might have been deleted and then recreated",
            )
        if version and parse_rv(version) != stored.rv and version != "0":
            raise _conflict(self.resource, name, MODIFIED_TEXT)

    def _inherit(self, changed: Document, old: Document, stored: Record, *, is_patch: bool) -> Document:
        """Return the new document with what only the server may set taken from the old one (S19, S22).

        What the caller put there instead counts as a precondition: uid and resourceVersion.
        """
        new = self._own(changed) if not is_patch else self._own_patched(changed, old)
        meta, before = new["metadata"], old["metadata"]
        if meta.get("name", before["name"]) != before["name"]:
            raise BadRequest(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({before['name']})"
            )
        self._place(meta)
        meta["name"] = before["name"]
        version = str(meta.get("resourceVersion") or "")
        self._check_preconditions(stored, str(meta.get("uid") or ""), version)
        is_named = is_patch or version or self.request.resource_version
        if not is_named and self.resource.name in VERSION_REQUIRED:
            text = "Invalid value: 0x0: must be specified for an update"
            raise self._invalid(stored.name, [("metadata.resourceVersion", "FieldValueInvalid", text)])
        for field in (
            "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
            "generation", "generateName", "selfLink",
        ):  # fmt: skip
            if field in before:
                meta[field] = before[field]
            else:
                meta.pop(field, None)
        return new

    def _own_patched(self, changed: Document, old: Document) -> Document:
        for field in ("apiVersion", "kind"):
            if changed.get(field) != old.get(field):
                raise BadRequest(f"a patch cannot change {field} from {old.get(field)!r} to {changed.get(field)!r}")
        meta = changed.get("metadata")
        if not isinstance(meta, dict):
            raise BadRequest("a patch cannot replace metadata by something that is not an object")
        new = self._typed({**changed}, old)
        return {**new, "metadata": dict(new["metadata"])}

    def _new_finalizers(self, old: Document, new: Document) -> list[tuple[str, str, str]]:
        if not old["metadata"].get("deletionTimestamp"):
            return []
        before = old["metadata"].get("finalizers") or []
        added = [f for f in new["metadata"].get("finalizers") or [] if f not in before]
        if not added:
            return []
        text = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        return [("metadata.finalizers", "FieldValueForbidden", text)]

    def _store(self, staged: Staged, stored: Record, old: Document, new: Document, ctx: WriteContext) -> Response:
        """Stage the new document: nothing when it says nothing new, a removal when nothing holds it any more."""
        if new == old:
            return self._answer(stored.body, stored.rv, ctx, 200)
        if self.request.dry_run:
            return self._answer(msgspec.json.encode(new), stored.rv, ctx, 200)
        if _is_released(new):
            record = staged.remove(self.resource, new, self.traceparent)
        else:
            record = staged.put(self.resource, new, self.traceparent)
        return self._answer(record.body, record.rv, ctx, 200)

    def _answer(self, body: bytes, rv: int, ctx: WriteContext, code: int) -> Response:
        return Response(code=code, rv=rv, body=body, warnings=tuple(ctx.warnings))

    # -- subresources

    def subresource(self, staged: Staged, sub: Subresource, body: Any) -> Response:
        request, resource = self.request, self.resource
        stored = staged.get(resource.name, request.namespace, request.name)
        old = _document(stored)
        ctx = self.registry.context(self.identity, request, staged)
        if request.verb in ("update", "patch"):
            if stored is None or old is None:
                raise not_found(resource, request.name)
            self._check_preconditions(stored, request.uid, request.resource_version)
            if request.verb == "patch":
                form = sub.read(old)
                version, kind = str(form.get("apiVersion") or ""), str(form.get("kind") or "")
                body = apply_patch(form, body, request.patch_type, version, kind)
                if body == form:
                    return self._answer(stored.body if form is old else msgspec.json.encode(form), stored.rv, ctx, 200)
            meta = body.get("metadata")
            if isinstance(meta, dict):
                self._check_preconditions(stored, str(meta.get("uid") or ""), str(meta.get("resourceVersion") or ""))
                if meta.get("name", request.name) != request.name:
                    raise BadRequest(
                        f"the name of the object ({meta['name']}) does not match the name on the URL ({request.name})"
                    )
            if sub.name in ("status", "finalize"):
                body = self._typed_form(body, old)
        result = sub.apply(old, body, ctx)
        if stored is None or old is None:
            assert result.document is None, "a subresource cannot create its object"
            assert result.delete is None, "a subresource cannot delete what is not there"
            return self._answer(msgspec.json.encode(result.response), staged.rv, ctx, result.code)
        if result.document is not None and not sub.admits:
            admit(self.identity, request, old, result.document, ctx)
        remains, is_gone = result.document, False
        if result.delete is not None:
            before = old if remains is None else remains
            left = self.strategy.before_delete(before, ctx, result.delete)
            is_gone = left is None
            remains = before if left is None else (None if left is old else left)
        body_bytes, rv = stored.body, stored.rv
        if not request.dry_run:
            for kind, other in result.also:
                staged.put(find_resource(kind), {**other, "metadata": {**other["metadata"]}}, self.traceparent)
        if remains is not None and not request.dry_run and (is_gone or remains != old):
            final = {**remains, "metadata": {**remains["metadata"]}}
            if is_gone or _is_released(final):
                record = staged.remove(resource, final, self.traceparent)
            else:
                record = staged.put(resource, final, self.traceparent)
            body_bytes, rv = record.body, record.rv
        elif remains is not None and request.dry_run:
            body_bytes = msgspec.json.encode(remains)
        if result.response is not None:
            return self._answer(msgspec.json.encode(result.response), rv, ctx, result.code)
        if sub.name == "scale":
            body_bytes = msgspec.json.encode(sub.read(msgspec.json.decode(body_bytes)))
        return self._answer(body_bytes, rv, ctx, result.code)

    def _typed_form(self, body: Document, old: Document) -> Document:
        body = {"apiVersion": old["apiVersion"], "kind": old["kind"], **body}
        if not isinstance(body.get("metadata", {}), dict):
            raise BadRequest("metadata must be an object")
        body.setdefault("metadata", old["metadata"])
        return self._typed(body, old)

    # -- delete

    def delete(self, staged: Staged, options: DeleteOptions) -> Response:
        request, resource = self.request, self.resource
        stored = self._stored(staged)
        self._check_preconditions(stored, options.uid, options.resource_version)
        old: Document = msgspec.json.decode(stored.body)
        ctx = self.registry.context(self.identity, request, staged)
        admit(self.identity, request, old, None, ctx)
        remains = self.strategy.before_delete(old, ctx, options)
        if remains is None:
            rv = stored.rv
            if not request.dry_run:
                rv = staged.remove(resource, {**old, "metadata": {**old["metadata"]}}, self.traceparent).rv
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {**_details(resource, stored.name), "uid": stored.uid},
            }
            return self._answer(msgspec.json.encode(status), rv, ctx, 200)
        if remains is old or remains == old:
            return self._answer(stored.body, stored.rv, ctx, 200)
        if request.dry_run:
            return self._answer(msgspec.json.encode(remains), stored.rv, ctx, 200)
        record = staged.put(resource, {**remains, "metadata": {**remains["metadata"]}}, self.traceparent)
        return self._answer(record.body, record.rv, ctx, 200)


def _is_released(document: Document) -> bool:
    """Whether nothing keeps a deleted object any more: no finalizers, and its grace period was confirmed (S19)."""
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    is_namespace = document.get("kind") == "Namespace"
    return not (is_namespace and (document.get("spec") or {}).get("finalizers"))
