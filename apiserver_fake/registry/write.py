"""One write as it runs inside the commit: preconditions, defaults, admission, validation, what is staged.

Kinds differ by their `Strategy`, verbs by their `Subresource`; preconditions are checked here, against the
newest state (S7). A new object gets a name, a uid, and a place within the limits.
Source: guarantees 8.2 for the order of work, kubectl-requests 5 and 7 for the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from apiserver_fake.registry import warnings
from apiserver_fake.registry.accounts import ServiceAccounts
from apiserver_fake.registry.admission.attributes import (
    CONNECT,
    CREATE,
    DELETE,
    SUBRESOURCE_KINDS,
    UPDATE,
    Admission,
    Admitting,
    Attributes,
    Complete,
    Concern,
    Connection,
    Labels,
    Surroundings,
)
from apiserver_fake.registry.admission.quota import CHARGED_ON_UPDATE, charges
from apiserver_fake.registry.authorization.authorizer import admit, authorize
from apiserver_fake.registry.authorization.questions import asker
from apiserver_fake.registry.catalogue import Catalogue, Kind
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.errors import MODIFIED_TEXT, RECREATED_TEXT, conflict, details_of, not_found
from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.gated_fields import drop_disabled
from apiserver_fake.registry.managers import SCALE, STATUS, Applied, FieldManagers
from apiserver_fake.registry.patch.patch import apply_patch
from apiserver_fake.registry.policy import Policy
from apiserver_fake.registry.schema.mistakes import go_text
from apiserver_fake.registry.schema.schemas import Mistyped, Shape, conform, shape_of, strict_refusal, unknown_fields
from apiserver_fake.registry.sessions import Session, converted
from apiserver_fake.registry.strategy import DeleteOptions, ServerMemory, Subresource, WriteContext
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.validation.formats import Cause, Causes, new_finalizers, quoted, required
from apiserver_fake.registry.validation.formats import invalid as invalid_value
from apiserver_fake.registry.versions import Versions
from apiserver_fake.storage.records import Record, Selection, parse_rv
from apiserver_fake.storage.store import Staged
from services.api.errors import UNREADABLE, AlreadyExists, ApiError, BadRequest, Forbidden, NotFound, invalid
from services.api.identity import Identity
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document, Key, ObjectMeta, Resource, metadata_of
from services.api.seams import Clock, Random
from services.api.switches import Switches
from services.api.times import format_time
from services.api.wire import Request, Response

SELDOM_WRITTEN = frozenset(("priorityclasses.scheduling.k8s.io", "limitranges"))
"""Kinds of which rules ask for all objects on every creation of another; kept decoded."""
DOCUMENTS_KEPT = 64
APPLY = "apply"


MakeManagers = Callable[[Kind, Identity, Request, Versions], FieldManagers]


class WriteContexts:
    """What all writes have around them; lives with the server."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        clock: Clock,
        random: Random,
        switches: Switches,
        limits: Limits,
        policy: Callable[[Identity], Policy | None] | None,
        accounts: ServiceAccounts,
        is_converting: bool,
        managers: MakeManagers,
    ) -> None:
        self.catalogue, self.managers = catalogue, managers
        self._policy, self._accounts, self._is_converting = policy, accounts, is_converting
        self._clock, self._random = clock, random
        self._switches, self._register = switches.of(ApiServerSwitches), switches
        self.limits = limits
        self._memory = ServerMemory()
        self._documents: dict[tuple[str, Key], tuple[Record, Document]] = {}
        self.admission: Admission | None = None
        """What webhooks and policies are configured; None while there are none."""

    def wall_s(self) -> float:
        """Return the time of day."""
        return self._clock.wall()

    def requested(self, resource: Resource, request: Request) -> Resource:
        """Return the kind in the version in which the caller knows it."""
        if not request.api_version or request.api_version == resource.api_version:
            return resource
        versions = self.catalogue.kind(resource.name).versions
        return next((e.resource for e in versions if e.resource.api_version == request.api_version), resource)

    def concern(self, resource: Resource, request: Request) -> Concern | None:
        """Return what webhooks and policies are configured for a write, None for nothing."""
        if self.admission is None:
            return None
        operation = _OPERATIONS[request.verb]
        return self.admission.concerning(operation, resource, self.requested(resource, request), request.subresource)

    def context(
        self, identity: Identity, request: Request, staged: Staged, session: Session | None = None
    ) -> WriteContext:
        """Return what rules may look at during one write."""

        def lookup(resource: str, namespace: str, name: str) -> Document | None:
            return document_of(staged.get(resource, namespace, name))

        def documents(resource: str, namespace: str) -> Iterable[Document]:
            if namespace and not staged.count_in(resource, namespace):
                return
            for record in staged.select(resource, Selection(namespace)):
                yield self._decoded(record) if resource in SELDOM_WRITTEN else msgspec.json.decode(record.body)

        def labels(resource: str, namespace: str, name: str) -> Mapping[str, str] | None:
            record = staged.get(resource, namespace, name)
            return None if record is None else record.labels

        return WriteContext(
            identity=identity,
            now_s=self._clock.now(),
            wall_s=self._clock.wall() if session is None else session.wall_s,
            switches=self._switches,
            register=self._register,
            random=self._random,
            request=request,
            lookup=lookup,
            list=documents,
            memory=self._memory if session is None or not session.is_rehearsing else self._memory.copy(),
            labels=labels,
            strategy=self.catalogue.kind(request.resource).strategy,
            policy=self._policy(identity) if self._policy is not None else None,
            accounts=self._accounts,
            is_converting=request.resource != DEFINITIONS or self._is_converting,
        )

    def _decoded(self, record: Record) -> Document:
        """Return a record's document, the same each time until the object changes; read-only."""
        known = self._documents.get((record.resource, record.key))
        if known is None or known[0] is not record:
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            known = self._documents[record.resource, record.key] = (record, msgspec.json.decode(record.body))
        return known[1]


