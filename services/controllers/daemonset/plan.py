"""Plan of a DaemonSet: missing and surplus pods by node, and one step of its rolling update. Pure.

One pass over the pods, one over the nodes. Without surge the update removes an old pod and the next reconcile
fills its place; with surge the new one comes first.
Source: controllers 6; upstream `podsShouldBeOnNode`, `updateDaemonSetStatus` of
`pkg/controller/daemon/daemon_controller.go`, `pkg/controller/daemon/update.go`; KEP-1591.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from services.api.kinds.daemonset import DaemonSet, RollingUpdateDaemonSet
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.controllers.daemonset.nodes import NOWHERE, Fit, is_updated, target_of
from services.controllers.shared_int_or_percent import resolve
from services.controllers.shared_pods import available_in_s, is_ready
from services.controllers.shared_revisions import POD_LABEL
from services.reconcile.actions import earliest


@dataclass(frozen=True)
class Sight:
    """Input of one reconcile. `text`: the current revision's hash. `fits`: by node, in the order of the cache.

    `pods`: pods by node, the one that counts first; without pods that have ended and are terminating.
    """

    daemon_set: DaemonSet
    text: str
    fits: Mapping[str, Fit]
    pods: Mapping[str, list[Pod]]
    wall_s: float

    def is_updated(self, pod: Pod) -> bool:
        """Whether the pod was made from the current template."""
        return is_updated(pod, self.text, self.daemon_set)

    def is_available(self, pod: Pod) -> bool:
        """Whether the pod has been ready for `minReadySeconds`."""
        return available_in_s(pod, self.daemon_set.spec.min_ready_seconds, self.wall_s) == 0


@dataclass
class Plan:
    """Planned changes. `failed` and `succeeded` are subsets of `deletes`, which are reported by Events."""

    creates: list[str] = field(default_factory=list)
    """Nodes that each get a new pod."""
    deletes: list[Pod] = field(default_factory=list)
    failed: list[Pod] = field(default_factory=list)
    succeeded: list[Pod] = field(default_factory=list)
    again_s: float | None = None


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the pods by current or intended node, the one that counts first: bound, then the oldest."""
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.is_terminal and pod.metadata.deletion_timestamp is not None:
            continue
        if node := target_of(pod):
            pods_by_node.setdefault(node, []).append(pod)
    for here in pods_by_node.values():
        if len(here) > 1:
            here.sort(key=lambda p: (not p.spec.node_name, p.metadata.creation_timestamp, p.metadata.name))
    return pods_by_node


def limits(daemon_set: DaemonSet, nodes: int) -> tuple[int, int]:
    """Return (surge, unavailable) for that many nodes, both rounded up; (0, 0) unless the set rolls.

    Raises: ValueError for an invalid percentage, which the API server does not admit.
    """
    strategy = daemon_set.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return 0, 0
    numbers = strategy.rolling_update or RollingUpdateDaemonSet()
    return resolve(numbers.max_surge, nodes, is_up=True), resolve(numbers.max_unavailable, nodes, is_up=True)


def plan(sight: Sight, wait_s: Callable[[str], float]) -> Plan:
    """Return the changes that bring every node to the desired state, for pods of any revision.

    `wait_s(node)`: how long a failed pod there must stay before it may be removed and replaced.
    """
    draft, surges = Plan(), limits(sight.daemon_set, 1)[0] > 0
    for node, fit in sight.fits.items():
        here = sight.pods.get(node)
        if here is None:
            if fit.runs:
                draft.creates.append(node)
        elif fit.stays:
            running = _running(draft, node, here, wait_s)
            if not surges:
                draft.deletes += running[1:]
            elif not running and fit.runs:
                draft.creates.append(node)
            elif len(running) > 1:
                _tidy_surge(draft, sight, running)
        else:
            draft.deletes += [pod for pod in here if pod.metadata.deletion_timestamp is None]
    for node, pods in sight.pods.items():
        if node not in sight.fits:
            # Bound ones are PodGC's; these were made for a node that is gone and would wait for ever.
            draft.deletes += [p for p in pods if not p.spec.node_name and p.metadata.deletion_timestamp is None]
    return draft


def _running(draft: Plan, node: str, here: list[Pod], wait_s: Callable[[str], float]) -> list[Pod]:
    """Return the node's pods that have not ended and are not terminating; those that have ended are deleted."""
    running: list[Pod] = []
    for pod in here:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if pod.status.phase == "Failed":
            if (left_s := wait_s(node)) > 0:
                draft.again_s = earliest(draft.again_s, left_s)
                continue
            draft.failed.append(pod)
            draft.deletes.append(pod)
        elif pod.status.phase == "Succeeded":
            draft.succeeded.append(pod)
            draft.deletes.append(pod)
        else:
            running.append(pod)
    return running


