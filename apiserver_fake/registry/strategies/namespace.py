"""Namespaces: held by `spec.finalizers` until their content is gone (controllers 11)."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import DeleteOptions, WriteContext, keep_all_but_status
from apiserver_fake.validation.fields import Struct
from apiserver_fake.validation.formats import label
from services.api.errors import Forbidden
from services.api.meta import Document
from services.api.times import format_time

FINALIZER = "kubernetes"
IMMORTAL = ("default", "kube-system", "kube-public")


def _create(new: Document, ctx: WriteContext) -> None:
    spec = new.get("spec") or {}
    finalizers = list(spec.get("finalizers") or [])
    new["spec"] = {**spec, "finalizers": finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]}
    new["status"] = {"phase": "Active"}
    _set_name_label(new)


def _set_name_label(new: Document) -> None:
    meta = new["metadata"]
    if name := meta.get("name"):
        new["metadata"] = {**meta, "labels": {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": name}}


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers") or []}
    _set_name_label(new)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    # The phase follows the deletion, whatever a client asks for.
    phase = "Terminating" if old["metadata"].get("deletionTimestamp") else "Active"
    new["status"] = {**(new.get("status") or {}), "phase": phase}


def _before_delete(old: Document, ctx: WriteContext, options: DeleteOptions) -> Document | None:
    """Mark the namespace as ending; it goes when both its lists of finalizers are empty."""
    meta = old["metadata"]
    name = meta["name"]
    if name in IMMORTAL:
        raise Forbidden(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            details={"name": name, "kind": "namespaces"},
        )
    if meta.get("deletionTimestamp"):
        return None if is_done(old) else old
    marked = {**meta, "deletionTimestamp": format_time(ctx.wall_s), "deletionGracePeriodSeconds": 0}
    status = {**(old.get("status") or {}), "phase": "Terminating"}
    ending = {**old, "metadata": marked, "status": status}
    return None if is_done(ending) else ending


def is_done(namespace: Document) -> bool:
    """Whether nothing holds a namespace that is being deleted any more."""
    return not (namespace.get("spec") or {}).get("finalizers") and not namespace["metadata"].get("finalizers")


STRATEGIES = {
    "namespaces": declared(
        Struct(),
        name=label,
        has_status=True,
        on_create=_create,
        on_update=_update,
        before_delete=_before_delete,
        prepare_status=_prepare_status,
    )
}
