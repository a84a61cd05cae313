"""The runtime calls of a resize, from the running size to the allocated one, and their order. Pure.

Resource by resource, memory first. For each resource, the pod's own limit is raised, then containers are
made smaller, then the pod's limit is lowered, then containers are made bigger; so the sum never exceeds
what was allocated. The first call that fails ends the attempt; the next sync of the pod begins another one.
Source: kep-1287-in-place-resize 7 and 13; upstream `doPodResizeAction`. Requests (shares) go with the
limits.

The emulated runtime's answers come from annotations of the pod, which may change while it runs:

    keplab.dev/memory[.CONTAINER]: 400Mi    memory in use (of every container, or of one; default none), unless
                                            the curves of `usage` say it
    keplab.dev/resize-fails: 1              so many calls fail before one succeeds
"""

from collections.abc import Iterable, Mapping

import msgspec

from kubelet.runtime import usage
from kubelet.runtime.resources import PodResources
from kubelet.view import KubeletPod
from services.api.kinds.pod import Container, ResourceRequirements
from services.api.meta import Document
from services.api.metrics.usage import memory_used
from services.api.quantity import amount, format_amount, units

ORDER = ("memory", "cpu")
POD = ""
"""The pod's own cgroup, among the names of containers."""
FAILS_ANNOTATION = "keplab.dev/resize-fails"


class Call(msgspec.Struct, frozen=True):
    """A runtime call that sets one resource of one container, or of the pod (`POD`), to the allocated value."""

    resource: str
    container: str


def plan(actual: PodResources, allocated: PodResources, running: Iterable[str]) -> list[Call]:
    """Return the calls that lead from `actual` to `allocated`, in order; `running`: containers to be called."""
    names = list(running)
    calls: list[Call] = []
    for resource in ORDER:
        changed = [name for name in names if _differs(actual, allocated, name, resource)]
        smaller = [name for name in changed if _is_smaller(actual.of(name), allocated.of(name), resource)]
        level: list[str] = []
        if allocated.level is not None and actual.level is not None:
            level = [POD] if _value(actual.level, resource) != _value(allocated.level, resource) else []
        lowers = bool(level) and _is_smaller(actual.level, allocated.level, resource)
        order = [*([] if lowers else level), *smaller, *(level if lowers else [])]
        order += [name for name in changed if name not in smaller]
        calls += [Call(resource, name) for name in order]
    return calls


def resources_after_call(actual: PodResources, allocated: PodResources, call: Call) -> PodResources:
    """Return the size that runs after the call."""
    if call.container == POD:
        assert allocated.level is not None
        return msgspec.structs.replace(actual, level=_with(actual.level, allocated.level, call.resource))
    size = _with(actual.of(call.container), allocated.of(call.container), call.resource)
    return msgspec.structs.replace(actual, containers={**actual.containers, call.container: size})


def resources_after_restart(actual: PodResources, allocated: PodResources, container: str) -> PodResources:
    """Return the size that runs after a container was started anew."""
    return msgspec.structs.replace(actual, containers={**actual.containers, container: allocated.of(container)})


