"""The extension points of the registry's one write path: strategies of kinds, and subresources.

The registry decodes, patches and commits. The differences between kinds are values: one `Strategy` per kind, in
`STRATEGIES` of a file of `registry/strategies/`, by API group, and one `Subresource` per subresource, in
`SUBRESOURCES` of a file of `registry/subresources/`. Nothing else has to be registered. Everything here is
plain functions of documents and a `WriteContext`. Most kinds need no more than a table of field rules
(`declare_strategy`). Source: upstream's declarative validation (KEP-5073) and the strategies in `pkg/registry`.

The order on a write: `authorization.authorize`; decode; `patch.apply_patch`; `schemas.check_fields`
(strictness) and `schemas.conform` (types, after which rules may trust them); `prepare_*`;
`authorization.admit`; `validate`; `check_bounds`; `quota_admission.charges`; commit. `validate` includes the
rules of metadata.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import msgspec

from apiserver_fake.registry.accounts import NO_ACCOUNTS, ServiceAccounts
from apiserver_fake.registry.decode import decode_object
from apiserver_fake.registry.errors import invalid_option, method_not_allowed, no_such_path
from apiserver_fake.registry.policy import Policy
from apiserver_fake.registry.schema.schemas import Shape
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.validation.fields import Form, Report, Struct
from apiserver_fake.registry.validation.formats import Cause, Causes, metadata, subdomain, value_text
from services.api.errors import BadRequest
from services.api.identity import Identity
from services.api.meta import Document, Resource
from services.api.seams import Random
from services.api.switches import Switches
from services.api.times import format_time
from services.api.wire import Request

Lookup = Callable[[str, str, str], Document | None]
"""Function that returns the newest document for `(resource, namespace, name)`, staged writes included; read-only."""
Reading = Callable[[Document], tuple[Document, list[str]]]
Labels = Callable[[str, str, str], Mapping[str, str] | None]
"""Function that returns the newest labels for `(resource, namespace, name)`; None if there is no such object."""


@dataclass
class TokenBucket:
    """A token bucket with `level` tokens at monotonic second `at_s`; filled at `rate_per_s` up to `burst`."""

    level: float
    at_s: float

    def wait_s(self, rate_per_s: float, burst: float, now_s: float) -> float:
        """Refill and return the seconds until one token is available; 0 if one is."""
        self.level = min(burst, self.level + max(0.0, now_s - self.at_s) * rate_per_s)
        self.at_s = now_s
        if self.level >= 1:
            return 0.0
        return (1 - self.level) / rate_per_s if rate_per_s > 0 else 3600.0


@dataclass
class ServerMemory:
    """State that the server keeps between writes and may forget at a restart.

    `buckets`: rate limiters. `renewed_s`: time of the last renewal of each lease `namespace/name`, by the server's
    own monotonic clock; no wall clock decides whether a holder is alive.
    """

    buckets: dict[str, TokenBucket] = field(default_factory=dict)
    renewed_s: dict[str, float] = field(default_factory=dict)

    def copy(self) -> ServerMemory:
        """Return a copy for a write that is only rehearsed."""
        buckets = {name: replace(each) for name, each in self.buckets.items()}
        return ServerMemory(buckets, dict(self.renewed_s))

    def bucket(self, name: str, burst: float, now_s: float) -> TokenBucket:
        """Return the bucket of that name; a new one is full."""
        return self.buckets.setdefault(name, TokenBucket(burst, now_s))


class WriteContext(msgspec.Struct, frozen=True):
    """The context that a rule may read while a write is being committed.

    `now_s` is monotonic, for durations; `wall_s` is epoch seconds, for timestamps people read. `register` has all
    switches, for rules that other components share. `lookup(resource, namespace, name)` and `list(resource,
    namespace)` show staged and committed state; their results must not be changed. `labels` looks up an object's
    labels alone, without decoding its document. `strategy` has the rules of the kind that is written. `warnings`
    collects `Warning:` header texts, `audit` annotations of admission. `policy`: the RBAC policy for the writer,
    None for the mesh's own components, whose roles are the only rule. `accounts`: the service account settings.
    `is_converting`: whether conversion webhooks can be called, which a simulation cannot.
    """

    identity: Identity
    now_s: float
    wall_s: float
    switches: ApiServerSwitches
    register: Switches
    random: Random
    request: Request
    lookup: Lookup
    list: Callable[[str, str], Iterable[Document]]
    memory: ServerMemory
    labels: Labels
    strategy: Strategy
    warnings: MutableSequence[str] = []
    audit: MutableMapping[str, str] = {}
    policy: Policy | None = None
    accounts: ServiceAccounts = NO_ACCOUNTS
    is_converting: bool = True


@dataclass(frozen=True)
class DeleteOptions:
    """The options of a delete. `propagation`: "", Background, Foreground or Orphan. A precondition that is ""
    is not checked.
    """

    grace_period_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def from_document(cls, body: Document) -> DeleteOptions:
        """Read a DeleteOptions document; {} means all defaults. Raises: BadRequest for values of a wrong type."""
        grace = body.get("gracePeriodSeconds")
        conditions = body.get("preconditions") or {}
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
            raise BadRequest(f"deleteOptions.gracePeriodSeconds: {value_text(grace)} is not an integer")
        if not isinstance(conditions, dict):
            raise BadRequest(f"deleteOptions.preconditions: {value_text(conditions)} is not an object")
        propagation = str(body.get("propagationPolicy") or "")
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            known = '"Foreground", "Background", "Orphan", "nil"'
            message = f'Unsupported value: "{propagation[:64]}": supported values: {known}'
            raise invalid_option("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", message)
        if body.get("orphanDependents") is not None:
            if propagation:
                why = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
                raise invalid_option("DeleteOptions", "propagationPolicy", "FieldValueInvalid", why)
            propagation = "Orphan" if body["orphanDependents"] else "Background"
        return cls(
            grace_period_s=None if grace is None else max(0, grace),
            propagation=propagation,
            uid=str(conditions.get("uid") or ""),
            resource_version=str(conditions.get("resourceVersion") or ""),
        )


def delete_options(request: Request) -> DeleteOptions:
    """Return the options of a delete, including preconditions of the request. Raises: BadRequest."""
    options = DeleteOptions.from_document(decode_object(request.body, "DeleteOptions") if request.body else {})
    return replace(
        options, uid=options.uid or request.uid, resource_version=options.resource_version or request.resource_version
    )


def delete_now_or_mark(old: Document, ctx: WriteContext, options: DeleteOptions, grace_s: int = 0) -> Document | None:
    """Return the object after a delete: None if it is removed at once, else a new document marked as being
    deleted.

    The deletion time is set once and only ever moved earlier; finalizers keep the object. If a deletion is in
    progress already, `old` is returned unchanged (`is old`). Foreground and orphan deletion add their finalizer.
    Source: guarantees S19, S20.
    """
    meta = old["metadata"]
    finalizers = list(meta.get("finalizers") or ())
    wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.propagation, "")
    marked = meta.get("deletionTimestamp")
    if wanted and wanted not in finalizers:
        finalizers = [f for f in finalizers if f not in ("foregroundDeletion", "orphan")] + [wanted]
    elif options.propagation == "Background":
        finalizers = [f for f in finalizers if f not in ("foregroundDeletion", "orphan")]
    if not finalizers and grace_s <= 0:
        return None
    changed = {**meta}
    if finalizers:
        changed["finalizers"] = finalizers
    else:
        changed.pop("finalizers", None)
    if not marked and meta.get("generation"):
        changed["generation"] = meta["generation"] + 1
    if not marked or grace_s < (meta.get("deletionGracePeriodSeconds") or 0):
        changed["deletionTimestamp"] = format_time(ctx.wall_s + grace_s)
        changed["deletionGracePeriodSeconds"] = grace_s
    return old if changed == meta else {**old, "metadata": changed}


def drop_status(new: Document, ctx: WriteContext) -> None:
    """Remove the status that a creator sent: only the status subresource writes it (S21)."""
    if "status" in new:
        new["status"] = {}


def keep_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Restore the stored status in a write of the object itself (S21)."""
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def next_generation(stored: Document) -> Document:
    """Return the object for a change of its spec: with a copy of its metadata and the next generation."""
    meta = stored["metadata"]
    return {**stored, "metadata": {**meta, "generation": int(meta.get("generation") or 0) + 1}}


