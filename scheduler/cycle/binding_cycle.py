"""The binding cycle: make a choice true, and find the way back when it cannot be made so.

Pure parts: what the answer to a bind means, and what a live read says about a bind whose answer was lost.
`binder` makes the calls. Source: scheduler-queue-and-cycles 4; guarantees K1, K2, C6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import msgspec

from scheduler.cache.node_info import PodInfo
from services.api.errors import ApiError
from services.api.meta import Document

ExtenderBind = Callable[[str], Awaitable[None]]
"""Has an extender bind a pod to the named node. Raises: UnknownOutcome."""


class Outcome(StrEnum):
    """How a bind ended; the values are those of the event log."""

    OK = "ok"
    CONFLICT = "conflict"
    ERROR = "error"
    UNKNOWN = "unknown"


class BindResult(msgspec.Struct, frozen=True):
    """`resolved_how`: reply, watch or read. `message`: why it failed."""

    outcome: Outcome
    resolved_how: str = "reply"
    message: str = ""
    rv: int | None = None


def refused(error: ApiError) -> BindResult:
    """Return what a definite refusal means."""
    outcome = Outcome.CONFLICT if error.code == 409 else Outcome.ERROR
    return BindResult(outcome, message=f'running Bind plugin "DefaultBinder": {error.message}')


def read_back(pod: PodInfo, node_name: str, live: Document | None) -> BindResult:
    """Return what a consistent read says of a bind without answer.

    Bound where we wanted, at the unbind count we knew: it took effect. Anything else is definite too: the
    read shows that the pod is not ours there now, so its capacity may be freed (K2).
    """
    if live is None or live.get("metadata", {}).get("uid") != pod.uid:
        return BindResult(Outcome.ERROR, "read", "the pod is gone")
    spec: dict[str, Any] = live.get("spec") or {}
    found = str(spec.get("nodeName") or "")
    unbinds = int((live.get("status") or {}).get("unbindCount") or 0)
    rv = int(live["metadata"].get("resourceVersion") or 0)
    if found == node_name and unbinds == pod.unbind_count:
        return BindResult(Outcome.OK, "read", rv=rv)
    if found:
        return BindResult(Outcome.CONFLICT, "read", f"the pod is bound to {found}, not to {node_name}")
    if unbinds > pod.unbind_count:
        return BindResult(Outcome.CONFLICT, "read", f"the pod was unbound {unbinds} times, not {pod.unbind_count}")
    return BindResult(Outcome.ERROR, "read", f"the bind to {node_name} took no effect")
