"""What a StatefulSet says of itself: how many pods, of which revision, and when an update is complete.

Source: controllers 4; upstream `pkg/controller/statefulset` (`stateful_set_control.go`, `stateful_set_utils.go`).
"""

from __future__ import annotations

from collections.abc import Iterable

from services.api.kinds.pod import Pod
from services.api.kinds.statefulset import ROLLING, StatefulSet
from services.api.meta import Document
from services.controllers import shared_writes as writes
from services.controllers.shared_pods import available_in_s
from services.controllers.statefulset.order import is_running_and_ready, revision_of


def status_of(
    stateful_set: StatefulSet, pods: Iterable[Pod], current: str, update: str, collision_count: int, wall_s: float
) -> Document:
    """Return the status as it should read; nothing when it does.

    `current`, `update`: names of revisions. Terminating pods count as replicas, and as ready while they are,
    but not as being of a revision.
    """
    pods = list(pods)
    ready = [pod for pod in pods if is_running_and_ready(pod)]
    staying = [revision_of(pod) for pod in pods if pod.metadata.deletion_timestamp is None]
    min_ready_s = stateful_set.spec.min_ready_seconds
    wanted: Document = {
        "observedGeneration": stateful_set.metadata.generation,
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(available_in_s(pod, min_ready_s, wall_s) == 0 for pod in ready),
        "currentReplicas": staying.count(current),
        "updatedReplicas": staying.count(update),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collision_count,
    }
    asked = stateful_set.spec.replicas
    is_complete = all(wanted[name] == asked for name in ("updatedReplicas", "readyReplicas", "replicas"))
    if is_complete and stateful_set.spec.update_strategy.type == ROLLING:
        wanted |= {"currentReplicas": wanted["updatedReplicas"], "currentRevision": update}
    return wanted if writes.differing(stateful_set.status, wanted) else {}