_STATUS: Final = frozenset(("status",))


def keep_all_but_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Restore everything but the status in a write of the status (S21)."""
    for name in new.keys() - old.keys() - _STATUS:
        del new[name]
    for name, value in old.items():
        if name != "status":
            new[name] = value


@dataclass(frozen=True)
class Strategy:
    """The rules of one kind; every part is optional.

    `prepare_*` change `new` in place by assigning its top-level members (deeper values may be shared with `old`):
    they set defaults, and restore fields that this writer may not change (S21, S22). `validate` returns all errors;
    `check_bounds` raises Forbidden for an object that is valid in itself but too much for its namespace.
    `before_delete` returns the object after a delete: None, or the document to store (`is old`: nothing to write).
    `*_status` are the same for the `status` subresource.
    """

    prepare_create: Callable[[Document, WriteContext], None] = lambda new, ctx: None
    prepare_update: Callable[[Document, Document, WriteContext], None] = lambda old, new, ctx: None
    validate: Callable[[Document | None, Document, WriteContext], Causes] = lambda old, new, ctx: ()
    check_bounds: Callable[[Document | None, Document, WriteContext], None] | None = None
    before_delete: Callable[[Document, WriteContext, DeleteOptions], Document | None] = delete_now_or_mark
    prepare_status: Callable[[Document, Document, WriteContext], None] = keep_all_but_status
    validate_status: Callable[[Document, Document, WriteContext], Causes] = lambda old, new, ctx: ()
    check_status: Callable[[Document, Document, WriteContext], None] | None = None
    """Raises Forbidden for a status that is valid in itself but that this caller may not write."""
    fields: Struct | None = None
    """The table of field rules that completes the served OpenAPI, if there is one."""
    with_defaults: Callable[[Document], Document] | None = None
    """Sets the kind's defaults in a new document, before admission and allocation; None: `fields` does."""
    typed: Shape | None = None
    """Type that a sent document must have before other rules see it; None: that of the kind."""
    read: Reading | None = None
    """Reads a document by the kind's own schema: returns a copy, and the paths of the fields that it dropped;
    None: unknown fields are kept.
    """
    read_stored: Reading | None = None
    """Reads a stored document in the same way; it may be in another version, or older than the schema."""
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    """Subresources of this kind alone, by name."""
    needs_version: bool = False
    """Whether a PUT must name the resourceVersion it replaces."""

    def apply_defaults(self, new: Document) -> Document:
        """Return a new document with the defaults of its type; the creator manages these fields."""
        if self.with_defaults is not None:
            return self.with_defaults(new)
        return new if self.fields is None else self.fields.complete(new)


