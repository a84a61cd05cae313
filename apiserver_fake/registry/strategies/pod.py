"""Pods: admission defaults, mutable fields, writers of the status, graceful deletion.

The three binding fields of the status, and `spec.nodeName` after creation, are written by the `binding` and
`unbind` subresources alone; here the changes of all other writers to them are reverted.
"""

import contextlib

from apiserver_fake.registry.admission import limit_ranger
from apiserver_fake.registry.admission.declared_features import check_pod_update
from apiserver_fake.registry.admission.priority import set_priority
from apiserver_fake.registry.admission.runtime_class import set_runtime_class
from apiserver_fake.registry.admission.service_account import with_account
from apiserver_fake.registry.strategy import (
    DeleteOptions,
    Strategy,
    WriteContext,
    delete_now_or_mark,
    keep_all_but_status,
)
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Cause, invalid, metadata, not_supported
from apiserver_fake.registry.validation.pod import defaults
from apiserver_fake.registry.validation.pod.annotations import check_annotations, check_annotations_update
from apiserver_fake.registry.validation.pod.container import without_own_policies
from apiserver_fake.registry.validation.pod.placement import with_label_keys
from apiserver_fake.registry.validation.pod.spec import POD_SPEC, check_new_pod, check_pod
from apiserver_fake.registry.validation.pod.status import STATUS, check_status
from apiserver_fake.registry.validation.pod.update import check_update
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.times import format_time

BINDING_FIELDS = ("bindingGeneration", "unbindCount", "unbindHistory", "bindingAdditions")
"""Status fields that only bind and unbind transactions write. `bindingAdditions` (ours, beyond
kubelet-unbinding 4.1) lists the label and annotation keys that the last Binding added, so that the
unbind can remove exactly those.
"""
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_RANK = {"": 0, "Pending": 0, "Unknown": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def _with_defaults(new: Document) -> Document:
    spec = defaults.requests_from_limits(POD_SPEC.complete(new.get("spec") or {}))
    spec.setdefault("enableServiceLinks", True)
    return {**new, "spec": spec}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    spec = POD_SPEC.complete(new.get("spec") or {})
    spec = defaults.requests_from_limits(spec)
    spec = defaults.with_pod_level_requests(defaults.with_resize_policies(_with_default_limits(new, spec, ctx)))
    spec = with_label_keys(spec, new["metadata"].get("labels") or {}, spreads=ctx.switches.spread_selector_merge)
    spec.setdefault("enableServiceLinks", True)
    if not _is_mirror(new):
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        spec["tolerations"] = defaults.tolerations_with_defaults(list(spec.get("tolerations") or []))
        if ctx.accounts.is_admitting:
            spec = with_account(new, spec, ctx)
    if not ctx.switches.generic_workload:
        spec.pop("schedulingGroup", None)
    if not ctx.switches.container_restart_rules:
        spec = without_own_policies(spec)
    set_priority(new, spec, ctx, "pods", "pod spec")
    if "runtimeClassName" in spec or "overhead" in spec:
        set_runtime_class(new, spec, ctx)
    new["spec"] = spec
    status: Document = {"phase": "Pending"}
    with contextlib.suppress(ValueError):  # a malformed quantity: `validate` names the field
        status["qosClass"] = defaults.qos_class(spec)
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": format_time(ctx.wall_s),
            }
        ]
    new["status"] = status


def _with_default_limits(new: Document, spec: Document, ctx: WriteContext) -> Document:
    """Return the spec with what the namespace's limit ranges give; the pod is annotated with what that was."""
    ranges = limit_ranger.ranges_of(ctx, ctx.request.namespace)
    if not ranges:
        return spec
    spec, note = limit_ranger.with_default_limits(spec, ranges)
    if note:
        annotations = {**(new["metadata"].get("annotations") or {}), limit_ranger.ANNOTATION: note}
        new["metadata"] = {**new["metadata"], "annotations": annotations}
    return spec


def _is_mirror(pod: Document) -> bool:
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


