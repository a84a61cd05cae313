"""What kubelet, API server, controller and auditor agree on about unbinding: names, the request's id, who may ask.

Source: kubelet-unbinding 4.2 to 4.4; guarantees X-UB1, X-UB5.
"""

from __future__ import annotations

import hashlib
from typing import Final

from services.api.identity import Identity
from services.api.switches import Switches

UNBINDER: Final = Identity("system:pod-unbinder")
"""The central controller, where one may unbind."""
REQUESTED: Final = "UnbindRequested"
"""With `unbind.api=condition`, True: the kubelet gives the pod back, and why; False: nobody will take it."""
BLOCKED: Final = "UnbindBlocked"
"""True: the pod cannot be given back, and waits on its node (`unbind.fallback=hold`)."""


def request_id(uid: str, generation: int, node: str) -> str:
    """Return the one legal `requestID` of an unbind (X-UB5)."""
    return hashlib.sha256(b"\0".join((uid.encode(), str(generation).encode(), node.encode()))).hexdigest()[:32]


def unbinder_may(switches: Switches) -> bool:
    """Whether the central controller may unbind: by its switch, or because no other form is there."""
    return switches.choice("authz.unbind_callers") != "kubelet" or switches.choice("unbind.api") == "condition"


def nodes_may(switches: Switches) -> bool:
    """Whether kubelets may unbind their own pods themselves."""
    return switches.choice("authz.unbind_callers") != "controller" and switches.choice("unbind.api") != "condition"


def has_start_fence(switches: Switches) -> bool:
    """Whether the first container waits for an acknowledged `startTime`, after which nobody unbinds.

    Where others than the pod's own kubelet may unbind, nothing else keeps a pod from running twice (4.4).
    """
    return switches.flag("kubelet.start_fence") or unbinder_may(switches)
