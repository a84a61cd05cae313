"""Write rules of CustomResourceDefinitions: default names, stored versions, and a deletion that deletes the
objects first.

Source: upstream `staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition` and
`staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/defaults.go`.
"""

from typing import Any

from apiserver_fake.extensions.customresources.conditions import FINALIZER, Condition, with_conditions
from apiserver_fake.extensions.customresources.definition import (
    definition_warnings,
    validate_definition,
    validate_definition_status,
)
from apiserver_fake.registry.strategy import (
    DeleteOptions,
    Strategy,
    WriteContext,
    delete_now_or_mark,
    keep_all_but_status,
    keep_status,
)
from apiserver_fake.registry.validation.formats import Cause, forbidden, metadata, subdomain
from services.api.meta import Document
from services.api.times import format_time

HTTPS_PORT = 443


def _object(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


_NAME_LISTS, _VERSION_LISTS = ("shortNames", "categories"), ("additionalPrinterColumns", "selectableFields")
"""List fields of a definition that are left out when empty (`omitempty` of upstream's types)."""


def _without_empty(value: Document, lists: tuple[str, ...]) -> Document:
    return {name: each for name, each in value.items() if name not in lists or each != []}


def _complete(new: Document) -> None:
    """Set the defaults of the spec, replacing what may be shared."""
    spec = new["spec"] = {**_object(new.get("spec"))}
    names = spec["names"] = _without_empty(_object(spec.get("names")), _NAME_LISTS)
    if isinstance(versions := spec.get("versions"), list):
        spec["versions"] = [_without_empty(v, _VERSION_LISTS) if isinstance(v, dict) else v for v in versions]
    if kind := names.get("kind"):
        names.setdefault("singular", str(kind).lower())
        names.setdefault("listKind", f"{kind}List")
    conversion = spec["conversion"] = {**_object(spec.get("conversion"))}
    conversion.setdefault("strategy", "None")
    config = _object(_object(conversion.get("webhook")).get("clientConfig"))
    if isinstance(config.get("service"), dict) and "port" not in config["service"]:
        service = {**config["service"], "port": HTTPS_PORT}
        conversion["webhook"] = {**conversion["webhook"], "clientConfig": {**config, "service": service}}


def _note_stored_version(new: Document) -> None:
    """Note the version in which objects are stored among those in which they may be stored (storedVersions)."""
    status = {**_object(new.get("status"))}
    stored = [each["name"] for each in new["spec"].get("versions") or () if each.get("storage") and each.get("name")]
    known = list(status.get("storedVersions") or ())
    new["status"] = {**status, "storedVersions": known + [each for each in stored[:1] if each not in known]}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    _complete(new)
    new["status"] = {"acceptedNames": {"kind": "", "plural": ""}}
    _note_stored_version(new)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    _complete(new)
    _note_stored_version(new)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    new.setdefault("status", old.get("status"))
    keep_all_but_status(old, new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    ctx.warnings.extend(definition_warnings(new, old))
    causes = [*metadata(new, subdomain), *validate_definition(new, old)]
    if not ctx.is_converting and _converts(new) and (old is None or not _converts(old)):
        text = "conversion webhooks are called over a network, which a simulation does not have: use None"
        causes.append(forbidden("spec.conversion.strategy", text))
    return causes


def _converts(definition: Document) -> bool:
    return _object(_object(definition.get("spec")).get("conversion")).get("strategy") == "Webhook"


def _validate_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
    return validate_definition_status(new)


def _before_delete(old: Document, ctx: WriteContext, options: DeleteOptions) -> Document | None:
    """Mark it and let its objects go first; a second deletion changes nothing as long as the finalizer is there."""
    meta = old["metadata"]
    if meta.get("deletionTimestamp"):
        return delete_now_or_mark(old, ctx, options)
    finalizers = list(meta.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    marked = {**old, "metadata": {**meta, "deletionTimestamp": format_time(ctx.wall_s), "finalizers": finalizers}}
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    pending = Condition("Terminating", "True", "InstanceDeletionPending", text)
    return with_conditions(marked, (pending,), ctx.wall_s)


STRATEGY = Strategy(
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    before_delete=_before_delete,
    prepare_status=_prepare_status,
    validate_status=_validate_status,
    needs_version=True,
)
