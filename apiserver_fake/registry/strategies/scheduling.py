"""Kinds of `scheduling.k8s.io`: priority classes, pod groups, workloads.

A class's value is immutable; names below `system-` are reserved for the system. A group has one policy, one
disruption mode and a priority from its class; everything but `minCount` is immutable. A workload has up to
eight templates, which cannot be added or removed later; its controller reference is set once. Claims of a
group, or of a template, exist only with `reserved_for.mode=kep5729`. Source: KEP-4671, KEP-5710, KEP-5729;
kep-5194 12.
"""

from apiserver_fake.registry.admission.priority import PRIORITY_CLASSES, SYSTEM_CLASSES, set_priority
from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.gated_fields import POD_GROUPS, WORKLOADS, drop_disabled
from apiserver_fake.registry.strategy import WriteContext, declare_strategy, drop_status, keep_all_but_status
from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct, one_of, unique
from apiserver_fake.registry.validation.formats import Causes, forbidden, immutable, label, not_supported, subdomain
from apiserver_fake.registry.validation.pod.claims import SOURCES, made_claims
from apiserver_fake.registry.validation.pod.spec import PREEMPTION_POLICIES
from services.api.errors import NotFound
from services.api.kinds.workload import TEMPLATES_MAX
from services.api.meta import Document

USER_VALUE_MAX = 1_000_000_000
PRIORITY_CLASS_FIXED = "may not be changed in an update."


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
    Field("value", default=0, is_immutable=PRIORITY_CLASS_FIXED),
    _value_fits_name,
    Field(
        "preemptionPolicy",
        default="PreemptLowerPriority",
        is_blank_absent=True,
        enum=PREEMPTION_POLICIES,
        is_immutable=PRIORITY_CLASS_FIXED,
    ),
)


