"""`pods/unbind`: removes a pod that never ran from its node, and returns the same object to the scheduler.

Fourteen checks in the order of kubelet-unbinding 4.3, all on the current object inside the commit (X-UB6), then
one change. Each check is a function that raises or returns; `_checks` is their order.
"""

import math
from collections.abc import Callable
from typing import Any

from apiserver_fake.registry.errors import MODIFIED_TEXT, no_such_path
from apiserver_fake.registry.strategies.pod import transition
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.registry.subresources.binding import conflict
from apiserver_fake.registry.validation.formats import Cause, plain_text, required
from apiserver_fake.registry.validation.formats import invalid as wrong
from services.api.errors import Forbidden, Invalid, TooManyRequests, invalid
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document
from services.api.times import format_time
from services.api.unbind import (
    BLOCKED,
    REQUESTED,
    UNBINDER,
    UNSUPPORTED_REASONS,
    UnbindSwitches,
    may_be_sent,
    request_id,
)

HISTORY_MAX, MESSAGE_KEPT_MAX, MESSAGE_MAX = 8, 256, 1024
CAPABILITY, CAPABLE = "emulation/unbind", "v1"
SCHEDULER_NAMES = "emulation/scheduler-names"
"""Annotation of a scheduler's lease: the comma-separated profiles it runs. `CAPABILITY`, above: it supports
unbinding.
"""


def _check_first(stored: Document | None, body: Document, ctx: WriteContext) -> None:
    if not ctx.switches.pod_unbinding or ctx.switches.unbind_api == "none":
        raise no_such_path()
    _check_caller(stored, body, ctx)
    _check_form(body, ctx)


def _unbind(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    _check_uid(stored, body, ctx)
    if _entry(stored, body["requestID"]) is not None:
        return SubresourceResult(response=_answer_again(stored, ctx))
    for check in _CHECKS:
        check(stored, body, ctx)
    if not ctx.request.dry_run:
        for bucket, rate_per_s, burst in _buckets(body["nodeName"], ctx):
            token_bucket = ctx.memory.bucket(bucket, burst, ctx.now_s)
            token_bucket.wait_s(rate_per_s, burst, ctx.now_s)
            token_bucket.level -= 1
    return SubresourceResult(document=_unbound(stored, body, ctx))


def _check_caller(stored: Document | None, body: Document, ctx: WriteContext) -> None:
    """Check 1: the pod is bound to the calling node, or this is a retry of that node's own unbind."""
    node = ctx.identity.node
    if node:
        if body.get("nodeName") == node and stored is not None and ctx.register.of(UnbindSwitches).nodes_may:
            entry = _entry(stored, body.get("requestID"))
            if (stored.get("spec") or {}).get("nodeName") == node or (entry and entry.get("nodeName") == node):
                return
        raise Forbidden(f'node "{node}" can only unbind pods with spec.nodeName set to itself')
    if ctx.identity.user == UNBINDER.user and ctx.register.of(UnbindSwitches).unbinder_may:
        return
    raise Forbidden(f'pods "{ctx.request.name}" is forbidden: User "{ctx.identity.user}" cannot unbind pods')


def _check_form(body: Document, ctx: WriteContext) -> None:
    """Refuse a body that no sender would write, before anything of the pod is compared (X-UB5)."""
    causes: list[Cause] = []
    meta = body.get("metadata")
    uid = meta.get("uid") if isinstance(meta, dict) else None
    if not isinstance(uid, str) or not uid:
        causes.append(required("metadata.uid"))
    for name in ("nodeName", "requestID", "reason"):
        if not isinstance(body.get(name), str) or not body[name]:
            causes.append(required(name))
    generation = body.get("bindingGeneration")
    if not isinstance(generation, int) or isinstance(generation, bool) or generation < 0:
        causes.append(required("bindingGeneration"))
    message = body.get("message") or ""
    if not isinstance(message, str) or len(message) > MESSAGE_MAX:
        causes.append(wrong("message", str(message)[:64], f"must be a text of at most {MESSAGE_MAX} characters"))
    else:
        causes += plain_text("message", message)
    causes += _check_exclude(body.get("exclude"))
    if not causes:
        if not may_be_sent(body["reason"]):
            causes.append(wrong("reason", body["reason"], "not a reason for which a pod may be unbound"))
        if body["requestID"] != request_id(str(uid), int(body["bindingGeneration"]), body["nodeName"]):
            text = "must be the hash of uid, bindingGeneration and nodeName"
            causes.append(wrong("requestID", body["requestID"], text))
    if causes:
        raise invalid("PodUnbind", ctx.request.name, causes)


def _check_exclude(exclude: Any) -> list[Cause]:
    seconds = exclude.get("seconds") if isinstance(exclude, dict) else exclude
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if exclude is None or (isinstance(exclude, dict) and (seconds is None or is_number)):
        return []
    return [wrong("exclude.seconds", str(seconds)[:64], "must be a number")]


def _check_uid(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 2: it is the pod that was meant."""
    uid, record = body["metadata"]["uid"], stored["metadata"]["uid"]
    if uid != record or (ctx.request.uid and ctx.request.uid != record):
        raise _refusal(stored, "UIDMismatch", f"the UID asked for ({uid}) does not match the UID in record ({record})")


def _entry(stored: Document, identifier: object) -> Document | None:
    """Check 3: the history's entry of that request, if it was carried out before."""
    history: list[Document] = (stored.get("status") or {}).get("unbindHistory") or []
    return next((entry for entry in history if entry.get("requestID") == identifier), None)


def _answer_again(stored: Document, ctx: WriteContext) -> Document | None:
    node = ctx.identity.node
    if not node or (stored.get("spec") or {}).get("nodeName") == node:
        return stored
    meta = stored["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion")},
        "status": {"unbindCount": (stored.get("status") or {}).get("unbindCount") or 0},
    }


