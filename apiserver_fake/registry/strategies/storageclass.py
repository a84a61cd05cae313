"""Storage classes: who provisions and how is fixed; where may change."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import duplicate, forbidden, immutable, metadata, qualified_name, required
from apiserver_fake.validation.storage import STORAGE_CLASSES, check_choice
from services.api.kinds.storageclass import IMMEDIATE, WAIT_FOR_FIRST_CONSUMER
from services.api.meta import Document

_POLICIES = ("Delete", "Retain")
_FIXED = ("parameters", "provisioner", "reclaimPolicy")


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["reclaimPolicy"] = new.get("reclaimPolicy") or "Delete"
    new["volumeBindingMode"] = new.get("volumeBindingMode") or IMMEDIATE


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    if not new.get("provisioner"):
        causes.append(required("provisioner"))
    else:
        causes += qualified_name("provisioner", new["provisioner"].lower())
    causes += check_choice(new, "reclaimPolicy", _POLICIES, "")
    causes += check_choice(new, "volumeBindingMode", (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER), "")
    for index, term in enumerate(new.get("allowedTopologies") or []):
        causes += _check_term(term, f"allowedTopologies[{index}].matchLabelExpressions")
    if old is not None:
        causes += [
            forbidden(name, f"updates to {name} are forbidden.")
            for name in _FIXED
            if (old.get(name) or None) != (new.get(name) or None)
        ]
        causes += immutable("volumeBindingMode", old.get("volumeBindingMode"), new["volumeBindingMode"])
    return causes


def _check_term(term: Document, at: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, each in enumerate(term.get("matchLabelExpressions") or []):
        key, values = each.get("key") or "", each.get("values") or []
        causes += qualified_name(f"{at}[{index}].key", key)
        if not values:
            causes.append(required(f"{at}[{index}].values"))
        if key in seen:
            causes.append(duplicate(f"{at}[{index}].key", key))
        seen.add(key)
        causes += [duplicate(f"{at}[{index}].values[{i}]", v) for i, v in enumerate(values) if v in values[:i]]
    return causes


STRATEGIES = {
    STORAGE_CLASSES: Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)
}