def _tidy_surge(draft: Plan, sight: Sight, running: list[Pod]) -> None:
    """Keep the oldest new pod, and the oldest old one as long as it is ready and the new one is not available."""
    new: Pod | None = None
    old: Pod | None = None
    for pod in running:
        is_new = pod.metadata.labels.get(POD_LABEL) == sight.text
        if is_new and new is None:
            new = pod
        elif not is_new and old is None:
            old = pod
        else:
            draft.deletes.append(pod)
    if new is not None and old is not None and (not is_ready(old) or sight.is_available(new)):
        draft.deletes.append(old)


def counters_of(sight: Sight) -> tuple[Document, float | None]:
    """Return the status counters, and the seconds until the next ready pod becomes available."""
    desired = current = misscheduled = ready = available = updated = 0
    again_s: float | None = None
    for node, fit in sight.fits.items():
        here = sight.pods.get(node)
        if not fit.runs:
            misscheduled += here is not None
            continue
        desired += 1
        if here is None:
            continue
        current += 1
        updated += sight.is_updated(here[0])
        left_s = available_in_s(here[0], sight.daemon_set.spec.min_ready_seconds, sight.wall_s)
        if left_s is None:
            continue
        ready += 1
        available += left_s == 0
        if left_s > 0:
            again_s = earliest(again_s, left_s)
    counters: Document = {
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    return counters, again_s


def roll(sight: Sight) -> Plan:
    """Return the next step of the rolling update; empty with OnDelete, where others delete the old pods.

    Call it only when no node has surplus pods: at most one pod per node, or an old and a new one during a surge.
    """
    if sight.daemon_set.spec.update_strategy.type != "RollingUpdate":
        return Plan()
    desired = sum(fit.runs for fit in sight.fits.values())
    surge, unavailable = limits(sight.daemon_set, desired)
    if surge == 0:
        # If both are 0 (a percentage of no nodes, or a set of before the rule), one may be unavailable.
        return _replace(sight, unavailable or 1)
    return _surge(sight, surge, desired)


def _nodes(sight: Sight) -> list[str]:
    """Return the nodes that should have a pod or have one."""
    wanted = [node for node, fit in sight.fits.items() if fit.runs or node in sight.pods]
    return wanted + [node for node in sight.pods if node not in sight.fits]


def _pair(sight: Sight, node: str) -> tuple[Pod | None, Pod | None, bool]:
    """Return the node's (new pod, old pod, whether there are no more), terminating ones left aside."""
    staying = [pod for pod in sight.pods.get(node, ()) if pod.metadata.deletion_timestamp is None]
    new = [pod for pod in staying if sight.is_updated(pod)]
    old = [pod for pod in staying if pod not in new]
    if len(new) > 1 or len(old) > 1:
        return None, None, False
    return next(iter(new), None), next(iter(old), None), True


def _replace(sight: Sight, limit: int) -> Plan:
    """Remove old pods that are not available, and as many that are as may be unavailable besides."""
    broken: list[Pod] = []
    candidates: list[Pod] = []
    unavailable = 0
    for node in _nodes(sight):
        new, old, is_tidy = _pair(sight, node)
        if not is_tidy or (new is None) == (old is None):
            unavailable += 1
        elif new is not None:
            unavailable += not sight.is_available(new)
        elif old is not None and not sight.is_available(old):
            broken.append(old)
            unavailable += 1
        elif old is not None:
            candidates.append(old)
    return Plan(deletes=[*broken, *candidates[: max(0, limit - unavailable)]])


def _surge(sight: Sight, limit: int, desired: int) -> Plan:
    """Give nodes a new pod besides the old one; remove old pods whose successor is available.

    A pod on a node that no longer wants it goes only when enough pods are available elsewhere.
    """
    draft = Plan()
    unwanted: list[Pod] = []
    candidates: list[str] = []
    surging = available = 0
    for node in _nodes(sight):
        new, old, is_tidy = _pair(sight, node)
        if not is_tidy:
            surging += 1
            continue
        counted = old if old is not None else new
        is_up = counted is not None and sight.is_available(counted)
        available += is_up
        if old is None:
            continue
        if new is not None:
            if sight.is_available(new):
                draft.deletes.append(old)
            else:
                surging += 1
        elif not sight.fits.get(node, NOWHERE).runs:
            (unwanted if is_up else draft.deletes).append(old)
        elif is_up:
            candidates.append(node)
        else:
            draft.creates.append(node)
    draft.deletes += unwanted[: max(0, available - desired)]
    draft.creates += candidates[: max(0, limit - surging)]
    return draft
