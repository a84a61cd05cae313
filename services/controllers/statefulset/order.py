"""Order in which a StatefulSet creates, deletes and replaces its pods.

OrderedReady: one step per reconcile, upwards to create pods, downwards to delete them, and only after the lower
pods are healthy. Parallel: all at once, but a rolling update still goes from the highest ordinal down. A pod is
replaced only when its old object is gone, so that a name never has two pods.
Source: controllers 4; upstream `pkg/controller/statefulset/stateful_set_control.go` (k/k #67250 is true of it),
and k/k #137666 for pods of an older revision that are down.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.api.kinds.pod import Pod
from services.controllers.shared_pods import available_in_s, is_ready
from services.controllers.shared_revisions import POD_LABEL


@dataclass(frozen=True)
class Desired:
    """Desired state of a set's pods. `ordinals`: their numbers. `most_unavailable`: limit for pods in replacement.

    `partition`: number of pods, from the first, that keep their revision; None if no pod is replaced for its
    revision.
    """

    ordinals: range
    is_parallel: bool = False
    min_ready_s: int = 0
    current_revision: str = ""
    update_revision: str = ""
    partition: int | None = 0
    kept_revision: int = 0
    """Number of pods, from the first, that are recreated from the current revision; others use the update revision."""
    most_unavailable: int | None = None
    """Limit of unavailable pods. None: each replaced pod must be available before the next one is replaced."""
    counts_broken: bool = True
    """Whether unavailable pods of an older revision count against `most_unavailable`."""

    def revision_of_new(self, ordinal: int) -> str:
        """Return the revision for a new pod of that number."""
        return self.current_revision if ordinal - self.ordinals.start < self.kept_revision else self.update_revision


@dataclass
class Steps:
    """Steps that are allowed now. `again_s`: seconds until the next ready pod becomes available."""

    recreated: list[Pod] = field(default_factory=list)
    """Ended pods, to be deleted and created again."""
    made: list[int] = field(default_factory=list)
    removed: list[Pod] = field(default_factory=list)
    """Surplus pods beyond the desired number, the highest first."""
    replaced: list[Pod] = field(default_factory=list)
    """Pods of a wrong revision, to be replaced."""
    again_s: float | None = None


def is_healthy(pod: Pod) -> bool:
    """Whether the pod runs, is ready and is not terminating."""
    return pod.metadata.deletion_timestamp is None and is_running_and_ready(pod)


def is_running_and_ready(pod: Pod) -> bool:
    """Whether the pod runs and is ready, terminating or not."""
    return pod.status.phase == "Running" and is_ready(pod)


def revision_of(pod: Pod) -> str:
    """Return the name of the revision a pod was made from."""
    return pod.metadata.labels.get(POD_LABEL, "")


class _Look:
    """One pass over the pods of one set."""

    def __init__(self, desired: Desired, pods: Mapping[int, Pod], blocked: frozenset[int], wall_s: float) -> None:
        self.desired = desired
        self.pods = pods
        self.blocked = blocked
        self.wall_s = wall_s
        self.steps = Steps()

    def is_available(self, pod: Pod | None) -> bool:
        """Whether the pod is healthy and has been for long enough; note when it will have been."""
        if pod is None or not is_healthy(pod):
            return False
        wait_s = available_in_s(pod, self.desired.min_ready_s, self.wall_s)
        if wait_s:
            self.steps.again_s = min(wait_s, self.steps.again_s or wait_s)
        return wait_s == 0

    def make(self) -> bool:
        """Fill the numbers that are asked for; False when what comes after must wait."""
        for ordinal in self.desired.ordinals:
            pod = self.pods.get(ordinal)
            if pod is None:
                if ordinal not in self.blocked:
                    self.steps.made.append(ordinal)
            elif pod.is_terminal:
                if pod.metadata.deletion_timestamp is None:
                    self.steps.recreated.append(pod)
            elif self.is_available(pod):
                continue
            if not self.desired.is_parallel:
                return False
        return True

    def remove(self) -> bool:
        """End pods beyond the number, the highest first; False when what comes after must wait."""
        condemned = sorted((n for n in self.pods if n not in self.desired.ordinals), reverse=True)
        first_bad = min((n for n in condemned if not self.is_available(self.pods[n])), default=None)
        for ordinal in condemned:
            pod = self.pods[ordinal]
            if self.desired.is_parallel:
                if pod.metadata.deletion_timestamp is None:
                    self.steps.removed.append(pod)
                continue
            # All desired pods are available here, so the first one that is not is among these.
            if pod.metadata.deletion_timestamp is None and (ordinal == first_bad or self.is_available(pod)):
                self.steps.removed.append(pod)
            return False
        return True

    def replace(self) -> None:
        """End pods of another revision, the highest first, down to the partition."""
        desired = self.desired
        if desired.partition is None:
            return
        downwards = list(reversed(desired.ordinals[desired.partition :]))
        if desired.most_unavailable is not None:
            broken = (
                []
                if desired.counts_broken
                else [pod for pod in self._old(desired.ordinals) if not self.is_available(pod)]
            )
            unavailable = sum(not self.is_available(self.pods.get(n)) for n in desired.ordinals)
            free = desired.most_unavailable - (unavailable - len(broken))
            # Who is down already goes first, and costs nothing more; the others from what is left.
            old = self._old(downwards)
            first = [pod for pod in old if pod in broken]
            rest = [pod for pod in old if pod not in broken]
            self.steps.replaced = [*first, *rest[: max(0, free - len(first))]]
            return
        for ordinal in downwards:
            pod = self.pods.get(ordinal)
            if pod is not None and self._is_old(pod):
                self.steps.replaced.append(pod)
                return
            if not self.is_available(pod):
                return

    def _old(self, ordinals: Iterable[int]) -> list[Pod]:
        found = (self.pods.get(n) for n in ordinals)
        return [pod for pod in found if pod is not None and self._is_old(pod)]

    def _is_old(self, pod: Pod) -> bool:
        is_kept = pod.metadata.deletion_timestamp is not None or revision_of(pod) == self.desired.update_revision
        return not is_kept and pod not in self.steps.recreated


def steps_of(desired: Desired, pods: Mapping[int, Pod], blocked: Sequence[int], wall_s: float) -> Steps:
    """Return the steps that are allowed now.

    `pods`: the set's own, by number. `blocked`: numbers whose pods cannot be created yet, because another pod has
    the name or a claim is still being deleted.
    """
    look = _Look(desired, pods, frozenset(blocked), wall_s)
    if look.make() and look.remove():
        look.replace()
    return look.steps
