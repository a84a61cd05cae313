"""Priority classes: a value that never changes, names below `system-` kept for the system, one default."""

from __future__ import annotations

from apiserver_fake.admission.priority import PRIORITY_CLASSES, SYSTEM_CLASSES
from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Cause, Causes, forbidden
from apiserver_fake.validation.pod.spec import PREEMPTION_POLICIES
from services.api.errors import Forbidden
from services.api.meta import Document

USER_VALUE_MAX = 1_000_000_000
FIXED = "may not be changed in an update."


def _value_fits_name(new: Document, at: str, report: Report) -> Causes:
    name, value = new["metadata"].get("name") or "", new["value"]
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != value or new.get("globalDefault"):
            text = (
                "priority class names with 'system-' prefix are reserved for system use only. error: "
                f"{name} is not a known system priority class"
            )
            yield forbidden("metadata.name", text)
    elif value > USER_VALUE_MAX:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {USER_VALUE_MAX}")


FIELDS = Struct(
    Field("value", default=0, is_immutable=FIXED),
    _value_fits_name,
    Field(
        "preemptionPolicy",
        default="PreemptLowerPriority",
        is_blank_absent=True,
        enum=PREEMPTION_POLICIES,
        is_immutable=FIXED,
    ),
)


def _one_default(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    name = new["metadata"].get("name") or ""
    for other in ctx.list(PRIORITY_CLASSES, "") if new.get("globalDefault") else ():
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            raise Forbidden(
                f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: PriorityClass '
                f"{other['metadata']['name']} is already marked as default. Only one default can exist",
                details={"name": name, "group": "scheduling.k8s.io", "kind": "priorityclasses"},
            )
    return []


STRATEGIES = {PRIORITY_CLASSES: declared(FIELDS, rules=_one_default)}