_ADMITTED = ("priority", "preemptionPolicy", "priorityClassName", "serviceAccountName", "serviceAccount")


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    new["status"] = old.get("status") or {}
    before = old.get("spec") or {}
    if new.get("spec") is not before:
        spec = defaults.requests_from_limits(POD_SPEC.complete(new.get("spec") or {}))
        spec = defaults.with_pod_level_requests(defaults.with_resize_policies(spec))
        for name in (*_ADMITTED, "enableServiceLinks"):
            if name not in spec and name in before:
                spec[name] = before[name]
        if not _is_mirror(old):
            spec["tolerations"] = defaults.tolerations_with_defaults(list(spec.get("tolerations") or []))
        new["spec"] = spec


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = [*metadata(new)]
    report = Report(ctx.switches, causes)
    if old is None:
        check_new_pod(new, report)
        return causes
    report.update = (old, new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    was, now = old["metadata"].get("annotations") or {}, new["metadata"].get("annotations") or {}
    if new.get("spec") is not old.get("spec"):
        check_pod(new, report)
    elif now != was:
        check_annotations(now, spec, "metadata.annotations", report)
    causes += check_annotations_update(was, now, "metadata.annotations")
    causes += check_update(before, spec)
    return causes


def _check_bounds(old: Document | None, new: Document, ctx: WriteContext) -> None:
    # A plain update changes no size; `resize` asks for itself.
    if old is None:
        limit_ranger.check_pod(None, new, ctx)
    else:
        check_pod_update(old, new, ctx)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Keep all but the status, and of the status what only the server writes; the quality of service never changes.

    Source: upstream `pkg/registry/core/pod/strategy.go`, `podStatusStrategy`.
    """
    before, status = old.get("status") or {}, dict(new.get("status") or {})
    for name in (*BINDING_FIELDS, "qosClass"):
        if name in before:
            status[name] = before[name]
        else:
            status.pop(name, None)
    if node := (old.get("spec") or {}).get("nodeName"):
        # A pod that has a node is not nominated for one (I17), but where that stands for its resize (kep-5836 13.5).
        nominated = status.pop("nominatedNodeName", None)
        if nominated == node and ctx.switches.resize_double_preemption == "nnn":
            status["nominatedNodeName"] = node
        elif before.get("nominatedNodeName") and not ctx.switches.clearing_nominated_node_name:
            status["nominatedNodeName"] = before["nominatedNodeName"]
    new["status"] = status
    keep_all_but_status(old, new, ctx)


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before, status = (old or {}).get("status") or {}, new.get("status") or {}
    causes: list[Cause] = []
    was, phase = before.get("phase") or "", status.get("phase") or ""
    if phase and phase not in PHASES:
        causes.append(not_supported("status.phase", phase, PHASES))
    elif phase != was and _RANK.get(phase, 0) < _RANK.get(was, 0):
        causes.append(invalid("status.phase", phase, f"the phase may not go back from {was}"))
    elif phase != was and _RANK.get(was, 0) == 2:
        causes.append(invalid("status.phase", phase, f"the phase {was} is final"))
    report = Report(ctx.switches, causes)
    if old is None:
        STATUS.check(status, "status.", report)
        return causes
    was_notes, notes = old["metadata"].get("annotations") or {}, new["metadata"].get("annotations") or {}
    if notes != was_notes:
        causes += check_annotations_update(was_notes, notes, "metadata.annotations")
        check_annotations(notes, old.get("spec") or {}, "metadata.annotations", report)
    return check_status(old, new, report)


def _before_delete(old: Document, ctx: WriteContext, options: DeleteOptions) -> Document | None:
    """Give the pod its time to end, or let it go at once (core/v1 pod strategy `CheckGracefulDelete`).

    A pod without node, one that has ended, and any pod deleted with grace 0 goes at once; a second
    delete may only shorten the time.
    """
    spec, status, meta = old.get("spec") or {}, old.get("status") or {}, old["metadata"]
    grace = options.grace_period_s
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds")
        if meta.get("deletionTimestamp"):
            grace = meta.get("deletionGracePeriodSeconds", 0)
    grace = 30 if grace is None else max(1 if grace < 0 else 0, grace)
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        grace = 0
    return delete_now_or_mark(old, ctx, options, grace)


def transition(conditions: list[Document], condition: Document, wall_s: float) -> list[Document]:
    """Return the conditions with `condition` set; its transition time changes only when its status does."""
    kind, moved = condition["type"], format_time(wall_s)
    before = {each.get("type"): each for each in conditions}.get(kind)
    if before is not None and before.get("status") == condition["status"]:
        moved = before.get("lastTransitionTime") or moved
    others = [each for each in conditions if each.get("type") != kind]
    return [*others, {**condition, "lastTransitionTime": moved}]


STRATEGIES = {
    "pods": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        check_bounds=_check_bounds,
        before_delete=_before_delete,
        prepare_status=_prepare_status,
        validate_status=_validate_status,
        fields=Struct(Field("spec", struct=POD_SPEC), Field("status", struct=STATUS)),
        with_defaults=_with_defaults,
    )
}