def _one_default(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    name = new["metadata"].get("name") or ""
    for other in ctx.list(PRIORITY_CLASSES, "") if new.get("globalDefault") else ():
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            why = f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
            raise refused(PRIORITY_CLASSES, name, why)
    return ()


CLAIMS_MAX = 4
POLICY_GATE = "PodGroupPreemptionPolicy"
FILLED = ("disruptionMode", "priority", "priorityClassName", "preemptionPolicy")
GROUP_FIXED = (*FILLED, "workloadRef", "schedulingConstraints", "resourceClaims")


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
        yield not_supported(path, policy, PREEMPTION_POLICIES)


GROUP_CLAIM = Struct(
    Field("name", required=True, form=label),
    unique("name"),
    one_of(*SOURCES),
    *(Field(name, form=subdomain) for name in SOURCES),
)
"""A claim that all members of the group share (KEP-5729)."""
GANG = Struct(Field("minCount", required=True, minimum=1))
GROUP: tuple[Field | Check, ...] = (
    Field("schedulingPolicy", missing={}, struct=Struct(one_of("basic", "gang"), Field("gang", struct=GANG))),
    Field("disruptionMode", struct=Struct(one_of("all", "single"))),
    _all_with_basic,
    Field("priorityClassName", form=subdomain),
    Field("preemptionPolicy", rule=_preemption_policy),
    Field("resourceClaims", most=CLAIMS_MAX, items=GROUP_CLAIM),
)
"""Fields that groups and their templates share."""
GROUP_REFERENCE = Struct(
    Field("workloadName", required=True, form=subdomain), Field("templateName", required=True, form=label)
)
GROUP_SPEC = Struct(Field("workloadRef", struct=GROUP_REFERENCE), *GROUP)


def require_gate(new: Document, ctx: WriteContext) -> None:
    """Refuse the creation of an object that needs the gate; stored objects stay (preemption 8). Raises:
    NotFound, as for unknown paths.
    """
    if not ctx.switches.generic_workload:
        raise NotFound("the server could not find the requested resource (feature gate GenericWorkload is off)")


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    drop_disabled(POD_GROUPS, old, new, ctx)


def _claims_made(old: Document, new: Document, ctx: WriteContext) -> Causes:
    statuses = (new.get("status") or {}).get("resourceClaimStatuses") or ()
    return made_claims(statuses, new.get("spec") or {}, "status.resourceClaimStatuses")


def with_priority(new: Document, spec: Document, ctx: WriteContext) -> Document:
    """Return the spec of a group with the default disruption mode (`single`) and the priority of its class."""
    spec = {**spec}
    spec.setdefault("disruptionMode", {"single": {}})
    has_policy = ctx.switches.pod_group_preemption_policy
    set_priority(new, spec, ctx, POD_GROUPS, "pod group spec", has_policy=has_policy)
    return spec


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    # A client that does not know what was filled in does not take it away.
    filled = {n: v for n, v in (old.get("spec") or {}).items() if n in FILLED}
    new["spec"] = {**filled, **new["spec"]}


def _unchanged_group(old: Document, new: Document, at: str) -> Causes:
    """Yield what changed of a group or a template that may not: all but a gang's minCount."""
    for name in GROUP_FIXED:
        yield from immutable(f"{at}.{name}", old.get(name), new.get(name))
    yield from immutable(f"{at}.schedulingPolicy", _without_count(old), _without_count(new))


def _without_count(spec: Document) -> Document:
    policy = spec.get("schedulingPolicy") or {}
    if policy.get("gang") is None:
        return dict(policy)
    return {**policy, "gang": {n: v for n, v in policy["gang"].items() if n != "minCount"}}


def _workload_exists(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    """Refuse a new group whose Workload, or whose template there, does not exist (PodGroupWorkloadExists).

    Source: upstream `plugin/pkg/admission/podgroup/admission.go`.
    """
    reference = new["spec"].get("workloadRef") or {}
    workload, template = reference.get("workloadName"), reference.get("templateName")
    if old is not None or not workload or not template:
        return ()
    meta = new["metadata"]
    workload_document = ctx.lookup(WORKLOADS, meta.get("namespace") or ctx.request.namespace, workload)
    if workload_document is None:
        raise refused(POD_GROUPS, meta["name"], f'PodGroup rejected: Workload "{workload}" not found')
    if all(each.get("name") != template for each in _templates(workload_document["spec"])):
        text = f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{workload}"'
        raise refused(POD_GROUPS, meta["name"], text)
    return ()


AT = "spec.podGroupTemplates"
TEMPLATE = Struct(Field("name", required=True, form=label), unique("name"), *GROUP)
WORKLOAD_REFERENCE = Struct(
    Field("apiGroup", form=subdomain), Field("kind", required=True), Field("name", required=True)
)
WORKLOAD_SPEC = Struct(
    Field(
        "podGroupTemplates", required="must have at least one template", missing=[], most=TEMPLATES_MAX, items=TEMPLATE
    ),
    Field("controllerRef", struct=WORKLOAD_REFERENCE),
)


def _templates(spec: Document) -> list[Document]:
    found: list[Document] = spec.get("podGroupTemplates") or []
    return found


def _create_workload(new: Document, ctx: WriteContext) -> None:
    drop_status(new, ctx)
    templates = [with_priority(new, each, ctx) for each in _templates(new["spec"])]
    new["spec"] = {**new["spec"], "podGroupTemplates": templates}


def _immutable_templates(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = old.get("spec") or {}, new["spec"]
    if before.get("controllerRef") is not None:
        yield from immutable("spec.controllerRef", before["controllerRef"], after.get("controllerRef"))
    was, now = ({each.get("name"): each for each in _templates(spec)} for spec in (before, after))
    if list(was) != list(now):
        yield forbidden(AT, "templates may not be added, removed or reordered")
        return
    for index, name in enumerate(was):
        yield from _unchanged_group(was[name], now[name], f"{AT}[{index}]")


STRATEGIES = {
    PRIORITY_CLASSES: declare_strategy(FIELDS, rules=_one_default),
    POD_GROUPS: declare_strategy(
        Struct(Field("spec", default={}, struct=GROUP_SPEC)),
        has_status=True,
        before_create=require_gate,
        rules=_workload_exists,
        prepare_status=_prepare_status,
        status_rules=_claims_made,
        on_create=lambda new, ctx: new.update(spec=with_priority(new, new["spec"], ctx)),
        on_update=_update,
        update_rules=lambda old, new, ctx: _unchanged_group(old.get("spec") or {}, new["spec"], "spec"),
    ),
    WORKLOADS: declare_strategy(
        Struct(Field("spec", default={}, struct=WORKLOAD_SPEC)),
        before_create=require_gate,
        on_create=_create_workload,
        update_rules=_immutable_templates,
    ),
}
