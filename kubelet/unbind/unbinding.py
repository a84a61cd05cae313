"""The unbind of one rejected pod: return it to the scheduler, or fall back. A pure machine for one binding.

While it works nothing may write the pod's status. Every answer has one meaning (table of kubelet-unbinding
6.2); waiting times come back as values.
"""

from enum import Enum, auto
from fnmatch import fnmatchcase

import msgspec

from kubelet.view import KubeletPod, WorkerKey, is_daemon, is_static
from services.api.meta import Document
from services.api.unbind import request_id

TRY_TIMEOUT_S = 10.0
RETRY_BASE_S = 1.0
RETRY_MAX_S = 30.0
HOLD_PERIOD_S = 60.0
ABSENT_S = 600.0
"""Seconds after which a missing endpoint is tried again (kubelet-unbinding 4.6)."""
MESSAGE_MAX = 1024
EXCLUDE_S = 86_400
"""Seconds of exclusion to request where the node will never fit; the server caps it at `exclusion.max_s`."""

EXCLUDE_MAX_REASONS = frozenset(
    {
        "SysctlForbidden", "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
        "SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
    }
)  # fmt: skip
"""Rejection reasons for which the node will never be able to run the pod."""

OPT_IN_REASONS = frozenset({"FailedCreatePodSandBox", "FailedMount", "RunContainerError"})
"""Reasons of repeated start failures: for these a pod is unbound only if the switch names them."""

_ENABLED = EXCLUDE_MAX_REASONS | {
    "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "NodeAffinity", "NodeName",
    "NodePorts", "TaintToleration", "NodeShutdown", "Evicted", "FailedPrepareDynamicResources",
}  # fmt: skip


def is_enabled(reason: str, reasons: tuple[str, ...] = ()) -> bool:
    """Whether a rejection for this reason may lead to an unbind (kubelet-unbinding 6.1).

    `reasons`: patterns (switch unbind.reasons); if empty, or if `all` is among them, all reasons of 6.1 that
    are on by default.
    """
    if reason in OPT_IN_REASONS:
        return any(fnmatchcase(reason, each) for each in reasons)
    if reasons and "all" not in reasons and not any(fnmatchcase(reason, each) for each in reasons):
        return False
    return reason.startswith("OutOf") or reason in _ENABLED


def may_unbind(pod: KubeletPod, reason: str, *, user_bound: str = "exempt", reasons: tuple[str, ...] = ()) -> bool:
    """Whether this pod may be unbound: bound by a scheduler, and not a static, mirror or DaemonSet pod."""
    if not is_enabled(reason, reasons) or is_static(pod) or is_daemon(pod):
        return False
    return pod.status.binding_generation > 0 or user_bound == "allow"


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
        "requestID": request_id(key.uid, key.generation, node),
        "reason": reason,
        "message": message[:MESSAGE_MAX],
    }
    if reason in EXCLUDE_MAX_REASONS:
        body["exclude"] = {"seconds": EXCLUDE_S}
    return body


def pending_status(pod: KubeletPod, condition: str, reason: str, message: str, since: str) -> Document:
    """Return the status of a pod without running containers, with one True condition that has the reason."""
    return {
        "phase": "Pending",
        "observedGeneration": pod.metadata.generation,
        "conditions": [
            {"type": condition, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
        ],
    }


class UnbindAnswer(msgspec.Struct, frozen=True):
    """The API server's answer to an unbind. `code` 0: no answer.

    `names_pod`: whether a 404 is about the pod; otherwise the endpoint is missing. `jitter` in [0, 1) spreads
    retries by 20 %.
    """

    code: int
    reason: str = ""
    retry_after_s: float | None = None
    names_pod: bool = True
    jitter: float = 0.5


class Next(Enum):
    """The next steps that need no value."""

    CALL = auto()
    """Send the request."""
    DONE = auto()
    """The pod has left the node: the scheduler has it again."""
    GONE = auto()
    """The pod had left the node before."""
    CONFIRM = auto()
    """The pod is being deleted: go on with its normal termination."""
    RESUME = auto()
    """The server says that the pod runs here: treat it as any other pod."""
    READ_POD = auto()
    """Read the pod, to learn whether it is still bound here (X-UB4)."""
    READ_SESSION = auto()
    """Read the Node, to learn whether the session is still this kubelet's."""
    ABSENT = auto()
    """The server has no such endpoint: reject as without unbinding."""


class Wait(msgspec.Struct, frozen=True):
    """The step to wait and look again at `until_s`."""

    until_s: float


class FallBack(msgspec.Struct, frozen=True):
    """The step to fall back: the pod cannot be unbound; `code` is the reason."""

    code: str


Step = Next | Wait | FallBack

_BY_CODE = {200: Next.DONE, 201: Next.DONE, 403: Next.READ_POD, 405: Next.ABSENT}
"""Steps by status code. 405: a server that knows the path but not this verb."""
_CONFLICTS = {
    **dict.fromkeys(("UIDMismatch", "NotBound", "BoundElsewhere", "StaleBinding"), Next.GONE),
    "Terminating": Next.CONFIRM,
    "AlreadyStarted": Next.RESUME,
}


class Unbinding:
    """The unbind of one binding.

    Invariant: at most one request is in flight; after DONE, GONE, CONFIRM, RESUME, ABSENT or a FallBack the
    machine is not called again.
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
        """Return CALL, unless a request is in flight, it is too early, or the time is over."""
        if self.is_calling:
            return Wait(now + TRY_TIMEOUT_S)
        if now >= self.deadline_s:
            return FallBack("DeadlineExceeded")
        if now < self.retry_at_s - 1e-6:
            return Wait(self.retry_at_s)
        self.is_calling = True
        return Next.CALL

    def answer(self, answer: UnbindAnswer, now: float) -> Step:
        """Return the step that an answer requires."""
        self.is_calling = False
        code, reason = answer.code, answer.reason
        if code in _BY_CODE:
            return _BY_CODE[code]
        if code == 409 and reason in _CONFLICTS:
            return _CONFLICTS[reason]
        match code:
            case 404:
                return Next.GONE if answer.names_pod else Next.ABSENT
            case 409 if reason == "StaleSession" and not self._session_checked:
                return Next.READ_SESSION
            case 409 if reason in ("StaleSession", "SchedulerNotCapable"):
                # SchedulerNotCapable: none could take the pod back (kubelet-unbinding 4.6), as if the gate were off.
                return FallBack(reason)
            case 422:
                return FallBack(reason)
            case 429 if answer.retry_after_s is not None:
                return self._wait(now, answer.retry_after_s)
        delay_s = min(RETRY_BASE_S * 2**self.tries, RETRY_MAX_S) * (0.8 + 0.4 * answer.jitter)
        self.tries += 1
        return self._wait(now, delay_s)

    def on_requested(self, now: float) -> Step:
        """Return the wait for the controller, which was asked to unbind the pod; fall back when the time is over."""
        return Wait(self.deadline_s) if now < self.deadline_s else FallBack("DeadlineExceeded")

    def _wait(self, now: float, delay_s: float) -> Step:
        self.retry_at_s = min(now + delay_s, self.deadline_s)
        return Wait(self.retry_at_s)

    def pod_read(self, still_mine: bool) -> Step:
        """Return the step after a 403 and a read: fall back only if the pod is still bound here at this generation."""
        return FallBack("Forbidden") if still_mine else Next.GONE

    def session_read(self, now: float) -> Step:
        """Try once more, because the session is still ours."""
        self._session_checked = True
        return self.call(now)
