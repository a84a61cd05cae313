"""Priority: a priority class's name becomes a number and a preemption policy (admission plugin Priority)."""

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.errors import Forbidden
from services.api.meta import Document

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def set_priority(
    new: Document, spec: Document, ctx: WriteContext, resource: str, where: str, *, has_policy: bool = True
) -> None:
    """Set the priority value and preemption policy of its class in the spec of `new`, and the class name if it
    is the default one.

    `where`: name of the spec in refusals. Raises: Forbidden for an unknown class, and for a value or policy other
    than that of the class.
    """

    def refusal(why: str) -> Forbidden:
        return forbidden(resource, new["metadata"].get("name") or new["metadata"].get("generateName") or "", why)

    name, policy = spec.get("priorityClassName") or "", ""
    if name:
        priority_class = ctx.lookup(PRIORITY_CLASSES, "", name)
        if priority_class is None and name not in SYSTEM_CLASSES:
            raise refusal(f"no PriorityClass with name {name} was found")
        value = int(priority_class.get("value") or 0) if priority_class else SYSTEM_CLASSES[name]
        policy = (priority_class or {}).get("preemptionPolicy") or ""
    else:
        value = 0
        default = _default_class(ctx)
        if default is not None:
            name, value = default["metadata"]["name"], int(default.get("value") or 0)
            policy = default.get("preemptionPolicy") or ""
            spec["priorityClassName"] = name
    asked = spec.get("priority")
    if asked is not None and asked != value:
        raise refusal(
            f"the integer value of priority ({asked}) must not be provided in {where}; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    spec["priority"] = value
    policy = policy or "PreemptLowerPriority"
    if has_policy and (stated := spec.setdefault("preemptionPolicy", policy)) != policy:
        raise refusal(
            f"the string value of PreemptionPolicy ({stated}) must not be provided in {where}; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )


def _default_class(ctx: WriteContext) -> Document | None:
    # Of several defaults the lowest wins, as upstream picks it.
    defaults = [each for each in ctx.list(PRIORITY_CLASSES, "") if each.get("globalDefault")]
    return min(defaults, key=lambda each: (int(each.get("value") or 0), each["metadata"]["name"]), default=None)