def _check_version(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 4: the pod was not written since, where the caller cares."""
    version = str(body["metadata"].get("resourceVersion") or "") or ctx.request.resource_version
    if ctx.switches.unbind_fence == "resourceVersion" and not version:
        raise _unprocessable(stored, "Invalid", "metadata.resourceVersion is required by unbind.fence=resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise _refusal(stored, "Conflict", MODIFIED_TEXT)


def _check_binding(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Checks 5 to 8: it is bound there by this binding, not being deleted, and pending: the phase never goes back."""
    status, bound = stored.get("status") or {}, (stored.get("spec") or {}).get("nodeName") or ""
    if not bound:
        raise _refusal(stored, "NotBound", "the pod is not bound to a node")
    if bound != body["nodeName"]:
        raise _refusal(stored, "BoundElsewhere", f"the pod is not bound to node {body['nodeName']}")
    if body["bindingGeneration"] != (current := status.get("bindingGeneration") or 0):
        why = f"binding generation {body['bindingGeneration']} is not the current one, {current}"
        raise _refusal(stored, "StaleBinding", why)
    if stored["metadata"].get("deletionTimestamp"):
        raise _refusal(stored, "Terminating", "the pod is being deleted")
    if (phase := status.get("phase") or "Pending") != "Pending":
        raise _unprocessable(stored, "PhaseNotPending", f"the pod's phase is {phase}")


def _check_not_started(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 9: no container of it has ever run."""
    status = stored.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(field) or ():
            state = container.get("state") or {}
            if (
                state.get("running") is not None
                or state.get("terminated") is not None
                or container.get("started") is True
                or (container.get("restartCount") or 0) > 0
            ):
                raise _refusal(stored, "AlreadyStarted", f"container {container.get('name')} has started")
    if ctx.register.of(UnbindSwitches).has_start_fence and status.get("startTime"):
        raise _refusal(stored, "AlreadyStarted", "the kubelet announced the start of the pod")


def _check_not_exempt(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 10: the scheduler chose the node, and would choose another."""
    meta = stored["metadata"]
    if MIRROR_ANNOTATION in (meta.get("annotations") or {}):
        raise _unprocessable(stored, "Exempt", "mirror pods belong to their node")
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "DaemonSet":
            raise _unprocessable(stored, "Exempt", "pods of a DaemonSet belong to their node")
    generation = (stored.get("status") or {}).get("bindingGeneration") or 0
    if generation == 0 and ctx.switches.unbind_user_bound != "allow":
        raise _unprocessable(stored, "Exempt", "the pod was created with its node and not bound by a scheduler")


def _check_gang(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 10, too: a member of a group whose siblings run would break the gang (7.4, `unbind.gang=refuse`)."""
    group = _group_of(stored)
    if not group or ctx.switches.unbind_gang != "refuse":
        return
    for other in ctx.list("pods", stored["metadata"].get("namespace") or ""):
        is_sibling = _group_of(other) == group and other["metadata"]["uid"] != stored["metadata"]["uid"]
        if is_sibling and (other.get("status") or {}).get("phase") == "Running":
            name = other["metadata"]["name"]
            raise _unprocessable(stored, "Exempt", f"{name} of the same pod group {group} runs already")


def _group_of(pod: Document) -> str:
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")


def _check_limit(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 11: it has not been sent around too often."""
    status = stored.get("status") or {}
    count, most = status.get("unbindCount") or 0, ctx.switches.unbind_max_attempts
    times = [entry.get("time") for entry in status.get("unbindHistory") or ()]
    if ctx.register.of(UnbindSwitches).count_attempts(count, times, ctx.wall_s) >= most:
        raise _unprocessable(stored, "LimitReached", f"the pod was unbound {count} times, at most {most} are allowed")


def _buckets(node: str, ctx: WriteContext) -> list[tuple[str, float, float]]:
    """Return `(name, tokens a second, burst)` of each limit; with a rate alone, the burst is a minute's worth."""
    switches, namespace = ctx.switches, ctx.request.namespace
    per_namespace, per_cluster = switches.unbind_rate_namespace_per_min, switches.unbind_rate_cluster_per_min
    return [
        (f"unbind/node/{node}", switches.unbind_rate_node_per_min / 60, switches.unbind_rate_node_burst),
        (f"unbind/namespace/{namespace}", per_namespace / 60, max(1.0, per_namespace)),
        ("unbind/cluster", per_cluster / 60, max(1.0, per_cluster)),
    ]


def _check_rate(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 12: unbinding is for exceptions. Only unbinds that happen are counted."""
    for bucket, rate_per_s, burst in _buckets(body["nodeName"], ctx):
        wait_s = ctx.memory.bucket(bucket, burst, ctx.now_s).wait_s(rate_per_s, burst, ctx.now_s)
        if wait_s > 0:
            raise TooManyRequests(
                f"too many unbinds: {bucket.removeprefix('unbind/')} allows {rate_per_s * 60:g} a minute",
                retry_after_s=max(1, math.ceil(wait_s)),
            )


def _check_session(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 13: the caller is the kubelet that runs there now, not one that was restarted since (4.5)."""
    if not ctx.identity.node or ctx.switches.unbind_fence != "session":
        return
    node = ctx.lookup("nodes", "", body["nodeName"])
    current = (((node or {}).get("status") or {}).get("nodeInfo") or {}).get("kubeletSession") or ""
    if not current or body.get("kubeletSession") != current:
        raise _refusal(
            stored, "StaleSession", f"the request is not of the current session of the kubelet of {body['nodeName']}"
        )


def _check_scheduler(stored: Document, body: Document, ctx: WriteContext) -> None:
    """Check 14: a live scheduler of the pod's profile can take it back (4.6)."""
    if not ctx.switches.unbind_require_scheduler_capability:
        return
    wanted = (stored.get("spec") or {}).get("schedulerName") or "default-scheduler"
    for lease in ctx.list("leases.coordination.k8s.io", "kube-system"):
        if _is_capable(lease, wanted) and _is_live(lease, ctx):
            return
    raise _refusal(stored, "SchedulerNotCapable", f"no live scheduler named {wanted} advertises {CAPABILITY}={CAPABLE}")


def _is_capable(lease: Document, wanted: str) -> bool:
    annotations = lease["metadata"].get("annotations") or {}
    if annotations.get(CAPABILITY) != CAPABLE:
        return False
    names = annotations.get(SCHEDULER_NAMES)
    if names is not None:
        return wanted in [each.strip() for each in names.split(",")]
    return bool(lease["metadata"]["name"] in (wanted, {"default-scheduler": "kube-scheduler"}.get(wanted)))


def _is_live(lease: Document, ctx: WriteContext) -> bool:
    meta, spec = lease["metadata"], lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return False
    # After a restart of this server a holder has one whole term to renew before it counts as gone.
    seen_s = ctx.memory.renewed_s.setdefault(f"{meta.get('namespace', '')}/{meta['name']}", ctx.now_s)
    return bool(ctx.now_s - seen_s <= (spec.get("leaseDurationSeconds") or 15))


_CHECKS: tuple[Callable[[Document, Document, WriteContext], None], ...] = (
    _check_version,  # 4
    _check_binding,  # 5 to 8
    _check_not_started,  # 9
    _check_not_exempt,  # 10
    _check_gang,  # 10
    _check_limit,  # 11
    _check_rate,  # 12
    _check_session,  # 13
    _check_scheduler,  # 14
)


_CLEARED = (
    "reason", "message", "hostIP", "hostIPs", "podIP", "podIPs", "startTime", "containerStatuses",
    "initContainerStatuses", "ephemeralContainerStatuses", "resize", "allocatedResources", "resources",
    "nominatedNodeName", "observedGeneration", "bindingAdditions",
)  # fmt: skip
_OF_THE_NODE = (
    "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers", "PodScheduled", REQUESTED, BLOCKED,
)  # fmt: skip


def _unbound(stored: Document, body: Document, ctx: WriteContext) -> Document:
    node, reason = body["nodeName"], body["reason"]
    before, meta = stored.get("status") or {}, next_generation(stored)["metadata"]
    for field, keys in (before.get("bindingAdditions") or {}).items():
        left = {key: value for key, value in (meta.get(field) or {}).items() if key not in keys}
        if left:
            meta[field] = left
        else:
            meta.pop(field, None)
    status = {name: value for name, value in before.items() if name not in _CLEARED}
    history = list(before.get("unbindHistory") or [])
    entry: Document = {
        "requestID": body["requestID"],
        "nodeName": node,
        "bindingGeneration": body["bindingGeneration"],
        "reason": reason,
        "message": (body.get("message") or "")[:MESSAGE_KEPT_MAX],
        "time": format_time(ctx.wall_s),
        "excludeSeconds": _exclude_s(body, history, ctx),
    }
    status["phase"] = "Pending"
    status["unbindCount"] = (before.get("unbindCount") or 0) + 1
    status["unbindHistory"] = [entry, *history][:HISTORY_MAX]
    kept = [each for each in before.get("conditions") or [] if each.get("type") not in _OF_THE_NODE]
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unbound",
        "message": f"unbound from {node}: {reason}",
        "observedGeneration": meta["generation"],
    }
    status["conditions"] = transition(kept, scheduled, ctx.wall_s)
    spec = {name: value for name, value in stored["spec"].items() if name != "nodeName"}
    return {**stored, "metadata": meta, "spec": spec, "status": status}


def _exclude_s(body: Document, history: list[Document], ctx: WriteContext) -> int:
    """Return for how long the node is excluded: doubling with each of its rejections, up to the cap (7.3)."""
    most = ctx.switches.exclusion_max_s
    asked = (body.get("exclude") or {}).get("seconds")
    if asked is not None:
        return int(min(max(0.0, asked), most))
    if body["reason"] in UNSUPPORTED_REASONS:
        return int(most)
    earlier = sum(entry.get("nodeName") == body["nodeName"] for entry in history)
    return int(min(ctx.switches.exclusion_base_s * 2**earlier, most))


def _refusal(stored: Document, reason: str, why: str) -> Exception:
    return conflict(stored["metadata"]["name"], why, subresource="unbind", reason=reason)


def _unprocessable(stored: Document, reason: str, why: str) -> Invalid:
    name = stored["metadata"]["name"]
    return Invalid(
        f'pods "{name}" cannot be unbound: {why}', reason=reason, details={"name": name, "kind": "pods/unbind"}
    )


SUBRESOURCES = (
    Subresource("pods", "unbind", ("create",), _unbind, check_first=_check_first, body=("v1", "PodUnbind")),
)
