"""Revisions of an owner: the current one, earlier ones, and those that may be deleted.

StatefulSets and DaemonSets keep each state of their template as a ControllerRevision. So pods can be
distinguished by the state they were made from, and an earlier state can be restored.
Source: controllers 4 and 6; upstream `pkg/controller/history`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Document, Key
from services.controllers.shared_hash_text import hash_text
from services.reconcile import writes
from services.reconcile.actions import Create, Delete, Patch
from services.reconcile.controller import Lister
from services.reconcile.writes import controller_reference

RESOURCE = "controllerrevisions.apps"
HASH_LABEL = "controller.kubernetes.io/hash"
POD_LABEL = "controller-revision-hash"
"""Label of pods: the revision they were made from (a StatefulSet writes its name, a DaemonSet its hash)."""
_PREFIX_MAX = 223
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True)
class OwnerRevision:
    """The owner's current revision, and the write that stores it; None if it is already stored.

    `collision_count`: the owner's counter, raised for each name that another object holds.
    """

    revision: ControllerRevision
    write: Create | Patch | None
    collision_count: int


def data_of(template: Document) -> Document:
    """Return a strategic merge patch that gives an owner exactly this pod template."""
    return {"spec": {"template": {**template, "$patch": "replace"}}}


def template_of(data: Mapping[str, Any]) -> Document:
    """Return the pod template from the result of `data_of`."""
    template = data.get("spec", {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def hash_of(data: Document, collision_count: int) -> str:
    """Return the hash text of a revision: FNV-1 over the canonical JSON and the count.

    Deviates: upstream hashes the JSON of its Go types, in their order of fields, so texts differ from a real
    cluster's.
    """
    value = 2166136261
    for byte in _ENCODER.encode(data) + str(collision_count).encode():
        value = value * 16777619 & 0xFFFFFFFF ^ byte
    return hash_text(value)


def name_of(owner: str, text: str) -> str:
    """Return the name of an owner's revision with that hash."""
    return f"{owner[:_PREFIX_MAX]}-{text}"


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions, the newest last, sorted by number, then age, then name."""
    return sorted(revisions, key=lambda r: (r.revision, r.metadata.creation_timestamp, r.metadata.name))


def find(
    owner: DaemonSet | StatefulSet,
    document: Document,
    revisions: Collection[ControllerRevision],
    known: Lister[ControllerRevision],
    hash_label: str = HASH_LABEL,
) -> OwnerRevision:
    """Return the revision of the owner's template: the newest of equal ones with the highest number, or a new one.

    `document`: the owner's; `revisions`: those it controls, of all that are `known`. A new one has the template's
    labels, its hash and the owner's annotations.
    """
    template = document.get("spec", {}).get("template") or {}
    data, collision_count = data_of(template), owner.status.collision_count
    ordered = in_order(revisions)
    number = ordered[-1].revision + 1 if ordered else 1
    equal = [each for each in ordered if each.data == data]
    if equal:
        last = equal[-1]
        if last is ordered[-1]:
            return OwnerRevision(last, None, collision_count)
        patch = writes.patch(RESOURCE, last, {"revision": number}, on_version=True)
        return OwnerRevision(msgspec.structs.replace(last, revision=number), patch, collision_count)
    text = hash_of(data, collision_count)
    while known.get(Key(owner.metadata.namespace, name_of(owner.metadata.name, text))) is not None:
        # Other data or another owner's: the next count gives another name.
        collision_count += 1
        text = hash_of(data, collision_count)
    new_document: Document = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name_of(owner.metadata.name, text),
            "namespace": owner.metadata.namespace,
            "labels": {**((template.get("metadata") or {}).get("labels") or {}), hash_label: text},
            "annotations": dict(owner.metadata.annotations),
            "ownerReferences": [controller_reference(owner)],
        },
        "data": data,
        "revision": number,
    }
    return OwnerRevision(
        msgspec.convert(new_document, ControllerRevision), Create(RESOURCE, new_document), collision_count
    )


def surplus(
    revisions: Iterable[ControllerRevision], live: Collection[str], limit: int, *, counts_live: bool = False
) -> list[Delete]:
    """Return the deletions of the oldest unused revisions beyond the history limit.

    `live`: names of revisions that pods were made from or that the owner uses. `counts_live`: whether those count
    towards the limit too, as for a DaemonSet.
    """
    ordered = in_order(revisions)
    history = [each for each in ordered if each.metadata.name not in live]
    count = max(0, (len(ordered) if counts_live else len(history)) - limit)
    return [Delete(RESOURCE, each.metadata.key, uid=each.metadata.uid) for each in history[:count]]
