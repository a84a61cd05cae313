"""Rejected here: give the pod back to the scheduler, or fall back. A pure machine for one binding.

While it works nothing may write the pod's status. Every answer has one meaning (table of
kubelet-unbinding 6.2); waiting times come back as values.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from kubelet.view import KubeletPod, WorkerKey, is_daemon, is_static
from services.api import unbind as agreed
from services.api.meta import Document

TRY_TIMEOUT_S = 10.0
RETRY_BASE_S = 1.0
RETRY_MAX_S = 30.0
HOLD_PERIOD_S = 60.0
ABSENT_S = 600.0
"""An absent endpoint is looked for again after this long (kubelet-unbinding 4.6)."""
MESSAGE_MAX = 1024
EXCLUDE_S = 86_400
"""Asked for where the node will never fit; the server caps it at `exclusion.max_s`."""

EXCLUDE_MAX_REASONS = frozenset(
    {
        "SysctlForbidden", "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
        "SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
    }
)  # fmt: skip
"""The node will never be able to run such a pod."""

OPT_IN_REASONS = frozenset({"FailedCreatePodSandBox", "FailedMount", "RunContainerError"})
"""Stages of a start that fail over and over: for these a pod is unbound only where the switch names them."""

_ENABLED = EXCLUDE_MAX_REASONS | {
    "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "NodeAffinity", "NodeName",
    "NodePorts", "TaintToleration", "NodeShutdown", "Evicted", "FailedPrepareDynamicResources",
}  # fmt: skip


def is_enabled(reason: str, reasons: tuple[str, ...] = ()) -> bool:
    """Whether a rejection for this reason may lead to an unbind (kubelet-unbinding 6.1).

    `reasons`: patterns (switch unbind.reasons); none of them, or `all` among them: all of 6.1 that are on by default.
    """
    if reason in OPT_IN_REASONS:
        return any(fnmatchcase(reason, each) for each in reasons)
    if reasons and "all" not in reasons and not any(fnmatchcase(reason, each) for each in reasons):
        return False
    return reason.startswith("OutOf") or reason in _ENABLED


def may_unbind(pod: KubeletPod, reason: str, *, user_bound: str = "exempt", reasons: tuple[str, ...] = ()) -> bool:
    """Whether this pod may be unbound: bound by a scheduler, not static, mirror or of a DaemonSet."""
    if not is_enabled(reason, reasons) or is_static(pod) or is_daemon(pod):
        return False
    return pod.status.binding_generation > 0 or user_bound == "allow"


def request_id(key: WorkerKey, node: str) -> str:
    """Return the id that names this unbind and no other (X-UB5)."""
    return agreed.request_id(key.uid, key.generation, node)


def unbind_body(
    pod: KubeletPod, key: WorkerKey, node: str, session: str, reason: str, message: str, *, fence: str
) -> Document:
    """Return the PodUnbind document."""
    metadata: Document = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": key.uid}
    if fence == "resourceVersion":
        metadata["resourceVersion"] = pod.metadata.resource_version
    body: Document = {
        "apiVersion": "v1",
        "kind": "PodUnbind",
        "metadata": metadata,
        "nodeName": node,
        "bindingGeneration": key.generation,
        "kubeletSession": session,
        "requestID": request_id(key, node),
        "reason": reason,
        "message": message[:MESSAGE_MAX],
    }
    if reason in EXCLUDE_MAX_REASONS:
        body["exclude"] = {"seconds": EXCLUDE_S}
    return body


def pending_status(pod: KubeletPod, condition: str, reason: str, message: str, since: str) -> Document:
    """Return the status of a pod of which nothing runs, with one condition that is True and says why."""
    return {
        "phase": "Pending",
        "observedGeneration": pod.metadata.generation,
        "conditions": [
            {
                "type": condition,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
            }
        ],
    }


class Call(msgspec.Struct, frozen=True):
    """Send the request."""


class Wait(msgspec.Struct, frozen=True):
    """Look again then."""

    until_s: float


class Forget(msgspec.Struct, frozen=True):
    """It is not ours any more. `is_done`: we gave it back."""

    is_done: bool


class Confirm(msgspec.Struct, frozen=True):
    """It is being deleted: go the normal way of termination."""


class Resume(msgspec.Struct, frozen=True):
    """The server says it runs here: treat it as any other pod."""


class ReadPod(msgspec.Struct, frozen=True):
    """Read our own pod, to learn whether it is still ours (X-UB4)."""


class ReadSession(msgspec.Struct, frozen=True):
    """Read our own Node, to learn whether the session is still ours."""


class Absent(msgspec.Struct, frozen=True):
    """The server has no such endpoint: reject as without unbinding."""


class FallBack(msgspec.Struct, frozen=True):
    """It cannot be unbound; `code` says why."""

    code: str


Step = Call | Wait | Forget | Confirm | Resume | ReadPod | ReadSession | Absent | FallBack

_GONE = ("UIDMismatch", "NotBound", "BoundElsewhere", "StaleBinding")


class Unbinding:
    """One binding being unbound.

    Invariant: at most one request is in flight; after Forget, Confirm, Resume, Absent or FallBack the
    machine is not asked again.
    """

    def __init__(self, pod: KubeletPod, reason: str, message: str, now: float, deadline_s: float) -> None:
        self.pod, self.reason, self.message = pod, reason, message
        self.started_s = now
        self.deadline_s = now + deadline_s
        self.torn_s: float | None = 0.0
        """How long the teardown took; 0: nothing had been set up, None: it goes on meanwhile."""
        self.tries = 0
        self.is_calling = False
        self._session_checked = False
        self.retry_at_s = now
        """Nothing is asked before that."""

    def call(self, now: float) -> Step:
        """Send now, unless a request is in flight or it is too early."""
        if self.is_calling:
            return Wait(now + TRY_TIMEOUT_S)
        if now >= self.deadline_s:
            return FallBack("DeadlineExceeded")
        if now < self.retry_at_s - 1e-6:
            return Wait(self.retry_at_s)
        self.is_calling = True
        return Call()

    def answer(
        self,
        code: int,
        reason: str,
        now: float,
        *,
        retry_after_s: float | None = None,
        names_pod: bool = True,
        jitter: float = 0.5,
    ) -> Step:
        """Return what an answer means. `code` 0: none came. `jitter` in [0, 1) spreads retries by 20 %.

        `names_pod`: whether a 404 speaks of the pod; otherwise the endpoint is missing.
        """
        self.is_calling = False
        match code:
            case 200 | 201:
                return Forget(is_done=True)
            case 404:
                return Forget(is_done=False) if names_pod else Absent()
            case 405:
                return Absent()  # a server that knows the path and not this use of it
            case 409 if reason in _GONE:
                return Forget(is_done=False)
            case 409 if reason == "Terminating":
                return Confirm()
            case 409 if reason == "AlreadyStarted":
                return Resume()
            case 409 if reason == "StaleSession":
                return ReadSession() if not self._session_checked else FallBack(reason)
            case 409 if reason == "SchedulerNotCapable":
                # No scheduler could take the pod back (kubelet-unbinding 4.6): as if the gate were off.
                return FallBack(reason)
            case 403:
                return ReadPod()
            case 422:
                return FallBack(reason)
            case 429 if retry_after_s is not None:
                return self._wait(now, retry_after_s)
        delay_s = min(RETRY_BASE_S * 2**self.tries, RETRY_MAX_S) * (0.8 + 0.4 * jitter)
        self.tries += 1
        return self._wait(now, delay_s)

    def asked(self, now: float) -> Step:
        """The controller was asked to unbind the pod: wait until it is gone, or the time is over."""
        return Wait(self.deadline_s) if now < self.deadline_s else FallBack("DeadlineExceeded")

    def _wait(self, now: float, delay_s: float) -> Step:
        if now + delay_s >= self.deadline_s:
            self.retry_at_s = self.deadline_s
            return Wait(self.deadline_s)
        self.retry_at_s = now + delay_s
        return Wait(self.retry_at_s)

    def pod_read(self, still_mine: bool) -> Step:
        """A 403 was followed by a read: fall back only for a pod that is still ours at this generation."""
        return FallBack("Forbidden") if still_mine else Forget(is_done=False)

    def session_read(self, now: float) -> Step:
        """The session is ours: try once more."""
        self._session_checked = True
        self.retry_at_s = now
        return self.call(now)
