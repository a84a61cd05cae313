"""Rules of unbinding shared by kubelet, API server, controller and auditor: names, the request's id, allowed
callers.

Source: kubelet-unbinding 4.2 to 4.4; guarantees X-UB1, X-UB5.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from services.api.identity import Identity
from services.api.switches import switch
from services.api.times import parse_time

UNBINDER: Final = Identity("system:pod-unbinder")
"""Identity of the central controller, if there is one that may unbind."""
REQUESTED: Final = "UnbindRequested"
"""Condition for `unbind.api=condition`. True: the kubelet asks for the unbind, with its reason; False: the pod
stays bound.
"""
DECAY_S: Final = 600.0
"""Seconds without an unbind after which one less counts (kubelet-unbinding 9)."""
BLOCKED: Final = "UnbindBlocked"
"""Condition. True: the pod cannot be unbound and waits on its node (`unbind.fallback=hold`)."""

UNSUPPORTED_REASONS: Final = (
    "SysctlForbidden", "AppArmor", "PodFeatureUnsupported", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
    "SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "InitContainerRestartPolicyForbidden",
)  # fmt: skip
"""Reasons of features that the node lacks for good: it is excluded for the longest time at once
(kubelet-unbinding 7.3).
"""
REASONS: Final = frozenset((
    *UNSUPPORTED_REASONS, "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "NodeAffinity",
    "NodeName", "NodePorts", "TaintToleration", "NodeUnschedulable", "UnexpectedPredicateFailureType",
    "NodeShutdown", "Evicted", "VolumeAttachmentLimitExceeded", "UnknownReason",
    "FailedPrepareDynamicResources", "FailedCreatePodSandBox", "FailedMount", "RunContainerError",
))  # fmt: skip
"""Reasons that may be sent (kubelet-unbinding 6.1), besides every `OutOf<resource>`."""
_OUT_OF: Final = re.compile(r"OutOf[A-Za-z0-9./_-]{1,253}")


def may_be_sent(reason: str) -> bool:
    """Whether a pod may be unbound for that reason."""
    return reason in REASONS or _OUT_OF.fullmatch(reason) is not None


@dataclass(frozen=True)
class UnbindSwitches:
    """Switches of unbinding that all sides share: the form of an unbind, the allowed callers, and the count of
    attempts.
    """

    api: str = switch("unbind.api")
    callers: str = switch("authz.unbind_callers")
    start_fence: bool = switch("kubelet.start_fence")
    attempt_decay: bool = switch("unbind.attempt_decay")

    @property
    def spelling(self) -> tuple[str, str]:
        """Verb and subresource of a kubelet's unbind (4.2); the body is the same in both forms."""
        return ("delete", "binding") if self.api == "binding_delete" else ("create", "unbind")

    @property
    def unbinder_may(self) -> bool:
        """Whether the central controller may unbind: by its switch, or because `unbind.api` has no other form."""
        return self.callers != "kubelet" or self.api == "condition"

    @property
    def nodes_may(self) -> bool:
        """Whether kubelets may unbind their own pods themselves."""
        return self.callers != "controller" and self.api != "condition"

    @property
    def has_start_fence(self) -> bool:
        """Whether the first container waits for an acknowledged `startTime`, after which the pod is not unbound.

        If other callers than the pod's own kubelet may unbind, nothing else keeps a pod from running twice (4.4).
        """
        return self.start_fence or self.unbinder_may

    def count_attempts(self, count: int, times: Sequence[str | None], wall_s: float) -> int:
        """Return how many of a pod's unbinds count against `unbind.max_attempts`.

        `times`: times of the unbinds, newest first, as far as the history goes. With `unbind.attempt_decay` one is
        forgiven for every ten minutes without another. `unbindCount` itself never falls: it numbers the bindings (I3).
        """
        if not self.attempt_decay:
            return count
        counted, last_s = count - len(times), 0.0
        for text in reversed(times):
            at_s = parse_time(text) if text else last_s
            counted, last_s = _decay(counted, at_s - last_s) + 1, at_s
        return _decay(counted, wall_s - last_s)


def request_id(uid: str, generation: int, node: str) -> str:
    """Return the only legal `requestID` of an unbind (X-UB5)."""
    return hashlib.sha256(b"\0".join((uid.encode(), str(generation).encode(), node.encode()))).hexdigest()[:32]


def _decay(counted: int, seconds: float) -> int:
    return max(0, counted - max(0, int(seconds / DECAY_S)))


def is_reason(pattern: str) -> bool:
    """Whether some node may unbind a pod for a reason that matches the pattern; globs allowed (`unbind.reasons`)."""
    if pattern == "all" or pattern.startswith("OutOf"):
        return True
    return any(fnmatchcase(reason, pattern) for reason in (*sorted(REASONS), "OutOfcpu"))
