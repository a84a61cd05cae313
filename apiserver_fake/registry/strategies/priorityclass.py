"""Priority classes: a value that never changes, names below `system-` kept for the system, one default."""

from __future__ import annotations

from apiserver_fake.registry.strategies.pod import PRIORITY_CLASSES, SYSTEM_CLASSES
from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import forbidden, metadata, unsupported
from services.api.errors import Forbidden
from services.api.meta import Document

USER_VALUE_MAX = 1_000_000_000
_POLICIES = ("Never", "PreemptLowerPriority")


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["value"] = new.get("value") or 0
    new["preemptionPolicy"] = new.get("preemptionPolicy") or "PreemptLowerPriority"


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, name = metadata(new), new["metadata"].get("name") or ""
    value = new["value"]
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != value or new.get("globalDefault"):
            causes.append(
                forbidden(
                    "metadata.name",
                    "priority class names with 'system-' prefix are reserved for system use only. error: "
                    f"{name} is not a known system priority class",
                )
            )
    elif value > USER_VALUE_MAX:
        causes.append(forbidden("value", f"maximum allowed value of a user defined priority is {USER_VALUE_MAX}"))
    if new["preemptionPolicy"] not in _POLICIES:
        causes.append(unsupported("preemptionPolicy", new["preemptionPolicy"], _POLICIES))
    if old is not None:
        if old.get("value") != value:
            causes.append(forbidden("value", "may not be changed in an update."))
        if old.get("preemptionPolicy") != new["preemptionPolicy"]:
            causes.append(forbidden("preemptionPolicy", "may not be changed in an update."))
    if new.get("globalDefault"):
        for other in ctx.list(PRIORITY_CLASSES, ""):
            if other.get("globalDefault") and other["metadata"]["name"] != name:
                raise Forbidden(
                    f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: PriorityClass '
                    f"{other['metadata']['name']} is already marked as default. Only one default can exist",
                    details={"name": name, "group": "scheduling.k8s.io", "kind": "priorityclasses"},
                )
    return causes


STRATEGIES = {
    PRIORITY_CLASSES: Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)
}
