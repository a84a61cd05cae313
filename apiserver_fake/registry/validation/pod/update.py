"""Allowed changes of an existing pod's spec: a few fields by an update, cpu and memory by a resize.

While a pod is gated, its scheduling constraints may only become narrower (KEP-3838). A resize changes cpu and
memory of resizable containers, and nothing else; ephemeral containers have no resources, swap and memory-backed
volumes do not exist here. Source: kep-1287-in-place-resize 3.1 and 13; upstream `ValidatePodUpdate`,
`ValidatePodResize` and its strategy (v1.36).
"""

import difflib
import json
from collections.abc import Iterable
from typing import Any

from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.formats import Cause, Causes, forbidden, invalid, required
from apiserver_fake.registry.validation.pod import defaults
from apiserver_fake.registry.validation.pod.container import RESIZABLE
from apiserver_fake.registry.validation.pod.placement import REQUIRED_TERMS
from apiserver_fake.registry.validation.pod.scope import as_internal
from apiserver_fake.registry.validation.pod.spec import check_pod
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.quantity import amount

_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
INT32_MAX = 2**31 - 1


def check_update(old: Document, new: Document) -> Causes:
    """Yield the forbidden changes of a pod's new spec (upstream `ValidatePodUpdate`)."""
    if old == new:
        return
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(old.get(kind) or ()):
            yield forbidden(f"spec.{kind}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(new.get(kind) or ()):
            image, path = container.get("image") or "", f"spec.{kind}[{index}].image"
            if not image:
                yield required(path)
            if image != image.strip():
                yield invalid(path, image, "must not have leading or trailing whitespace")
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if after is not None:
        if not 0 <= after <= INT32_MAX:
            yield invalid("spec.activeDeadlineSeconds", after, f"must be between 0 and {INT32_MAX}, inclusive")
            return
        if before is not None and before < after:
            yield invalid("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")
            return
    elif before is not None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    tolerations = [_timeless(each) for each in new.get("tolerations") or []]
    if any(_timeless(each) not in tolerations for each in old.get("tolerations") or []):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    kept = {gate.get("name") for gate in old.get("schedulingGates") or []}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if (name := gate.get("name")) not in kept:
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)
    was_gated = bool(kept)
    if was_gated:
        yield from _narrowing_causes(old, new)
    frozen_old, frozen_new = _immutable_spec(old, was_gated), _immutable_spec(new, was_gated)
    if frozen_old != frozen_new:
        yield forbidden("spec", f"{_FROZEN}\n{difference(frozen_old, frozen_new)}")


def difference(old: Document, new: Document) -> str:
    """Return the differences between two objects, line by line, as refusals show them; members have the API's
    names.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/util/diff/diff.go`.
    """
    before, after = (json.dumps(each, indent=1).splitlines(keepends=True) for each in (old, new))
    lines = [*difflib.unified_diff([*before, "\n"], [*after, "\n"], n=3)]
    return "".join(lines[2:])


