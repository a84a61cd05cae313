"""Priority: a priority class's name becomes a number and a preemption policy (admission plugin Priority)."""

from __future__ import annotations

from collections.abc import Callable

from apiserver_fake.strategy import WriteContext
from services.api.errors import Forbidden
from services.api.meta import Document

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def resolve_priority(
    spec: Document, ctx: WriteContext, refused: Callable[[str], Forbidden], where: str
) -> tuple[int, str]:
    """Return the value and preemption policy of the spec's class, and name the class when it is the default one.

    Raises: what `refused` makes of the reason, for an unknown class and for a number that is not the class's.
    """
    name, policy = spec.get("priorityClassName") or "", ""
    if name:
        found = ctx.lookup(PRIORITY_CLASSES, "", name)
        if found is None and name not in SYSTEM_CLASSES:
            raise refused(f"no PriorityClass with name {name} was found")
        value = int(found.get("value") or 0) if found else SYSTEM_CLASSES[name]
        policy = (found or {}).get("preemptionPolicy") or ""
    else:
        value = 0
        default = _default_class(ctx)
        if default is not None:
            name, value = default["metadata"]["name"], int(default.get("value") or 0)
            policy = default.get("preemptionPolicy") or ""
            spec["priorityClassName"] = name
    asked = spec.get("priority")
    if asked is not None and asked != value:
        raise refused(
            f"the integer value of priority ({asked}) must not be provided in {where}; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    return value, policy or "PreemptLowerPriority"


def _default_class(ctx: WriteContext) -> Document | None:
    # Of several defaults the lowest wins, as upstream picks it.
    defaults = [each for each in ctx.list(PRIORITY_CLASSES, "") if each.get("globalDefault")]
    return min(defaults, key=lambda each: (int(each.get("value") or 0), each["metadata"]["name"]), default=None)