def _with(old: ResourceRequirements | None, new: ResourceRequirements, resource: str) -> ResourceRequirements:
    old = old or ResourceRequirements()

    def merge(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
        rest = {name: value for name, value in before.items() if name != resource}
        return {**rest, resource: after[resource]} if resource in after else rest

    return ResourceRequirements(merge(old.requests, new.requests), merge(old.limits, new.limits))


def _value(resources: ResourceRequirements, resource: str) -> tuple[int | None, int | None]:
    """Return request and limit as numbers, None where there is none."""
    request, limit = resources.requests.get(resource), resources.limits.get(resource)
    return (None if request is None else amount(resource, request), None if limit is None else amount(resource, limit))


def _differs(actual: PodResources, allocated: PodResources, name: str, resource: str) -> bool:
    return _value(actual.of(name), resource) != _value(allocated.of(name), resource)


def _is_smaller(old: ResourceRequirements | None, new: ResourceRequirements | None, resource: str) -> bool:
    """Whether the limit goes down, or, where it stays, the request does."""
    if old is None or new is None:
        return False
    (old_request, old_limit), (new_request, new_limit) = _value(old, resource), _value(new, resource)
    if new_limit != old_limit:
        return new_limit is not None and (old_limit is None or new_limit < old_limit)
    return (new_request or 0) < (old_request or 0)


def must_restart(container: Container, actual: PodResources, allocated: PodResources) -> bool:
    """Whether the change of a resource requires a restart of the container.

    A change of the pod's limit counts for a container without a limit of its own (KEP-5419).
    """
    name = container.name
    for policy in container.resize_policy:
        resource = policy.resource_name
        if policy.restart_policy != "RestartContainer" or resource not in ORDER:
            continue
        limits = [each.limits_of(name).get(resource) for each in (actual, allocated)]
        numbers = [None if text is None else amount(resource, text) for text in limits]
        if numbers[0] != numbers[1] or _differs(actual, allocated, name, resource):
            return True
    return False


def memory_in_use(pod: KubeletPod, container: str, age_s: float) -> int:
    """Return the bytes that a container of this age uses: by its curves, or else by the annotation."""
    return usage.used_amounts(pod, container, age_s).get("memory", memory_used(pod.metadata.annotations, container))


def failing_calls(pod: KubeletPod) -> int:
    """Return how many calls to the runtime are to fail."""
    text = pod.metadata.annotations.get(FAILS_ANNOTATION, "")
    return int(text) if text.isdigit() and len(text) < 10 else 0


def memory_error(actual: PodResources, allocated: PodResources, used: Mapping[str, int]) -> str:
    """Return why memory limits cannot be lowered now; "" when they can be.

    More is in use than the new limit. `used`: bytes in use by running containers that are not to be restarted.
    """
    problems: list[str] = []
    old, new = _pod_limit(actual), _pod_limit(allocated)
    if new is not None and (old is None or new < old) and sum(used.values()) > new:
        problems.append(f"attempting to set pod memory limit ({new}) below current usage ({sum(used.values())})")
    for name in used:
        before, after = _memory_limit(actual, name), _memory_limit(allocated, name)
        if after is not None and (before is None or after < before) and used[name] > after:
            problems.append(
                f'attempting to set container "{name}" memory limit ({after}) below current usage ({used[name]})'
            )
    if not problems:
        return ""
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return f"cannot decrease memory limits: {text}"


def _memory_limit(resources: PodResources, name: str) -> int | None:
    text = resources.of(name).limits.get("memory")
    return None if text is None else units(text)


def _pod_limit(resources: PodResources) -> int | None:
    """Return the memory limit of the pod: its own, or its containers' sum when all of them have one."""
    if resources.level is not None and "memory" in resources.level.limits:
        return units(resources.level.limits["memory"])
    limits = [_memory_limit(resources, name) for name in resources.lasting]
    return None if None in limits else sum(limit for limit in limits if limit is not None)


def size_text(pod: KubeletPod, resources: PodResources, generation: int, error: str = "") -> str:
    """Return the size as JSON, as the events of a resize carry it."""

    def container_sizes(containers: tuple[Container, ...]) -> list[Document]:
        return [
            {"name": c.name, "resources": requirements(resources.of(c.name))}
            for c in containers
            if c.name in resources.containers
        ]

    body: Document = {}
    if inits := container_sizes(pod.spec.init_containers):
        body["initContainers"] = inits
    body["containers"] = container_sizes(pod.spec.containers)
    body["generation"] = generation
    if error:
        body["error"] = error
    return msgspec.json.encode(body).decode()


def requirements(resources: ResourceRequirements) -> Document:
    """Return the document of requests and limits, without empty parts."""
    document: Document = {}
    if resources.limits:
        document["limits"] = resources.limits
    if resources.requests:
        document["requests"] = resources.requests
    return document


def level_of(resources: PodResources) -> ResourceRequirements:
    """Return the pod's own resources; a missing request is the sum of its containers' requests (KEP-5419)."""
    level = resources.level or ResourceRequirements()
    requests = dict(level.requests)
    for name in ORDER:
        asked = [each.requests[name] for each in resources.lasting.values() if name in each.requests]
        if name not in requests and asked:
            requests[name] = format_amount(name, sum(amount(name, text) for text in asked))
    return ResourceRequirements(requests, level.limits)
