"""Pod groups: one policy, one disruption mode, a priority from its class; all but `minCount` stays as created."""

from __future__ import annotations

from apiserver_fake.admission.priority import resolve_priority
from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Check, Field, Report, Struct, one_of
from apiserver_fake.validation.formats import Cause, Causes, forbidden, immutable, label, subdomain, unsupported
from apiserver_fake.validation.pod.spec import PREEMPTION_POLICIES
from services.api.errors import Forbidden, NotFound
from services.api.meta import Document

CLAIMS_MAX = 4
POLICY_GATE = "PodGroupPreemptionPolicy"
FILLED = ("disruptionMode", "priority", "priorityClassName", "preemptionPolicy")
FIXED = (*FILLED, "workloadRef", "schedulingConstraints", "resourceClaims")


def _all_with_basic(spec: Document, at: str, report: Report) -> Causes:
    mode, is_basic = spec.get("disruptionMode") or {}, (spec.get("schedulingPolicy") or {}).get("basic") is not None
    if mode.get("all") is None or not is_basic:
        return
    if report.switches.gang_all_mode_with_basic == "reject":
        yield forbidden(f"{at}disruptionMode.all", "may not be used with the basic scheduling policy")


def _preemption_policy(policy: str, path: str, report: Report) -> Causes:
    if not report.switches.pod_group_preemption_policy:
        yield forbidden(path, f"needs the feature gate {POLICY_GATE}")
    elif policy not in PREEMPTION_POLICIES:
        yield unsupported(path, policy, PREEMPTION_POLICIES)


GANG = Struct(Field("minCount", required=True, minimum=1))
GROUP: tuple[Field | Check, ...] = (
    Field("schedulingPolicy", missing={}, struct=Struct(one_of("basic", "gang"), Field("gang", struct=GANG))),
    Field("disruptionMode", struct=Struct(one_of("all", "single"))),
    _all_with_basic,
    Field("priorityClassName", form=subdomain),
    Field("preemptionPolicy", rule=_preemption_policy),
    Field("resourceClaims", most=CLAIMS_MAX),
)
"""What groups and their templates share."""
REFERENCE = Struct(
    Field("workloadName", required=True, form=subdomain), Field("templateName", required=True, form=label)
)
SPEC = Struct(Field("workloadRef", struct=REFERENCE), *GROUP)


def require_gate(new: Document, ctx: WriteContext) -> None:
    """Refuse to create what is not served without the gate; what is stored already stays (preemption 8).

    Raises: NotFound, as for an unknown path.
    """
    if not ctx.switches.generic_workload:
        raise NotFound("the server could not find the requested resource (feature gate GenericWorkload is off)")


def with_priority(new: Document, spec: Document, ctx: WriteContext) -> Document:
    """Return the spec of a group completed: one by one unless it says otherwise, and the class's priority."""

    def refused(why: str) -> Forbidden:
        name = new["metadata"].get("name") or new["metadata"].get("generateName") or ""
        details = {"name": name, "group": "scheduling.k8s.io", "kind": "podgroups"}
        return Forbidden(f'podgroups.scheduling.k8s.io "{name}" is forbidden: {why}', details=details)

    spec = {**spec}
    spec.setdefault("disruptionMode", {"single": {}})
    value, policy = resolve_priority(spec, ctx, refused, "pod group spec")
    spec["priority"] = value
    if ctx.switches.pod_group_preemption_policy:
        stated = spec.setdefault("preemptionPolicy", policy)
        if stated != policy:
            raise refused(
                f"the string value of PreemptionPolicy ({stated}) must not be provided in pod group spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
    return spec


def _create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = with_priority(new, new["spec"], ctx)


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    # A client that does not know what was filled in does not take it away.
    filled = {n: v for n, v in (old.get("spec") or {}).items() if n in FILLED}
    new["spec"] = {**filled, **new["spec"]}


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    return [] if old is None else unchanged_group(old.get("spec") or {}, new["spec"], "spec")


def unchanged_group(old: Document, new: Document, at: str) -> list[Cause]:
    """Return what changed of a group or a template that may not: all but a gang's minCount."""
    causes = [cause for name in FIXED for cause in immutable(f"{at}.{name}", old.get(name), new.get(name))]
    return causes + immutable(f"{at}.schedulingPolicy", _without_count(old), _without_count(new))


def _without_count(spec: Document) -> Document:
    policy = spec.get("schedulingPolicy") or {}
    if policy.get("gang") is None:
        return dict(policy)
    return {**policy, "gang": {n: v for n, v in policy["gang"].items() if n != "minCount"}}


STRATEGIES = {
    "podgroups.scheduling.k8s.io": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        before_create=require_gate,
        on_create=_create,
        on_update=_update,
        rules=_rules,
    )
}