def _timeless(toleration: Document) -> Document:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _immutable_spec(spec: Document, was_gated: bool) -> Document:
    """Return the spec with everything that may change taken out."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
        and not (was_gated and name in ("nodeSelector", "affinity"))
        and value not in (None, "", [], {})
    }
    if was_gated and (affinity := _without_nodes(spec.get("affinity"))):
        rest["affinity"] = affinity
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{**container, "image": ""} for container in rest[kind]]
    if rest.get("terminationGracePeriodSeconds", 0) in (1, -1):
        rest["terminationGracePeriodSeconds"] = 1
    return rest


def _without_nodes(affinity: Document | None) -> Document:
    return {name: value for name, value in (affinity or {}).items() if name != "nodeAffinity" and value}


def _narrowing_causes(old: Document, new: Document) -> Causes:
    # While gated, what the pod asks for may only become narrower (KEP-3838).
    selector = new.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in (old.get("nodeSelector") or {}).items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", dict(sorted(selector.items())), text)
    here = f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms"
    terms, wanted = _required_terms(old.get("affinity") or {}), _required_terms(new.get("affinity") or {})
    if terms and len(terms) != len(wanted):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid(here, [_shown_term(each) for each in wanted] or None, text)
        return
    for index, (before, after) in enumerate(zip(terms, wanted, strict=False)):
        if not _has_only_additions(before, after):
            yield invalid(
                f"{here}[{index}]", _shown_term(after), "only additions are allowed (no mutations or deletions)"
            )


def _has_only_additions(before: Document, after: Document) -> bool:
    parts = [(before.get(part) or [], after.get(part) or []) for part in ("matchExpressions", "matchFields")]
    if not any(was for was, _ in parts):
        return not any(now for _, now in parts)
    return all(now[: len(was)] == was for was, now in parts)


def _shown_term(term: Document) -> Document:
    """Return a term of a node selector as refusals show it."""

    def requirements(part: str) -> list[Document] | None:
        found = term.get(part)
        names = ("key", "operator", "values")
        return None if found is None else [as_internal((name, each.get(name)) for name in names) for each in found]

    return as_internal((part, requirements(part)) for part in ("matchExpressions", "matchFields"))


def _required_terms(affinity: Document) -> list[Document]:
    hard = (affinity.get("nodeAffinity") or {}).get(REQUIRED_TERMS) or {}
    terms: list[Document] = hard.get("nodeSelectorTerms") or []
    return terms


CONTAINERS, INIT_CONTAINERS = "containers", "initContainers"
_OWN = ("resources", "resizePolicy")


def resized_spec(old: Document, wanted: Document) -> Document:
    """Return the stored spec with the fields that a resize may change taken from `wanted`; its other fields are
    ignored.

    Containers that were added, dropped, renamed or reordered are taken as requested: `check_resize` refuses them.
    """
    spec = dict(old)
    for kind in (CONTAINERS, INIT_CONTAINERS):
        before, after = old.get(kind) or [], wanted.get(kind) or []
        if [_name(each) for each in before] != [_name(each) for each in after]:
            spec[kind] = after
        elif before:
            spec[kind] = [_resized_container(*pair) for pair in zip(before, after, strict=True)]
    if "resources" in wanted:
        spec["resources"] = wanted["resources"]
    else:
        spec.pop("resources", None)
    spec = defaults.with_pod_level_requests(defaults.requests_from_limits(spec))
    return spec if spec == old else defaults.with_resize_policies(spec)


def _name(container: Any) -> str:
    return str(container.get("name") or "") if isinstance(container, dict) else ""


def _resized_container(before: Document, after: Document) -> Document:
    # A client that does not know resizePolicy leaves it out and means no change (kep-1287 14).
    return {**before, **{name: after[name] for name in _OWN if name in after}}


def check_resize(old: Document, new: Document, report: Report) -> list[Cause]:
    """Return the errors in a resize of the stored pod to the new one.

    The gates InPlacePodLevelResourcesVerticalScaling and InPlacePodVerticalScalingInitContainers decide whether
    pods with pod-level resources, and init containers that are not sidecars, may be resized.
    """
    before, spec = old.get("spec") or {}, new.get("spec") or {}
    if MIRROR_ANNOTATION in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    check_pod(new, report)
    causes = report.causes
    try:
        causes += _beside(old, spec, report.switches)
    except ValueError:  # a malformed quantity, named already
        causes += _check_order(before, spec)
    return causes


def _beside(old: Document, spec: Document, switches: ApiServerSwitches) -> Causes:
    """Yield what is wrong with a resized spec beside the stored pod."""
    before, status = old.get("spec") or {}, old.get("status") or {}
    qos = status.get("qosClass") or defaults.qos_class(before)
    if defaults.qos_class(spec) != qos:
        yield invalid("spec", qos, "Pod QOS Class may not change as a result of resizing")
    if not is_supported(status):
        yield forbidden("spec", "Pod running on node without support for resize")
    if not switches.pod_level_resize and (_has_amounts(before.get("resources")) or _has_amounts(spec.get("resources"))):
        yield forbidden("", _NO_LEVEL)
        return
    yield from _check_level(before.get("resources"), spec.get("resources"))
    if disorder := [*_check_order(before, spec)]:
        yield from disorder
        return
    for kind in (INIT_CONTAINERS, CONTAINERS):
        for index, (was, now) in enumerate(_pairs(before, spec, kind)):
            if kind == CONTAINERS or was.get("restartPolicy") == "Always" or switches.init_container_resize:
                at = f"spec.{kind}[{index}].resources"
                yield from _check_kept(was.get("resources"), now.get("resources"), at, "resource")
    for was, now in _pairs(before, spec, CONTAINERS):
        if _fixed_fields(was) != _fixed_fields(now):
            yield forbidden("spec", "only cpu and memory resources are mutable")
    for index, (was, now) in enumerate(_pairs(before, spec, INIT_CONTAINERS)):
        if was.get("restartPolicy") == "Always" or switches.init_container_resize:
            if _fixed_fields(was) != _fixed_fields(now):
                text = "only cpu and memory resources for init or sidecar containers are mutable"
                yield forbidden(f"spec.initContainers[{index}]", text)
        elif _exact(was) != _exact(now):
            yield forbidden("spec", "resources for non-sidecar init containers are immutable")


def _pairs(before: Document, after: Document, kind: str) -> Iterable[tuple[Document, Document]]:
    return zip(before.get(kind) or [], after.get(kind) or [], strict=True)


_NO_LEVEL = (
    "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature "
    "gate is disabled"
)


def _has_amounts(resources: Any) -> bool:
    return bool(resources and (resources.get("requests") or resources.get("limits")))


def is_supported(status: Document) -> bool:
    """Whether the pod's node can resize it: its first running container, if any, reports resources in its status."""
    for each in status.get("containerStatuses") or []:
        if (each.get("state") or {}).get("running") is not None:
            return each.get("resources") is not None
    return True