class SubresourceResult(msgspec.Struct, frozen=True):
    """The result of a subresource call.

    `document`: the object to store, complete with its final `metadata.generation` (the registry sets only
    `resourceVersion`); None: no change. `delete`: delete the object with these options (after storing `document`,
    in the same commit). `also`: other objects to store in the same commit, as `(resource, document)`. `response`:
    the answer; None: `read` of the object after the call.
    """

    document: Document | None = None
    delete: DeleteOptions | None = None
    also: tuple[tuple[str, Document], ...] = ()
    response: Document | None = None
    code: int = 200


@dataclass(frozen=True)
class Subresource:
    """One subresource verb of one resource (`pods`) or of all (`*`).

    `apply(stored, body, ctx)` runs inside the commit and raises ApiError, as does `check_first`, which is called
    before it is known whether the object exists. For `create` and `update` the body is the decoded request; for
    `patch` it is the patched *read form* (`read`), so that one `apply` serves both. `read(stored)` is the document
    that `get` returns.
    """

    resource: str
    name: str
    verbs: tuple[str, ...]
    apply: Callable[[Document, Document, WriteContext], SubresourceResult]
    read: Callable[[Document], Document] = lambda stored: stored
    check_first: Callable[[Document | None, Document, WriteContext], None] = lambda stored, body, ctx: None
    admits: bool = False
    """Whether `apply` itself calls `authorization.admit`, with the change that the caller asked for."""
    body: tuple[str, str] = ("", "")
    """API version and kind of its body, if it is not a body in the form of the object."""
    is_charged: bool = False
    """Whether the call may increase the object's use of its namespace's quotas."""


@cache
def _strategies() -> dict[str, Strategy]:
    return {
        name: each
        for module in _modules("apiserver_fake.registry.strategies")
        for name, each in module.STRATEGIES.items()  # type: ignore[attr-defined]
    }


@cache
def _subresources() -> dict[tuple[str, str], Subresource]:
    return {
        (each.resource, each.name): each
        for module in _modules("apiserver_fake.registry.subresources")
        for each in module.SUBRESOURCES  # type: ignore[attr-defined]
    }


def _modules(package: str) -> list[object]:
    folder = importlib.import_module(package)
    names = sorted(found.name for found in pkgutil.iter_modules(folder.__path__))
    return [importlib.import_module(f"{package}.{name}") for name in names]


_PLAIN = Strategy()


def strategy_for(resource: str) -> Strategy:
    """Return the rules of that resource (`pods`, `replicasets.apps`); the default rules if it has none."""
    return _strategies().get(resource, _PLAIN)


def subresource(resource: str, name: str) -> Subresource | None:
    """Return the subresource of that resource, or None when the resource has none of that name."""
    table = _subresources()
    return table.get((resource, name)) or table.get(("*", name))


