"""Keep the requested number of a ReplicationController's pods alive, like a ReplicaSet with a label-only
selector.

Source: upstream `pkg/controller/replication/replication_controller.go`, an adapter around the same reconcile.
"""

from services.api.kinds.pod import Pod
from services.api.kinds.replicationcontroller import ReplicationController
from services.api.switches import Switches
from services.controllers.shared_replicas import ReplicaSets
from services.reconcile.controller import Controller, Registration, Watch
from services.reconcile.interest import OF_ADOPTION, Interest


def _build(switches: Switches) -> Controller:
    memory = ReplicaSets(switches, ReplicationController)
    watches = (Watch(Pod, memory.pod_changed, Interest(owner=ReplicationController, orphan_changes=OF_ADOPTION)),)
    return Controller(
        "replicationcontroller",
        ReplicationController,
        memory.reconcile,
        watches=watches,
        failed=memory.pods.on_failed,
        workers=5,
        reporter="replication-controller",
    )


CONTROLLER = Registration("replicationcontroller", _build, start_order=30, is_for_rest=True)
