"""What may still change in the spec of a pod that exists: little by an update, by a resize cpu and memory.

While a pod is gated, what it asks for may only become narrower (KEP-3838). A resize changes cpu and memory of
containers that can change, and nothing else; ephemeral containers have no resources, swap and memory-backed volumes do
not exist here. Source: kep-1287-in-place-resize 3.1 and 13; upstream `ValidatePodUpdate`, `ValidatePodResize` and its
strategy (v1.36).
"""

from typing import Any

from apiserver_fake.validation.formats import IMMUTABLE, Cause, Causes, forbidden, invalid
from apiserver_fake.validation.pod import defaults
from apiserver_fake.validation.pod.container import RESIZABLE
from apiserver_fake.validation.pod.placement import REQUIRED_TERMS
from apiserver_fake.validation.pod.spec import check
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.quantity import amount

_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_update(old: Document, new: Document) -> Causes:
    """Return what a pod's new spec may not change (upstream `ValidatePodUpdate`)."""
    if old == new:
        return
    was_gated = bool(old.get("schedulingGates"))
    kept = {gate.get("name") for gate in old.get("schedulingGates") or []}
    for gate in new.get("schedulingGates") or []:
        if gate.get("name") not in kept:
            yield forbidden(
                "spec.schedulingGates", f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            )
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and after is None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif before is not None and after is not None and after > before:
        yield invalid("spec.activeDeadlineSeconds", after, f"must be less than or equal to previous value, {before}")
    tolerations = [_timeless(each) for each in new.get("tolerations") or []]
    if any(_timeless(each) not in tolerations for each in old.get("tolerations") or []):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    if was_gated:
        yield from _tightened(old, new)
    frozen_old, frozen_new = _frozen(old, was_gated), _frozen(new, was_gated)
    changed = [
        name for name in dict.fromkeys([*frozen_old, *frozen_new]) if frozen_old.get(name) != frozen_new.get(name)
    ]
    if changed:
        yield forbidden("spec", f"{_FROZEN}; changed: {', '.join(f'spec.{name}' for name in changed)}")


def _timeless(toleration: Document) -> Document:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _frozen(spec: Document, was_gated: bool) -> Document:
    """Return the spec with everything that may change taken out."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
        and not (was_gated and name in ("nodeSelector", "affinity"))
        and value not in (None, "", [], {})
    }
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{**container, "image": ""} for container in rest[kind]]
    if rest.get("terminationGracePeriodSeconds", 0) in (1, -1):
        rest["terminationGracePeriodSeconds"] = 1
    return rest


def _tightened(old: Document, new: Document) -> Causes:
    # While gated, what the pod asks for may only become narrower (KEP-3838).
    selector = new.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in (old.get("nodeSelector") or {}).items()):
        yield invalid("spec.nodeSelector", selector, "only additions are allowed while the pod is gated")
    before, after = old.get("affinity") or {}, new.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        if before.get(name) != after.get(name):
            yield invalid(f"spec.affinity.{name}", after.get(name), IMMUTABLE)
    terms, wanted = _required_terms(before), _required_terms(after)
    for index, term in enumerate(terms):
        now = wanted[index] if len(wanted) == len(terms) else {}
        for part in ("matchExpressions", "matchFields"):
            if any(each not in (now.get(part) or []) for each in term.get(part) or []):
                here = f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms[{index}]"
                yield invalid(here, now, "only additions are allowed (no mutations or deletions)")


def _required_terms(affinity: Document) -> list[Document]:
    hard = (affinity.get("nodeAffinity") or {}).get(REQUIRED_TERMS) or {}
    terms: list[Document] = hard.get("nodeSelectorTerms") or []
    return terms


CONTAINERS, INIT_CONTAINERS = "containers", "initContainers"
_OWN = ("resources", "resizePolicy")


def resized_spec(old: Document, wanted: Document) -> Document:
    """Return the stored spec with what a resize may say taken from `wanted`; all else it says is left out.

    Containers that were added, dropped, renamed or reordered are kept as asked for: `check_resize` names them.
    """
    spec = dict(old)
    for kind in (CONTAINERS, INIT_CONTAINERS):
        before, after = old.get(kind) or [], wanted.get(kind) or []
        if [_name(each) for each in before] != [_name(each) for each in after]:
            spec[kind] = after
        elif before:
            spec[kind] = [_resized(*pair) for pair in zip(before, after, strict=True)]
    if "resources" in wanted:
        spec["resources"] = wanted["resources"]
    else:
        spec.pop("resources", None)
    spec = defaults.with_pod_level_requests(defaults.requests_from_limits(spec))
    return spec if spec == old else defaults.with_resize_policies(spec)


def _name(container: Any) -> str:
    return str(container.get("name") or "") if isinstance(container, dict) else ""


def _resized(before: Document, after: Document) -> Document:
    # A client that does not know resizePolicy leaves it out and means no change (kep-1287 14).
    return {**before, **{name: after[name] for name in _OWN if name in after}}


def check_resize(old: Document, spec: Document, *, with_level: bool = True) -> list[Cause]:
    """Return what is wrong with resizing the stored pod to this spec.

    `with_level`: pods with resources of their own may be resized (InPlacePodLevelResourcesVerticalScaling).
    """
    before = old.get("spec") or {}
    causes = check(spec, "spec")
    if MIRROR_ANNOTATION in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    if not with_level and (before.get("resources") or spec.get("resources")):
        return [forbidden("", "pods with pod-level resources cannot be resized")]
    if causes:
        # Quantities may be malformed: all that can be said besides is who is there.
        return [*causes, *_check_order(before, spec)]
    status = old.get("status") or {}
    qos = status.get("qosClass") or defaults.qos_class(before)
    if defaults.qos_class(spec) != qos:
        causes.append(invalid("spec", qos, "Pod QOS Class may not change as a result of resizing"))
    if not is_supported(status):
        causes.append(forbidden("spec", "Pod running on node without support for resize"))
    causes += _check_level(before.get("resources"), spec.get("resources"))
    if disorder := [*_check_order(before, spec)]:
        return causes + disorder
    for kind in (INIT_CONTAINERS, CONTAINERS):
        for index, (was, now) in enumerate(zip(before.get(kind) or [], spec.get(kind) or [], strict=True)):
            here = f"spec.{kind}[{index}]"
            causes += _check_kept(was.get("resources"), now.get("resources"), f"{here}.resources", "resource")
            causes += _check_container(was, now, kind, here)
    return causes


def is_supported(status: Document) -> bool:
    """Whether the node of a pod can resize it: the first container that runs reports its resources, if one runs."""
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


def _check_container(before: Document, after: Document, kind: str, at: str) -> list[Cause]:
    if _exact(before) == _exact(after):
        return []
    if kind == INIT_CONTAINERS and before.get("restartPolicy") != "Always":
        return [forbidden(at, "resources for non-sidecar init containers are immutable")]
    was, now = ((_policies(each), _without_resizable(each.get("resources"))) for each in (before, after))
    if was == now:
        return []
    if kind == INIT_CONTAINERS:
        return [forbidden(at, "only cpu and memory resources for sidecar containers are mutable")]
    return [forbidden("spec", "only cpu and memory resources are mutable")]


def _without_resizable(resources: Any) -> Document:
    """Return the rest of a resources field, quantities as numbers; what is empty is absent."""
    found = _quantities(resources)
    for part in ("requests", "limits"):
        rest = {name: value for name, value in found.pop(part, {}).items() if name not in RESIZABLE}
        if rest:
            found[part] = rest
    return found


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
