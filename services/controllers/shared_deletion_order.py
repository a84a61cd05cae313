"""Which pods go first when there are too many.

Source: upstream `ActivePodsWithRanks` (`pkg/controller/controller_utils.go`).
"""

from __future__ import annotations

import math

from services.api.kinds.pod import Pod
from services.controllers.shared_readiness import ready_since_s, seconds_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASE_ORDER = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


def in_deletion_order(pods: list[Pod], siblings_by_node: dict[str, int], wall_s: float) -> list[Pod]:
    """Return the pods, the one to delete first at the front.

    Without node; Pending before Unknown before Running; not ready; lower deletion cost; more siblings
    on its node; ready for a shorter time (in powers of two); more restarts; younger.
    Deviates: upstream breaks ties within one power of two by uid before it counts restarts.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        since = ready_since_s(pod)
        return (
            bool(pod.spec.node_name),
            _PHASE_ORDER.get(pod.status.phase, 3),
            since is not None,
            _cost(pod),
            -siblings_by_node.get(pod.spec.node_name, 0),
            0 if since is None else _power(wall_s - since),
            -max((c.restart_count for c in pod.status.container_statuses), default=0),
            _power(wall_s - seconds_of(pod.metadata.creation_timestamp)),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def _power(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0