_OPERATIONS = {"create": CREATE, "update": UPDATE, "patch": UPDATE, "delete": DELETE, "connect": CONNECT}


def _say(error: ApiError, admitting: Admitting, ctx: WriteContext) -> None:
    """Put what admission said before it refused beside the refusal."""
    error.warnings = (*ctx.warnings, *admitting.warnings, *error.warnings)
    error.audit = {**ctx.audit, **admitting.audit, **error.audit}


def document_of(record: Record | None) -> Document | None:
    """Return a fresh copy of a record's document."""
    if record is None:
        return None
    document: Document = msgspec.json.decode(record.body)
    return document


GENERATED_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
GENERATE_TRIES = 8
GENERATED_BASE_MAX = 58


@dataclass(frozen=True)
class Limits:
    """L-OBJ: how many objects there may be, in all and of one kind in one namespace."""

    objects: int = 200_000
    per_namespace: int = 50_000


def _already_exists(resource: Resource, taken: Record) -> AlreadyExists:
    """Return the refusal of an object whose name is taken, which is said last (8.2): what is wrong with it comes first.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go`.
    """
    text = f'{resource.name} "{taken.name}" already exists'
    if taken.is_deleting:
        text = f"object is being deleted: {text}"
    return AlreadyExists(text, details=details_of(resource, taken.name))


def choose_name(random: Random, staged: Staged, resource: Resource, namespace: str, prefix: str) -> str:
    """Return a free name: prefix and five random characters. Raises: AlreadyExists, worth a retry, after 8 tries."""
    base = prefix[:GENERATED_BASE_MAX]
    name = ""
    for _ in range(GENERATE_TRIES):
        name = base + "".join(random.choice(GENERATED_CHARACTERS) for _ in range(5))
        if staged.get(resource.name, namespace, name) is None:
            return name
    raise AlreadyExists(
        f'{resource.name} "{name}" already exists, the server was not able to generate a unique name for the object',
        details=details_of(resource, name),
        retry_after_s=1,
    )


