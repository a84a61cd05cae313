"""Working state of one reconcile of a Deployment, and the Deployment's status.

The status has counters, the condition Available, and the progress of the rollout.
Source: controllers 3; upstream `pkg/controller/deployment/progress.go`.
"""

from dataclasses import dataclass, field

from services.api.kinds.deployment import Deployment
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document, find_condition
from services.api.times import format_time
from services.controllers.shared_pods import seconds_of
from services.reconcile import conditions, writes
from services.reconcile.actions import Action, event
from services.reconcile.controller import Moment

RESOURCE = "deployments.apps"
SETS = "replicasets.apps"


@dataclass
class Step:
    """Working state of one reconcile."""

    deployment: Deployment
    document: Document
    sets: list[ReplicaSet]
    """All ReplicaSets, the oldest first."""
    now: Moment
    surge: int = 0
    unavailable: int = 0
    deadline_s: float | None = None
    new: ReplicaSet | None = None
    actions: list[Action] = field(default_factory=list)
    conditions: list[Document] = field(default_factory=list)
    collision_count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes decided in this reconcile, by ReplicaSet name."""
    created_size: int | None = None
    revision: str = ""

    @property
    def replicas(self) -> int:
        """Number of desired pods."""
        return self.deployment.spec.replicas

    @property
    def olds(self) -> list[ReplicaSet]:
        """All ReplicaSets except the new one."""
        return [s for s in self.sets if self.new is None or s.metadata.uid != self.new.metadata.uid]

    def size(self, each: ReplicaSet) -> int:
        """Return the size decided for a set in this reconcile, or else its current size."""
        return self.sizes.get(each.metadata.name, each.spec.replicas)

    def note_scaling(self, name: str, before: int, after: int) -> None:
        """Append the Event about a scaled set."""
        text = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
        self.actions.append(event(self.deployment, "ScalingReplicaSet", text))


def counters_of(step: Step) -> Document:
    """Return the status counters, summed over the last statuses of all sets."""
    available = sum(each.status.available_replicas for each in step.sets)
    asked = sum(step.size(each) for each in step.sets) + (step.created_size or 0)
    return {
        "observedGeneration": step.deployment.metadata.generation,
        "replicas": sum(each.status.replicas for each in step.sets),
        "updatedReplicas": step.new.status.replicas if step.new is not None else 0,
        "readyReplicas": sum(each.status.ready_replicas for each in step.sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, asked - available),
        "terminatingReplicas": sum(each.status.terminating_replicas or 0 for each in step.sets),
    }


def is_complete(step: Step, counters: Document) -> bool:
    """Whether all desired pods exist, up to date and available, and no others."""
    return bool(
        counters["updatedReplicas"] == step.replicas
        and counters["replicas"] == step.replicas
        and counters["availableReplicas"] == step.replicas
        and (step.new is not None or step.replicas == 0)
    )


def put(step: Step, kind: str, status: str, reason: str, message: str) -> None:
    """Set one condition as of now; the deadline counts from its `lastUpdateTime`."""
    made = conditions.put(step.conditions, kind, status, reason, message, step.now.wall_s)
    if made is not None:
        since, now = made.pop("lastTransitionTime"), format_time(step.now.wall_s)
        made |= {"lastUpdateTime": now, "lastTransitionTime": since}


def note_progress(step: Step, reason: str, message: str) -> None:
    """Start the progress deadline, unless it is already running."""
    if step.deadline_s is not None and conditions.find(step.conditions, "Progressing") is None:
        put(step, "Progressing", "True", reason, message)


def note_pause(step: Step) -> None:
    """Set the condition for a paused rollout: the deadline is suspended, and restarts afterwards."""
    if step.deadline_s is None:
        return
    current = conditions.find(step.conditions, "Progressing") or {}
    if current.get("reason") == "ProgressDeadlineExceeded":
        return
    is_noted = current.get("reason") == "DeploymentPaused"
    if step.deployment.spec.paused and not is_noted:
        put(step, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
    elif not step.deployment.spec.paused and is_noted:
        put(step, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")


def report(step: Step, *, is_rolling: bool) -> None:
    """Append the status write if anything differs from the stored status."""
    counters = counters_of(step)
    if counters["availableReplicas"] >= step.replicas - step.unavailable:
        put(step, "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        put(step, "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    if is_rolling:
        _judge_progress(step, counters)
    _copy_failure(step)
    status: Document = {**counters, "conditions": step.conditions}
    if step.collision_count:
        status["collisionCount"] = step.collision_count
    stored = step.document.get("status") or {}
    if all(stored.get(name, None if name == "conditions" else 0) == value for name, value in status.items()):
        return
    step.actions.append(writes.status(RESOURCE, step.deployment, status))


def _judge_progress(step: Step, counters: Document) -> None:
    if step.deadline_s is None:
        conditions.remove(step.conditions, "Progressing")
        return
    current = conditions.find(step.conditions, "Progressing")
    is_over = current is not None and current.get("reason") == "NewReplicaSetAvailable"
    if is_over and counters["replicas"] == counters["updatedReplicas"]:
        return
    shown = step.new or step.deployment
    name = f'{type(shown).__name__} "{shown.metadata.name}"'
    if is_complete(step, counters):
        put(step, "Progressing", "True", "NewReplicaSetAvailable", f"{name} has successfully progressed.")
    elif _has_progressed(step.deployment, counters):
        # A new condition each time.
        since = current.get("lastTransitionTime") if current and current.get("status") == "True" else None
        conditions.remove(step.conditions, "Progressing")
        put(step, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.")
        if since:
            step.conditions[-1]["lastTransitionTime"] = since
    elif _is_timed_out(step, current):
        put(step, "Progressing", "False", "ProgressDeadlineExceeded", f"{name} has timed out progressing.")


def look_again_s(step: Step) -> float | None:
    """Return the seconds until the progress deadline, for a rollout that may be stuck; None if there is none."""
    current = conditions.find(step.conditions, "Progressing")
    if step.deadline_s is None or current is None or step.deployment.spec.paused:
        return None
    if current.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    return max(0.0, seconds_of(current.get("lastUpdateTime")) + step.deadline_s - step.now.wall_s) + 1.0


def _has_progressed(deployment: Deployment, counters: Document) -> bool:
    """Whether updated, ready or available pods became more, or old ones fewer."""
    old = deployment.status
    return bool(
        counters["updatedReplicas"] > old.updated_replicas
        or counters["replicas"] - counters["updatedReplicas"] < old.replicas - old.updated_replicas
        or counters["readyReplicas"] > old.ready_replicas
        or counters["availableReplicas"] > old.available_replicas
    )


def _is_timed_out(step: Step, current: Document | None) -> bool:
    if current is None or step.deadline_s is None or current.get("reason") == "NewReplicaSetAvailable":
        return False
    due_s = seconds_of(current.get("lastUpdateTime")) + step.deadline_s
    return current.get("reason") == "ProgressDeadlineExceeded" or step.now.wall_s > due_s


def _copy_failure(step: Step) -> None:
    """Show the ReplicaFailure of the new set, or else of any."""
    for replica_set in ([step.new] if step.new is not None else []) + step.olds:
        failure = find_condition(replica_set.status.conditions, "ReplicaFailure")
        if failure is not None and failure.status == "True":
            put(step, "ReplicaFailure", "True", failure.reason, failure.message)
            return
    conditions.remove(step.conditions, "ReplicaFailure")
