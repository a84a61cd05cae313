"""Pod groups: one policy, one disruption mode, a priority from its class; all but `minCount` stays as created."""

from __future__ import annotations

from apiserver_fake.registry.strategies.pod import resolve_priority
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import (
    forbidden,
    immutable,
    invalid,
    label,
    metadata,
    required,
    subdomain,
    too_many,
    unsupported,
)
from services.api.errors import Forbidden, NotFound
from services.api.meta import Document

CLAIMS_MAX = 4
_PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")


def require_gate(ctx: WriteContext) -> None:
    """Refuse to create what is not served without the gate; what is stored already stays (preemption 8).

    Raises: NotFound, as for an unknown path.
    """
    if not ctx.switches.flag("GenericWorkload"):
        raise NotFound("the server could not find the requested resource (feature gate GenericWorkload is off)")


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    require_gate(ctx)
    drop_status(new, ctx)
    new["spec"] = with_priority(new, dict(new.get("spec") or {}), ctx)


def with_priority(new: Document, spec: Document, ctx: WriteContext) -> Document:
    """Return the spec of a group completed: one by one unless told otherwise, and the class's priority."""

    def refused(why: str) -> Forbidden:
        name = new["metadata"].get("name") or new["metadata"].get("generateName") or ""
        details = {"name": name, "group": "scheduling.k8s.io", "kind": "podgroups"}
        return Forbidden(f'podgroups.scheduling.k8s.io "{name}" is forbidden: {why}', details=details)

    spec.setdefault("disruptionMode", {"single": {}})
    value, policy = resolve_priority(spec, ctx, refused, "pod group spec")
    spec["priority"] = value
    if ctx.switches.flag("PodGroupPreemptionPolicy"):
        wanted = spec.setdefault("preemptionPolicy", policy)
        if wanted != policy:
            raise refused(
                f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod group spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
    return spec


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    # A client that does not know what was filled in does not take it away.
    filled = {n: v for n, v in (old.get("spec") or {}).items() if n in _FILLED}
    new["spec"] = {**filled, **(new.get("spec") or {})}


_FILLED = ("disruptionMode", "priority", "priorityClassName", "preemptionPolicy")
_FIXED = (*_FILLED, "workloadRef", "schedulingConstraints", "resourceClaims")


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    reference = spec.get("workloadRef")
    if reference is not None:
        for name, rule in (("workloadName", subdomain), ("templateName", label)):
            here = f"spec.workloadRef.{name}"
            causes += rule(here, reference[name]) if reference.get(name) else [required(here)]
    causes += check_group(spec, "spec", ctx)
    if old is not None:
        causes += unchanged_group(old.get("spec") or {}, spec, "spec")
    return causes


def check_group(spec: Document, at: str, ctx: WriteContext) -> list[Cause]:
    """Return what is wrong with what groups and their templates share; `at` is the path."""
    causes = one_of(spec.get("schedulingPolicy") or {}, ("basic", "gang"), f"{at}.schedulingPolicy")
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    if gang is not None:
        count = gang.get("minCount")
        here = f"{at}.schedulingPolicy.gang.minCount"
        if count is None:
            causes.append(required(here))
        elif count < 1:
            causes.append(invalid(here, count, "must be greater than or equal to 1"))
    mode = spec.get("disruptionMode")
    if mode is not None:
        causes += one_of(mode, ("all", "single"), f"{at}.disruptionMode")
        is_basic = (spec.get("schedulingPolicy") or {}).get("basic") is not None
        if mode.get("all") is not None and is_basic and ctx.switches.choice("gang.all_mode_with_basic") == "reject":
            causes.append(forbidden(f"{at}.disruptionMode.all", "may not be used with the basic scheduling policy"))
    if spec.get("priorityClassName"):
        causes += subdomain(f"{at}.priorityClassName", spec["priorityClassName"])
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        if not ctx.switches.flag("PodGroupPreemptionPolicy"):
            causes.append(forbidden(f"{at}.preemptionPolicy", "needs the feature gate PodGroupPreemptionPolicy"))
        elif policy not in _PREEMPTION_POLICIES:
            causes.append(unsupported(f"{at}.preemptionPolicy", policy, _PREEMPTION_POLICIES))
    return causes + too_many(f"{at}.resourceClaims", len(spec.get("resourceClaims") or []), CLAIMS_MAX)


def one_of(union: Document, members: tuple[str, ...], at: str) -> list[Cause]:
    """Check a union: exactly one member is set."""
    found = [name for name in members if union.get(name) is not None]
    if len(found) == 1:
        return []
    names = ", ".join(f"`{name}`" for name in members)
    if not found:
        return [invalid(at, "", f"must specify one of: {names}")]
    return [invalid(at, "{" + ", ".join(found) + "}", f"must specify exactly one of: {names}")]


def unchanged_group(old: Document, new: Document, at: str) -> list[Cause]:
    """Return what changed of a group or a template that may not: all but a gang's minCount."""
    causes = [cause for name in _FIXED for cause in immutable(f"{at}.{name}", old.get(name), new.get(name))]
    before, after = _without_count(old), _without_count(new)
    return causes + immutable(f"{at}.schedulingPolicy", before, after)


def _without_count(spec: Document) -> Document:
    policy = spec.get("schedulingPolicy") or {}
    if policy.get("gang") is None:
        return dict(policy)
    return {**policy, "gang": {n: v for n, v in policy["gang"].items() if n != "minCount"}}


STRATEGIES = {
    "podgroups.scheduling.k8s.io": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
    )
}