def _check_level(before: Any, after: Any) -> list[Cause]:
    if not before and not after:
        return []
    if before and not after:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    causes = _check_kept(before, after, "spec.resources", "pod-level resource")
    if _without_resizable(before) != _without_resizable(after):
        causes.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return causes


def _check_order(before: Document, after: Document) -> Causes:
    for kind in (CONTAINERS, INIT_CONTAINERS):
        was, now = before.get(kind) or [], after.get(kind) or []
        if len(was) != len(now):
            yield forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize")
            continue
        yield from [
            forbidden(f"spec.{kind}[{index}].name", f"{kind} may not be renamed or reordered on resize")
            for index, pair in enumerate(zip(was, now, strict=True))
            if _name(pair[0]) != _name(pair[1])
        ]


def _check_kept(before: Any, after: Any, at: str, what: str) -> list[Cause]:
    """What was asked for or limited may change and may not vanish."""
    return [
        forbidden(f"{at}.{part}", f"{what} {part} cannot be removed")
        for part in ("requests", "limits")
        if any(name not in ((after or {}).get(part) or {}) for name in (before or {}).get(part) or {})
    ]


def _fixed_fields(container: Document) -> Any:
    """Return what a resize may not change of a container that can be resized."""
    return _policies(container), _without_resizable(container.get("resources"))


def _without_resizable(resources: Any) -> Document:
    """Return the rest of a resources field, quantities as numbers; what is empty is absent."""
    quantities = _quantities(resources)
    for part in ("requests", "limits"):
        rest = {name: value for name, value in quantities.pop(part, {}).items() if name not in RESIZABLE}
        if rest:
            quantities[part] = rest
    return quantities


def _quantities(resources: Any) -> Document:
    found = {name: value for name, value in (resources or {}).items() if value}
    for part in ("requests", "limits"):
        if part in found:
            found[part] = {name: amount(name, text) for name, text in found[part].items()}
    return found


def _exact(container: Document) -> Document:
    return {"resources": _quantities(container.get("resources")), "resizePolicy": _policies(container)}


def _policies(container: Document) -> Document:
    """Return what a container says besides the default: by resource, how it is resized."""
    stated = {each.get("resourceName"): each.get("restartPolicy") for each in container.get("resizePolicy") or []}
    return {name: policy for name, policy in stated.items() if policy != "NotRequired"}
