"""What one reconcile of a Deployment has worked out so far, and the numbers it reads off the ReplicaSets.

Source: controllers 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.api.kinds.deployment import Deployment
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Document
from services.reconcile.actions import Action, event
from services.reconcile.controller import Moment

RESOURCE = "deployments.apps"
SETS = "replicasets.apps"


@dataclass
class Step:
    """What one reconcile has worked out so far."""

    deployment: Deployment
    document: Document
    sets: list[ReplicaSet]
    """All of them, the oldest first."""
    now: Moment
    surge: int = 0
    unavailable: int = 0
    deadline_s: float | None = None
    new: ReplicaSet | None = None
    actions: list[Action] = field(default_factory=list)
    conditions: list[Document] = field(default_factory=list)
    collision_count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes decided in this reconcile, by name."""
    created_size: int | None = None
    revision: str = ""

    @property
    def replicas(self) -> int:
        """How many pods are desired."""
        return self.deployment.spec.replicas

    @property
    def olds(self) -> list[ReplicaSet]:
        """All sets but the new one."""
        return [s for s in self.sets if self.new is None or s.metadata.uid != self.new.metadata.uid]

    def size(self, each: ReplicaSet) -> int:
        """Return the size a set was given in this reconcile, or else has."""
        return self.sizes.get(each.metadata.name, each.spec.replicas)

    def note_scaling(self, name: str, before: int, after: int) -> None:
        """Append the Event about a set that is scaled."""
        text = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
        self.actions.append(event(self.deployment, "ScalingReplicaSet", text))


def counters_of(step: Step) -> Document:
    """Return the numbers of the status, over all sets as their last status has them."""
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
    """Whether every desired pod is there, up to date and available, and no other."""
    return bool(
        counters["updatedReplicas"] == step.replicas
        and counters["replicas"] == step.replicas
        and counters["availableReplicas"] == step.replicas
        and (step.new is not None or step.replicas == 0)
    )
