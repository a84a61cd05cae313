"""Keep the requested number of a ReplicaSet's pods alive.

Source: controllers 2; upstream `pkg/controller/replicaset/replica_set.go`.
"""

from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.switches import Switches
from services.controllers.shared_claim_release import is_scaled_to_zero
from services.controllers.shared_replicas import ReplicaSets
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Controller, Registration, Watch
from services.reconcile.interest import OF_ADOPTION, Interest


def _build(switches: Switches) -> Controller:
    memory = ReplicaSets(switches)
    watches = (Watch(Pod, memory.pod_changed, Interest(owner=ReplicaSet, orphan_changes=OF_ADOPTION)),)
    failed = memory.pods.on_failed
    controller = Controller("replicaset", ReplicaSet, memory.reconcile, watches=watches, failed=failed, workers=5)
    settled, is_empty = memory.pods.expectations.are_satisfied, is_scaled_to_zero(switches)
    return releasing(controller, switches, Releases(ReplicaSet, is_empty, settled))


CONTROLLER = Registration("replicaset", _build, start_order=1)