def new_uid(random: Random) -> str:
    """Return a random version 4 uid (S20)."""
    bits = random.getrandbits(128)
    bits = bits & ~(0xF << 76) | (4 << 76)
    bits = bits & ~(0x3 << 62) | (0x2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_capacity(limits: Limits, staged: Staged, resource: Resource, namespace: str, name: str) -> None:
    """Refuse a creation beyond the number of objects (L-OBJ). Raises: Forbidden `QuotaExceeded`."""
    for held, most, where in (
        (staged.count(), limits.objects, "the store"),
        (staged.count_in(resource.name, namespace), limits.per_namespace, f"namespace {namespace!r}"),
    ):
        if held >= most:
            why = f"{where} holds {held}, at most {most} are allowed"
            raise refused(resource.name, name, why, reason="QuotaExceeded")


NAMESPACES, QUOTAS, PODS = "namespaces", "resourcequotas", "pods"
ANSWERED_WHOLE = frozenset(
    (
        PODS, QUOTAS, "services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims", "podtemplates",
        "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io", "csidrivers.storage.k8s.io",
        "volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
        "deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io",
    )
)  # fmt: skip
"""Kinds of which a deletion answers the object and no Status, also when it is gone at once.

Source: upstream `pkg/registry` (`ReturnDeletedObject`).
"""
RBAC = "rbac.authorization.k8s.io"
CREATED_BY_UPDATE = frozenset(
    f"leases.coordination.k8s.io endpoints events limitranges runtimeclasses.node.k8s.io services "
    f"roles.{RBAC} rolebindings.{RBAC} clusterroles.{RBAC} clusterrolebindings.{RBAC}".split()
)
"""Kinds of which an update that names no version makes an object that is not there.

Source: upstream `pkg/registry` (`AllowCreateOnUpdate`).
"""
VERSION_REQUIRED = frozenset(("pods", "nodes", "resourceclaims.resource.k8s.io", "leases.coordination.k8s.io"))
"""Kinds whose PUT must name a resourceVersion (S6)."""
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT = ("uid", "resourceVersion", "creationTimestamp", *_DELETION, "generation", "generateName", "selfLink")
"""Metadata that an update does not change."""
_GIVEN = ("uid", "creationTimestamp", "generation")
"""Metadata that a new object is given after admission changed it."""


_PREFIXES = {"nodes": "minions", "services": "services/specs", "endpoints": "services/endpoints"}


def _storage_key(resource: Resource, stored: Record) -> str:
    """Return what upstream's storage calls an object; refusals name it."""
    place = _PREFIXES.get(resource.name, resource.plural)
    parts = ["", "registry", place, stored.namespace, stored.name]
    return "/".join(parts if stored.namespace else [*parts[:3], stored.name])


class Write:
    """One write being evaluated inside the commit."""

    def __init__(
        self,
        contexts: WriteContexts,
        resource: Resource,
        identity: Identity,
        request: Request,
        traceparent: str,
        session: Session | None = None,
    ) -> None:
        self.contexts, self.resource, self.identity = contexts, resource, identity
        self.request, self.traceparent, self._session = request, traceparent, session
        kind = contexts.catalogue.kind(resource.name)
        self.strategy, self._shape = kind.strategy, kind.shape
        self._versions = Versions(kind, session)
        self._kind, self._is_outside = kind, bool(request.field_validation)
        self.repeated: list[str] | None = [] if self._is_outside else None
        """Keys that the body has twice; None where that is refused at once: components send none."""
        self._unknown: list[str] = []

    # -- create

    def _managers(self) -> FieldManagers:
        return self.contexts.managers(self._kind, self.identity, self.request, self._versions)

    def create(self, staged: Staged, body: Document, managed: list[Document] | None = None) -> Response:
        """Stage a new object and return it. `managed`: its managers, where it is applied. Raises: ApiError."""
        self._unknown.clear()
        request, resource = self.request, self.resource
        ctx = self.contexts.context(self.identity, request, staged, self._session)
        new = self._own(body if managed is not None else self._as_stored(body, None))
        meta = new["metadata"]
        self._place(meta)
        name = meta.get("name") or ""
        if request.name and name:
            self._check_name(name)
        namespace = request.namespace
        if resource.namespaced:
            self._check_namespace(staged, namespace, name)
        if not name and meta.get("generateName"):
            name = self._generated_name(ctx, staged, namespace, meta["generateName"])
            meta["name"] = name
        if not name:
            self._refuse(name, [required("metadata.name", "name or generateName is required")])
        taken = staged.get(resource.name, namespace, name)
        if self._is_outside:
            ctx.warnings.extend(self._faults())
        if str(meta.get("resourceVersion") or "0") != "0":
            raise BadRequest("resourceVersion should not be set on objects to be created")
        for field in (*_DELETION, "resourceVersion", "selfLink", "generation"):
            meta.pop(field, None)
        sent = meta.pop("managedFields", None)
        if managed is not None:
            managers = managed
        else:
            managers = (
                self._managers().created(sent, self.strategy.defaulted(new), ctx.wall_s) if self._is_outside else []
            )
        meta["uid"] = self._uid(ctx, taken)
        meta["creationTimestamp"] = format_time(ctx.wall_s)
        if resource.has_generation:
            meta["generation"] = 1
        self._prepare_create(new, ctx)
        admit(self.identity, request, None, new, ctx)
        admitting = None if self.contexts.admission is None else self._admitting(ctx)
        if admitting is not None:
            new = self._mutated_creation(admitting, new, ctx, is_generated=not metadata_of(body).get("name"))
        self._refuse(name, self.strategy.validate(None, new, ctx))
        self.strategy.check_bounds(None, new, ctx)
        if admitting is not None:
            self._examine(admitting, self._attributes(new, None, name), ctx)
        if self._is_outside:
            ctx.warnings.extend(warnings.of(resource.name, None, new))
        charged = charges(resource, None, new, ctx)
        if taken is not None:
            raise _already_exists(resource, taken)
        check_capacity(self.contexts.limits, staged, resource, namespace, name)
        if managers:
            new["metadata"]["managedFields"] = managers
        if request.dry_run:
            return self._answer(msgspec.json.encode(new), staged.rv, ctx, 201)
        record = staged.put(resource, new, self.traceparent)
        self._charge(staged, charged)
        return self._answer(record.body, record.rv, ctx, 201)

    def _uid(self, ctx: WriteContext, taken: Record | None) -> str:
        """Return the uid of a new object, the same in every attempt; what cannot be made is given none of its own."""
        if taken is not None:
            return taken.uid
        session = self._session
        if session is None:
            return new_uid(ctx.random)
        session.uid = session.uid or new_uid(ctx.random)
        return session.uid

    def _charge(self, staged: Staged, charged: Iterable[Document]) -> None:
        """Stage what quotas are used now: after the object, which the commit is named by."""
        for quota in charged:
            staged.put(self.contexts.catalogue.find(QUOTAS), quota, self.traceparent)

    def _own(self, body: Document, old: Document | None = None) -> Document:
        """Return the document, its kind in front, its metadata its own. Raises: BadRequest for another kind or type."""
        resource = self.resource
        kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
        if (version, kind) != (resource.api_version, resource.kind):
            raise self.contexts.catalogue.wrong_type(resource, str(version), str(kind))
        meta = body.get("metadata")
        if meta is not None and not isinstance(meta, dict):
            raise BadRequest(f"metadata must be an object, got {type(meta).__name__}")
        new: Document = {"apiVersion": version, "kind": kind, "metadata": {}}
        new.update(body)
        new["apiVersion"], new["kind"] = version, kind
        new["metadata"] = {n: v for n, v in (meta or {}).items() if v is not None}
        return self._typed(new, old)

    def _as_stored(self, sent: Document, old: Document | None) -> Document:
        """Return what was sent in the caller's version as it is stored, once that version's own rules have read it.

        Raises: BadRequest and Invalid in the words of that version, Unanswered for a webhook that has to convert it.
        """
        served = self._versions.sent(self.request.api_version)
        if served is None:
            return sent
        resource = served.resource
        kind, version = sent.get("kind") or resource.kind, sent.get("apiVersion") or resource.api_version
        if (version, kind) != (resource.api_version, resource.kind):
            raise self.contexts.catalogue.wrong_type(resource, str(version), str(kind))
        if served.check is None:
            return self._stored_form(self._read_as(served.shape, resource, sent, None))
        before = None if old is None else self._versions.convert([old], self._versions.stored, version)[0]
        read, dropped, causes = served.check(
            {"apiVersion": version, "kind": kind, **sent}, before, self.request.subresource
        )
        self._unknown += dropped
        if causes:
            raise invalid(
                resource.qualified_kind, self.request.name or str(metadata_of(sent).get("name") or ""), causes
            )
        return self._stored_form(read)

    def _stored_form(self, document: Document) -> Document:
        return self._versions.convert([document], self.request.api_version, self._versions.stored)[0]

    def patched(self, old: Document, patch: Any) -> Document:
        """Return what a patch of the object in the caller's version makes of the stored one; `old` where nothing.

        Raises: ApiError, Unanswered.
        """
        kind, how = self._kind, self.request.patch_type
        served = self._versions.sent(self.request.api_version)
        if served is None:
            return apply_patch(old, patch, how, kind.shape, kind.resource.kind)
        [before] = self._versions.convert([old], self._versions.stored, served.resource.api_version)
        after = apply_patch(before, patch, how, served.shape, kind.resource.kind)
        return old if after == before else self._as_stored(after, old)

    def _faults(self) -> list[str]:
        """Return the warnings about fields that the kind does not have, or that the body has twice.

        Source: upstream's `fieldValidation`, which is Warn where a client does not say. Raises: BadRequest where it is
        Strict, Invalid for a patch.
        """
        request, resource = self.request, self.resource
        if request.field_validation not in ("Warn", "Strict"):
            return []
        faults = [f'duplicate field "{path}"' for path in self.repeated or ()]
        if request.patch_type == APPLY:
            faults = [
                f"yaml: unmarshal errors:\n  line 1: key {_name_of(path)} already set in map"
                for path in self.repeated or ()
            ]
        faults += unknown_fields(self._unknown)
        if not faults or request.field_validation == "Warn":
            return faults
        if request.patch_type == APPLY:
            raise BadRequest(f"error strict decoding YAML: error converting YAML to JSON: {'; '.join(faults)}")
        if request.patch_type:
            raise self._bad_patch(f"strict decoding error: {', '.join(faults)}", None)
        raise strict_refusal(request.api_version or resource.api_version, resource.kind, faults)

    def _bad_patch(self, why: str, result: Document | None) -> ApiError:
        """Return the refusal of a patch that makes what is not of the kind's type: upstream shows what it decoded."""
        try:
            patch = msgspec.json.decode(self.request.body)
        except UNREADABLE:
            patch = self.request.body.decode(errors="replace")
        is_merged = self.request.patch_type == "strategic"
        shown = go_text(patch) if is_merged else msgspec.json.encode(patch if result is None else result).decode()
        return invalid("", "", [invalid_value("patch", shown, why)])

    def _mistyped(self, refusal: Mistyped, new: Document) -> ApiError:
        request, resource = self.request, self.resource
        if request.patch_type == APPLY:
            version = request.api_version or resource.api_version
            group, _, name = version.rpartition("/")
            meta = new.get("metadata") or {}
            what = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {group}/{name}, Kind={resource.kind}"
            return BadRequest(
                f"failed to convert new object ({what}) to proper version: unable to convert unstructured object to "
                f"{version}, Kind={resource.kind}: {refusal.mistake}"
            )
        return self._bad_patch(refusal.mistake, new) if request.patch_type else refusal

    def _read_as(self, shape: Shape, resource: Resource, new: Document, old: Document | None) -> Document:
        """Return a document as a type reads it. Raises: BadRequest, Invalid for a patch."""
        is_converted = self.request.patch_type in ("strategic", APPLY)
        try:
            return conform(
                shape, resource.api_version, resource.kind, new, old, self._unknown, is_converted=is_converted
            )
        except Mistyped as refusal:
            raise self._mistyped(refusal, new) from None

    def _typed(self, new: Document, old: Document | None) -> Document:
        strategy = self.strategy
        typed = self._read_as(strategy.typed or self._shape, self.resource, new, old)
        try:
            msgspec.convert(typed["metadata"], ObjectMeta)
        except msgspec.ValidationError as error:
            raise BadRequest(f"metadata cannot be read: {error}") from None
        if strategy.read is not None:
            typed, dropped = strategy.read(typed)
            self._unknown += dropped
        return typed

    def _old(self, stored: Record) -> Document:
        """Return the stored object in the version that is stored now. Raises: ApiError, Unanswered."""
        old: Document = msgspec.json.decode(stored.body)
        if self.strategy.read_stored is None:
            return old
        old = self.strategy.read_stored(old)[0]
        return self._versions.convert([old], str(old["apiVersion"]), self._versions.stored)[0]

    def _check_name(self, name: str) -> None:
        wanted = self.request.name
        if name != wanted:
            raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({wanted})")

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
        """Raises: NotFound without the namespace, Forbidden while it is being deleted (NamespaceLifecycle)."""
        found = staged.get(NAMESPACES, "", namespace)
        if found is None:
            raise NotFound(f'namespaces "{namespace}" not found', details={"name": namespace, "kind": NAMESPACES})
        if found.is_deleting:
            raise Forbidden(
                f'{self.resource.name} "{name}" is forbidden: unable to create new content in namespace {namespace} '
                "because it is being terminated",
                details={
                    **details_of(self.resource, name),
                    "causes": [
                        {
                            "reason": "NamespaceTerminating",
                            "message": f"namespace {namespace} is being terminated",
                            "field": "metadata.namespace",
                        }
                    ],
                },
            )

    def _refuse(self, name: str, causes: Causes) -> None:
        if found := [*causes]:
            raise invalid(self.resource.qualified_kind, name, found)

    def _generated_name(self, ctx: WriteContext, staged: Staged, namespace: str, prefix: str) -> str:
        """Return a free name for a new object, the one it had at the first attempt if that is still free."""
        session = self._session
        known = session.name if session is not None else ""
        if known and staged.get(self.resource.name, namespace, known) is None:
            return known
        name = choose_name(ctx.random, staged, self.resource, namespace, prefix)
        if session is not None:
            session.name = name
        return name

    # -- what is configured besides the kind's own rules

    def _admitting(self, ctx: WriteContext) -> Admitting | None:
        """Return what webhooks and policies do to this write, None when none is about it."""
        concern = self.contexts.concern(self.resource, self.request)
        if concern is None:
            return None
        ask = asker(self.identity, lambda who, request: authorize(who, request, ctx.lookup, ctx.list, ctx.policy))
        session = self._session

        def convert(conversion: Conversion, documents: list[Document]) -> list[Document]:
            return converted(conversion, documents, session)

        return concern.admitting(Surroundings(ctx.lookup, ctx.list, Labels(ctx.labels), ask, convert), session)

    def _attributes(self, document: Document | None, old: Document | None, name: str) -> Attributes:
        request, resource = self.request, self.resource
        operation = _OPERATIONS[request.verb]
        # A namespace is in itself, once it is there.
        own = request.name if resource.name == NAMESPACES and operation != CREATE else ""
        return Attributes(
            operation=operation,
            resource=resource,
            requested=self.contexts.requested(resource, request),
            subresource=request.subresource,
            namespace=request.namespace or own,
            name=name,
            object=document,
            old=old,
            identity=self.identity,
            request=request,
        )

    def _mutated_creation(
        self, admitting: Admitting, new: Document, ctx: WriteContext, *, is_generated: bool
    ) -> Document:
        """Return a new object as policies and webhooks change it; what the server gives it they do not see."""
        given = {name: new["metadata"][name] for name in _GIVEN if name in new["metadata"]}
        name = new["metadata"]["name"]
        if is_generated:
            given["name"] = name

        def shown(document: Document) -> Document:
            return {**document, "metadata": {n: v for n, v in document["metadata"].items() if n not in given}}

        def completed(document: Document) -> Document:
            found = self._own({**document, "metadata": {**(document.get("metadata") or {}), **given}})
            self._place(found["metadata"])
            self._check_name_is(found, name)
            self._prepare_create(found, ctx)
            return found

        found = self._attributes(shown(new), None, "" if is_generated else name)
        changed = self._mutate(admitting, found, ctx, lambda document: shown(completed(document)))
        return new if changed is None or changed == found.object else completed(changed)

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
        def completed(document: Document) -> Document:
            found = self._inherit(document, old, stored, is_patch=True)
            self._prepare_update(old, found, ctx)
            return found

        found = self._attributes(new, old, self.request.name)
        changed = self._mutate(admitting, found, ctx, completed)
        return new if changed is None or changed == new else completed(changed)

    def _mutated_form(
        self, admitting: Admitting, sub: Subresource, body: Document, old: Document, ctx: WriteContext
    ) -> Document:
        """Return what is written to a subresource as policies and webhooks change it.

        What is created there (a binding, an eviction) is examined at once: the object it leads to is another.
        """
        request = self.request
        is_creation = request.verb == "create"
        is_form = not is_creation and sub.name in ("status", "finalize", "resize", "ephemeralcontainers")
        if is_creation and (kind := SUBRESOURCE_KINDS.get(sub.name)) is not None:
            meta = {"name": request.name, "namespace": request.namespace, **metadata_of(body)}
            body = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        before = None if is_creation else sub.read(old)

        def completed(document: Document) -> Document:
            return self._typed_form(document, old) if is_form else document

        changed = self._mutate(admitting, self._attributes(body, before, request.name), ctx, completed)
        body = body if changed is None else changed
        if is_creation:
            self._examine(admitting, self._attributes(body, None, request.name), ctx)
        return body

    def _mutate(
        self, admitting: Admitting, found: Attributes, ctx: WriteContext, complete: Callable[[Document], Document]
    ) -> Document | None:
        try:
            return admitting.mutate(found, complete)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise

    def _examine(self, admitting: Admitting, found: Attributes, ctx: WriteContext) -> None:
        """Return when nothing refuses the write; what was warned of goes to its caller. Raises: ApiError."""
        try:
            admitting.examine(found)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise
        ctx.warnings.extend(admitting.warnings)
        ctx.audit.update(admitting.audit)

    def connect(self, staged: Staged, options: Document, complete: Complete) -> Connection:
        """Return the options of a connection as policies and webhooks leave them; nothing is staged. Raises: ApiError,
        Pending."""
        ctx = self.contexts.context(self.identity, self.request, staged, self._session)
        admitting = self._admitting(ctx)
        if admitting is None:
            return Connection(options)
        name = self.request.name
        changed = self._mutate(admitting, self._attributes(options, None, name), ctx, complete)
        options = options if changed is None else changed
        self._examine(admitting, self._attributes(options, None, name), ctx)
        return Connection(options, tuple(ctx.warnings), ctx.audit)

    # -- update and patch

    def replace(self, staged: Staged, body: Document) -> Response:
        """Stage the object as `body` has it; a new one where the kind allows that. Raises: ApiError."""
        request, resource = self.request, self.resource
        named = request.resource_version or metadata_of(body).get("resourceVersion")
        if (
            resource.name not in CREATED_BY_UPDATE
            or named
            or staged.get(resource.name, request.namespace, request.name)
        ):
            return self.update(staged, lambda old: self._as_stored(body, old), is_patch=False)
        create = msgspec.structs.replace(request, verb="create")
        creation = Write(self.contexts, resource, self.identity, create, self.traceparent, self._session)
        creation.repeated = self.repeated
        return creation.create(staged, body)

    def update(self, staged: Staged, change: Callable[[Document], Document | Applied], *, is_patch: bool) -> Response:
        """Stage what `change` makes of the stored object and return it. Raises: ApiError."""
        self._unknown.clear()
        request, resource = self.request, self.resource
        stored = self._stored(staged)
        old = self._old(stored)
        self._check_preconditions(stored, request.uid, request.resource_version)
        changed, managed = change(old), None
        if isinstance(changed, Applied):
            changed, managed = changed
        elif changed is old and self.contexts.admission is None:
            return Response(code=200, rv=stored.rv, body=stored.body)
        new = self._inherit(changed, old, stored, is_patch=is_patch)
        sent = new["metadata"].pop("managedFields", None)
        ctx = self.contexts.context(self.identity, request, staged, self._session)
        if self._is_outside:
            ctx.warnings.extend(self._faults())
        self._prepare_update(old, new, ctx)
        admit(self.identity, request, old, new, ctx)
        admitting = None if self.contexts.admission is None else self._admitting(ctx)
        if admitting is not None:
            new = self._mutated_update(admitting, new, old, stored, ctx)
        self._refuse(request.name, [*new_finalizers(old, new), *self.strategy.validate(old, new, ctx)])
        self.strategy.check_bounds(old, new, ctx)
        if admitting is not None:
            self._examine(admitting, self._attributes(new, old, request.name), ctx)
        if self._is_outside:
            ctx.warnings.extend(warnings.of(resource.name, old, new))
        charged = charges(resource, old, new, ctx) if resource.name in CHARGED_ON_UPDATE else []
        if resource.has_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
        if self._is_outside or "managedFields" in old["metadata"]:
            self._set_managers(old, new, sent, managed, ctx)
        # What says nothing new is not stored again.
        body, rv = (stored.body, stored.rv) if new == old else self._store(staged, stored, new, charged)
        return self._answer(body, rv, ctx, 200)

    def _set_managers(
        self, old: Document, new: Document, sent: Any, managed: list[Document] | None, ctx: WriteContext
    ) -> None:
        """Give the new document, whose metadata is its own, its `managedFields`."""
        if managed is not None:
            managers = managed
        else:
            managers = self._managers().updated(sent, old, new, ctx.wall_s)
        if managers:
            new["metadata"]["managedFields"] = managers

    def apply(self, staged: Staged, config: Document, may_create: Callable[[], object]) -> Response:
        """Stage what applying the configuration makes of the object, or makes; return it.

        `may_create` refuses who may not create what is not there. Raises: ApiError.
        """
        request, resource = self.request, self.resource
        config = self._named(config)
        wall_s = self.contexts.wall_s()
        if staged.get(resource.name, request.namespace, request.name) is None:
            may_create()
            found = self._managers().applied(None, config, wall_s)
            return self.create(staged, {**found.document}, found.managers)
        return self.update(staged, lambda old: self._managers().applied(old, config, wall_s), is_patch=True)

    def _named(self, config: Document) -> Document:
        """Return the configuration with kind, name and namespace as the path has them. Raises: BadRequest."""
        request, resource = self.request, self.resource
        meta = {} if config.get("metadata") is None else config["metadata"]
        if not isinstance(meta, dict):
            raise BadRequest("metadata: want an object")
        version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
        wanted = request.api_version or resource.api_version
        if kind != resource.kind or version != wanted:
            if not version or not kind:
                raise BadRequest(
                    f"an apply patch of {request.resource} needs "
                    f"apiVersion {quoted(wanted)}, kind {quoted(resource.kind)}"
                )
            group, _, name = version.rpartition("/")
            raise BadRequest(f"invalid object type: {group}/{name}, Kind={kind}")
        if meta.get("name", request.name) != request.name:
            raise BadRequest(
                f"the name in the patch ({meta['name']}) does not match the name in the URL ({request.name})"
            )
        if meta.get("namespace", request.namespace) != request.namespace:
            raise BadRequest(
                f"the namespace in the patch ({meta['namespace']}) does not match the one in the URL "
                f"({request.namespace})"
            )
        return {**config, "metadata": {**meta, "name": request.name}}

    def _stored(self, staged: Staged) -> Record:
        stored = staged.get(self.resource.name, self.request.namespace, self.request.name)
        if stored is None:
            raise not_found(self.resource, self.request.name)
        return stored

    def _check_preconditions(self, stored: Record, uid: str, version: str) -> None:
        name = stored.name
        if uid and uid != stored.uid:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). {RECREATED_TEXT}"
            )
            raise conflict(self.resource, name, why)
        if version and parse_rv(version) != stored.rv and version != "0":
            raise conflict(self.resource, name, MODIFIED_TEXT)

    def _check_uid(self, stored: Record, uid: str, *, is_patch: bool) -> None:
        """Refuse a document that is of another object with the name. Raises: Invalid for a patch, else Conflict."""
        if not uid or uid == stored.uid:
            return
        if is_patch:
            text = f'Invalid value: "{uid}": field is immutable'
            self._refuse(stored.name, [Cause("metadata.uid", "FieldValueInvalid", text)])
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
        at = f"Key: {_storage_key(self.resource, stored)}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        raise conflict(self.resource, stored.name, f"StorageError: invalid object, Code: 4, {at}")

    def _inherit(self, changed: Document, old: Document, stored: Record, *, is_patch: bool) -> Document:
        """Return the new document with what only the server may set taken from the old one (S19, S22).

        What the caller put there instead counts as a precondition: uid and resourceVersion.
        """
        new = self._own_patched(changed, old) if is_patch else self._own(_sharing(changed, old), old)
        meta, before = new["metadata"], old["metadata"]
        self._check_name(meta.get("name", before["name"]))
        self._place(meta)
        meta["name"] = before["name"]
        version = str(meta.get("resourceVersion") or "")
        self._check_uid(stored, str(meta.get("uid") or ""), is_patch=is_patch and self._is_outside)
        self._check_preconditions(stored, "", version)
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

    def _own_patched(self, changed: Document, old: Document) -> Document:
        for field in ("apiVersion", "kind"):
            if changed.get(field) != old.get(field):
                raise BadRequest(
                    f"a patch cannot change {field} from {quoted(old.get(field))} to {quoted(changed.get(field))}"
                )
        meta = changed.get("metadata")
        if not isinstance(meta, dict):
            raise BadRequest("a patch cannot replace metadata by something that is not an object")
        new = self._typed({**changed}, old)
        return {**new, "metadata": dict(new["metadata"])}

    def _store(
        self, staged: Staged, stored: Record, new: Document, charged: Iterable[Document] = (), *, is_gone: bool = False
    ) -> tuple[bytes, int]:
        """Stage the new document, or its removal when nothing holds it any more; return its bytes and version."""
        if self.request.dry_run:
            return msgspec.json.encode(new), stored.rv
        final = {**new, "metadata": {**new["metadata"]}}
        if is_gone or _is_released(final):
            record = staged.remove(self.resource, final, self.traceparent)
        else:
            record = staged.put(self.resource, final, self.traceparent)
            self._charge(staged, charged)
        return record.body, record.rv

    def _answer(self, body: bytes, rv: int, ctx: WriteContext, code: int) -> Response:
        return Response(code=code, rv=rv, body=body, warnings=tuple(ctx.warnings), audit=ctx.audit)

    # -- subresources

    def subresource(self, staged: Staged, sub: Subresource, body: Any) -> Response:
        """Stage what the subresource makes of the object and return its answer. Raises: ApiError."""
        request, resource = self.request, self.resource
        stored = staged.get(resource.name, request.namespace, request.name)
        old = None if stored is None else self._old(stored)
        ctx = self.contexts.context(self.identity, request, staged, self._session)
        if request.verb in ("create", "update"):
            body = _of_type(sub, body)
        sub.check_first(old, body, ctx)
        if stored is None or old is None:
            raise not_found(resource, request.name, subresource="scale" if sub.name == "scale" else "")
        managed: list[Document] | None = None
        if request.verb in ("update", "patch"):
            self._check_preconditions(stored, request.uid, request.resource_version)
            if request.patch_type == APPLY:
                body, managed = self._applied_form(sub, old, body)
            elif request.verb == "patch":
                form = sub.read(old)
                body = self._patched_form(sub, form, body)
                if body == form:
                    return self._answer(stored.body if form is old else msgspec.json.encode(form), stored.rv, ctx, 200)
            elif sub.name == STATUS:
                body = self._as_stored(body, old)
            meta = body.get("metadata")
            if isinstance(meta, dict):
                self._check_preconditions(stored, str(meta.get("uid") or ""), str(meta.get("resourceVersion") or ""))
                self._check_name(meta.get("name", request.name))
            if sub.name in ("status", "finalize", "resize", "ephemeralcontainers", "approval"):
                body = self._typed_form(body, old)
            if self._is_outside:
                ctx.warnings.extend(self._faults())
        admitting = None if self.contexts.admission is None else self._admitting(ctx)
        if admitting is not None:
            body = self._mutated_form(admitting, sub, body, old, ctx)
        result = sub.apply(old, body, ctx)
        if result.document is not None and not sub.admits:
            admit(self.identity, request, old, result.document, ctx)
        if admitting is not None and request.verb != "create":
            form = body if result.document is None else sub.read(result.document)
            self._examine(admitting, self._attributes(form, sub.read(old), request.name), ctx)
        remains, is_gone = result.document, False
        if request.verb in ("update", "patch") and (self._is_outside or "managedFields" in old["metadata"]):
            remains = self._with_managers(old, remains, managed, ctx)
        charged = charges(resource, old, remains, ctx) if sub.is_charged and remains is not None else []
        if result.delete is not None:
            before = old if remains is None else remains
            left = self.strategy.before_delete(before, ctx, result.delete)
            is_gone = left is None
            remains = before if left is None else (None if left is old else left)
        body_bytes, rv = stored.body, stored.rv
        if not request.dry_run:
            for kind, other in result.also:
                staged.put(
                    self.contexts.catalogue.find(kind), {**other, "metadata": {**other["metadata"]}}, self.traceparent
                )
        if remains is not None and (request.dry_run or is_gone or remains != old):
            body_bytes, rv = self._store(staged, stored, remains, charged, is_gone=is_gone)
        if result.response is not None:
            return self._answer(msgspec.json.encode(result.response), rv, ctx, result.code)
        if sub.name == "scale":
            body_bytes = msgspec.json.encode(sub.read(msgspec.json.decode(body_bytes)))
        return self._answer(body_bytes, rv, ctx, result.code)

    def _patched_form(self, sub: Subresource, form: Document, patch: Any) -> Document:
        """Return what a patch makes of what a subresource reads."""
        if sub.name == STATUS:
            return self.patched(form, patch)
        version, kind = str(form.get("apiVersion") or ""), str(form.get("kind") or "")
        shape = self.contexts.catalogue.shape_of(version, kind)
        return _of_type(sub, apply_patch(form, patch, self.request.patch_type, shape, kind))

    def _applied_form(self, sub: Subresource, old: Document, config: Document) -> tuple[Document, list[Document]]:
        """Return what applying a configuration makes of what the subresource reads, and of the object's managers."""
        wall_s = self.contexts.wall_s()
        if sub.name != SCALE:
            return self._managers().applied(old, self._named(config), wall_s)
        form = sub.read(old)
        if (config.get("apiVersion"), config.get("kind")) != (form["apiVersion"], form["kind"]):
            group, _, name = str(config.get("apiVersion") or "").rpartition("/")
            raise BadRequest(f"invalid object type: {group}/{name}, Kind={config.get('kind')}")
        config = _of_type(sub, config)
        # The manager of a Scale's replicas is one of the replicas of the object that is scaled.
        spec = {name: value for name, value in (config.get("spec") or {}).items() if name == "replicas"}
        mapped = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": {}, "spec": spec}
        found = self._managers().applied(old, mapped, wall_s)
        return {**form, "spec": {"replicas": found.document["spec"].get("replicas")}}, found.managers

    def _with_managers(
        self, old: Document, remains: Document | None, managed: list[Document] | None, ctx: WriteContext
    ) -> Document | None:
        """Return what is to be stored with its `managedFields`; None for nothing, not even another manager."""
        new = old if remains is None else remains
        meta = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
        new = {**new, "metadata": meta}
        self._set_managers(old, new, None, managed, ctx)
        return None if remains is None and new == old else new

    def _typed_form(self, body: Document, old: Document) -> Document:
        body = {"apiVersion": old["apiVersion"], "kind": old["kind"], **body}
        if not isinstance(body.get("metadata", {}), dict):
            raise BadRequest("metadata must be an object")
        body.setdefault("metadata", old["metadata"])
        return self._typed(body, old)

    # -- delete

    def delete(self, staged: Staged, options: DeleteOptions) -> Response:
        """Stage the removal, or the mark of one that waits for a grace period or finalizers. Raises: ApiError."""
        request, resource = self.request, self.resource
        stored = self._stored(staged)
        self._check_preconditions(stored, options.uid, "")
        version = options.resource_version
        if version and version != "0" and parse_rv(version) != stored.rv:
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
            raise conflict(resource, stored.name, f"{why} ({stored.rv}). The object might have been modified")
        old: Document = msgspec.json.decode(stored.body)
        ctx = self.contexts.context(self.identity, request, staged, self._session)
        admit(self.identity, request, old, None, ctx)
        if self.contexts.admission is not None and (admitting := self._admitting(ctx)) is not None:
            found = self._attributes(None, old, stored.name)
            admitting.mutate(found, lambda document: document)
            self._examine(admitting, found, ctx)
        remains = self.strategy.before_delete(old, ctx, options)
        if remains is None:
            body, rv = self._store(staged, stored, old, is_gone=True)
            if resource.name in ANSWERED_WHOLE:
                return self._answer(body, rv, ctx, 200)
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {**details_of(resource, stored.name), "uid": stored.uid},
            }
            return self._answer(msgspec.json.encode(status), rv, ctx, 200)
        body, rv = (stored.body, stored.rv) if remains == old else self._store(staged, stored, remains)
        return self._answer(body, rv, ctx, 200)


def _sharing(new: Document, old: Document) -> Document:
    """Return the document with the old one's members where both say the same: rules do not look at those again."""
    return {name: old[name] if _is_same(value, old.get(name)) else value for name, value in new.items()}


def _is_same(one: Any, other: Any) -> bool:
    # Equality alone would take 1 for true.
    return (
        isinstance(one, dict | list)
        and one == other
        and msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    )


def _name_of(path: str) -> str:
    return msgspec.json.encode(path.rpartition(".")[2]).decode()


def _is_released(document: Document) -> bool:
    """Whether nothing keeps a deleted object any more: no finalizers, and its grace period was confirmed (S19)."""
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    is_namespace = document.get("kind") == "Namespace"
    return not (is_namespace and (document.get("spec") or {}).get("finalizers"))


def _of_type(sub: Subresource, body: Document) -> Document:
    """Return a subresource's body as its type reads it. Raises: BadRequest where it is not of that type."""
    version, kind = sub.body
    return conform(shape_of(version, kind), version, kind, body) if kind else body