def served_subresource(resource: Resource, strategy: Strategy, request: Request) -> Subresource:
    """Return the requested subresource. Raises: NotFound, MethodNotAllowed."""
    target = strategy.subresources.get(request.subresource) or subresource(resource.name, request.subresource)
    if target is None or request.subresource not in resource.subresources:
        raise no_such_path()
    if request.verb not in target.verbs:
        raise method_not_allowed()
    return target


def _is_noted_anew(old: Document, new: Document) -> bool:
    """Whether an update changes what rules may read beside the spec."""
    was, now = old["metadata"], new["metadata"]
    return any(now.get(name) != was.get(name) for name in ("labels", "annotations"))


Creation = Callable[[Document, WriteContext], None]
Update = Callable[[Document, Document, WriteContext], None]
Rules = Callable[[Document, Document, WriteContext], Causes]


def declare_strategy(
    fields: Struct,
    *,
    name: Form = subdomain,
    name_by: Callable[[ApiServerSwitches], Form] | None = None,
    has_status: bool = False,
    before_create: Creation | None = None,
    before_update: Update | None = None,
    on_create: Creation | None = None,
    on_update: Update | None = None,
    rules: Callable[[Document | None, Document, WriteContext], Causes] | None = None,
    update_rules: Rules | None = None,
    update_rules_need_valid: bool = False,
    status: Struct | None = None,
    status_rules: Rules | None = None,
    left_out_at_zero: tuple[str, ...] = (),
    **others: Any,
) -> Strategy:
    """Return the strategy of a kind whose document `fields` describes.

    `name`: the form of its names; `name_by`: that of new names, where a feature gate decides. `has_status`: the
    status belongs to its subresource; `status` is the field table for a write of it, and `left_out_at_zero` its
    counters that are not written while they are 0 (`omitempty` of upstream's types). `before_create` and
    `before_update` run before the defaults, `on_create` and `on_update` after them. `rules`, `update_rules` and
    `status_rules` are rules that need the stored object or other objects; `update_rules_need_valid`: run
    `update_rules` only if the table found no errors. An unchanged spec is not checked again unless labels or
    annotations changed; an immutable spec is only compared. `others`: further parts of the strategy.
    """
    is_spec_fixed = any(field.name == "spec" and field.is_immutable for field in fields.fields)
    is_completing = fields.is_completing

    def prepare_create(new: Document, ctx: WriteContext) -> None:
        if before_create is not None:
            before_create(new, ctx)
        fields.complete_in_place(new)
        if has_status:
            drop_status(new, ctx)
        if on_create is not None:
            on_create(new, ctx)

    def prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
        if has_status:
            keep_status(old, new, ctx)
        if before_update is not None:
            before_update(old, new, ctx)
        if is_completing and ("spec" not in new or new["spec"] is not old.get("spec")):
            fields.complete_in_place(new)
        if on_update is not None:
            on_update(old, new, ctx)

    def validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
        causes = [*metadata(new, name if name_by is None or old is not None else name_by(ctx.switches))]
        if old is not None and "spec" in new and new["spec"] is old.get("spec") and not _is_noted_anew(old, new):
            return causes
        report = Report(ctx.switches, causes)
        report.update = None if old is None else (old, new)
        if old is None or not is_spec_fixed:
            fields.check(new, "", report)
        if old is not None:
            fields.check_immutable(old, new, "", report)
        if rules is not None:
            causes += rules(old, new, ctx)
        if update_rules is not None and old is not None and not (update_rules_need_valid and causes):
            causes += update_rules(old, new, ctx)
        return causes

    parts = _status_parts(status, status_rules, left_out_at_zero) | others
    return Strategy(
        prepare_create=prepare_create, prepare_update=prepare_update, validate=validate, fields=fields, **parts
    )


def _status_parts(
    status: Struct | None, status_rules: Rules | None, left_out_at_zero: tuple[str, ...]
) -> dict[str, Any]:
    """Return what a strategy does with writes of a status, by the names of its parts; plain parts are left out."""

    def validate_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
        report = Report()
        if status is not None:
            status.check(new.get("status") or {}, "status.", report)
        if status_rules is not None:
            report.causes += status_rules(old, new, ctx)
        return report.causes

    def prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
        keep_all_but_status(old, new, ctx)
        said = new.get("status") or {}
        if zeroes := [name for name in left_out_at_zero if said.get(name) == 0]:
            new["status"] = {key: value for key, value in said.items() if key not in zeroes}

    parts: dict[str, Any] = {}
    if left_out_at_zero:
        parts["prepare_status"] = prepare_status
    if status is not None or status_rules is not None:
        parts["validate_status"] = validate_status
    return parts
