"""Bounds that a namespace's LimitRanges set for single pods and claims: defaults, and refusals.

A resize is checked like a creation; but values that it leaves unchanged are not checked again, because the
bound may be younger than the pod. Source: kep-1287-in-place-resize 3.2; upstream
`plugin/pkg/admission/limitranger` (v1.37).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.kinds.limitrange import CLAIM, CONTAINER, POD, LimitRange, LimitRangeItem
from services.api.kinds.pod import Pod, PodStatus, ResourceRequirements
from services.api.meta import Document
from services.api.podresources import Amounts, amounts, limits_in_use, pod_requests
from services.api.quantity import milli
from services.api.quotas import text_of

LIMIT_RANGES = "limitranges"
ANNOTATION = "kubernetes.io/limit-ranger"


def ranges_of(ctx: WriteContext, namespace: str) -> list[LimitRange]:
    """Return the namespace's limit ranges, by name."""
    return [msgspec.convert(document, LimitRange) for document in ctx.list(LIMIT_RANGES, namespace)]


def with_default_limits(spec: Document, ranges: list[LimitRange]) -> tuple[Document, str]:
    """Return a pod's spec with default limits and requests for its containers, and a note of the values set.

    The note is what upstream puts into the annotation `kubernetes.io/limit-ranger`; "" if nothing was set.
    """
    note = ""
    for limit_range in ranges:
        items = [item for item in limit_range.spec.limits if item.type == CONTAINER]
        requests = {name: text for item in items for name, text in item.default_request.items()}
        limits = {name: text for item in items for name, text in item.default.items()}
        if not requests and not limits:
            continue
        notes: list[str] = []
        spec = dict(spec)
        for kind, word in (("containers", "container"), ("initContainers", "init container")):
            if spec.get(kind):
                spec[kind] = [_with_defaults(one, requests, limits, word, notes) for one in spec[kind]]
        if notes:  # the last range that gives something has the last word
            note = f"LimitRanger plugin set: {'; '.join(notes)}"
    return spec, note


def _with_defaults(
    container: Document, requests: dict[str, str], limits: dict[str, str], word: str, notes: list[str]
) -> Document:
    resources = dict(container.get("resources") or {})
    for part, defaults, what in (("requests", requests, "request"), ("limits", limits, "limit")):
        has = resources.get(part) or {}
        missing = sorted(name for name in defaults if name not in has)
        if missing:
            resources[part] = {**has, **{name: defaults[name] for name in missing}}
            notes.append(f"{', '.join(missing)} {what} for {word} {container.get('name', '')}")
    return {**container, "resources": resources}


class Size(NamedTuple):
    """The resources that one object requests."""

    requests: Amounts
    limits: Amounts

    def same(self, other: Size | None, name: str) -> bool:
        """Whether the other has the same request and limit of a resource."""
        return other is not None and all(
            mine.get(name) == theirs.get(name) for mine, theirs in zip(self, other, strict=True)
        )


def check_pod(old: Document | None, new: Document, ctx: WriteContext) -> None:
    """Check that a pod is within its namespace's bounds; `old`: the pod before a resize. Raises: Forbidden
    naming all errors.
    """
    ranges = ranges_of(ctx, ctx.request.namespace)
    if not ranges:
        return
    pod, before = msgspec.convert(new, Pod), None if old is None else msgspec.convert(old, Pod)
    for limit_range in ranges:
        problems: list[str] = []
        for item in limit_range.spec.limits:
            if item.type == CONTAINER:
                problems += _of_containers(item, pod, before)
            elif item.type == POD:
                problems += _violations(item, _whole(pod), None if before is None else _whole(before))
        _refuse(problems, "pods", new)


def _of_containers(item: LimitRangeItem, pod: Pod, before: Pod | None) -> Iterator[str]:
    old = () if before is None else (*before.spec.containers, *before.spec.init_containers)
    had = {container.name: _size(container.resources) for container in old}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        yield from _violations(item, _size(container.resources), had.get(container.name))


def _size(resources: ResourceRequirements) -> Size:
    return Size(amounts(resources.requests), amounts(resources.limits))


def _whole(pod: Pod) -> Size:
    """Return what the pod as a whole asks for by its spec, without overhead."""
    replace = msgspec.structs.replace
    plain = replace(pod, spec=replace(pod.spec, overhead={}), status=PodStatus())
    return Size(pod_requests(plain), limits_in_use(plain))


def check_claim(old: Document | None, new: Document, ctx: WriteContext) -> None:
    """Check that a claim is within every bound of its namespace. Raises: Forbidden."""
    for limit_range in ranges_of(ctx, ctx.request.namespace):
        size, before = _storage(new), None if old is None else _storage(old)
        problems: list[str] = []
        for item in limit_range.spec.limits:
            if item.type != CLAIM:
                continue
            for name in sorted({**item.min, **item.max}):
                if not size.same(before, name):
                    # Claims have no limits: their requests are held to the maximum.
                    for which in ("minimum", "maximum"):
                        problems += _beyond(name, item, which, (("request", size.requests),))
        _refuse(problems, "persistentvolumeclaims", new)


def _storage(claim: Document) -> Size:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return Size(amounts(resources.get("requests") or {}), {})


def _refuse(problems: list[str], kind: str, new: Document) -> None:
    if not problems:
        return
    unique = list(dict.fromkeys(problems))
    text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    raise forbidden(kind, new["metadata"].get("name") or "", text)


def _violations(item: LimitRangeItem, size: Size, before: Size | None) -> Iterator[str]:
    """Yield what is wrong with what changed, in upstream's words."""
    requests, limits = ("request", size.requests), ("limit", size.limits)
    for which, bounds, sides in (("minimum", item.min, (requests, limits)), ("maximum", item.max, (limits, requests))):
        for name in sorted(bounds):
            if not size.same(before, name):
                yield from _beyond(name, item, which, sides)
    for name in sorted(item.max_limit_request_ratio):
        if not size.same(before, name):
            yield from _too_far_apart(name, item, size)


def _beyond(name: str, item: LimitRangeItem, which: str, sides: Iterable[tuple[str, Amounts]]) -> list[str]:
    """Return what is said of an amount below the minimum or above the maximum; the first side must be stated."""
    bounds, sign = (item.min, -1) if which == "minimum" else (item.max, 1)
    if name not in bounds:
        return []
    bound = amounts(bounds)[name]
    head = f"{which} {name} usage per {item.type} is {text_of(name, bound)}"
    for place, (word, stated) in enumerate(sides):
        if place == 0 and name not in stated:
            return [f"{head}.  No {word} is specified"]
        if (stated.get(name, bound) - bound) * sign > 0:
            return [f"{head}, but {word} is {text_of(name, stated[name])}"]
    return []


def _too_far_apart(name: str, item: LimitRangeItem, size: Size) -> list[str]:
    ratio = item.max_limit_request_ratio[name]
    head = f"{name} max limit to request ratio per {item.type} is {ratio}"
    for word, stated in (("request", size.requests), ("limit", size.limits)):
        if not stated.get(name):
            return [f"{head}, but no {word} is specified or {word} is 0"]
    request, limit = size.requests[name], size.limits[name]
    if limit * 1000 > request * milli(ratio):
        return [f"{head}, but provided ratio is {limit / request:f}"]
    return []
