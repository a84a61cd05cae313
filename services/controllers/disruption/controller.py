"""Compute the allowed disruptions of each PodDisruptionBudget, for the eviction API.

A key with `pods/` before the name is a pod with an announced disruption that may never happen.
Source: controllers 10; upstream `pkg/controller/disruption/disruption.go`.
"""

from typing import Any, TypeVar

from services.api.kinds.deployment import Deployment
from services.api.kinds.pod import Pod
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Condition, Document, Key, OwnerReference, find_condition
from services.api.resources import resource_of_kind
from services.api.selectors import Selector, from_label_selector
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers.shared_int_or_percent import resolve
from services.controllers.shared_ownership import is_owner
from services.controllers.shared_pods import is_ready, seconds_of
from services.controllers.shared_selector_text import go_text
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Patch, RecordEvent, Result, earliest, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

RESOURCE = "poddisruptionbudgets.policy"
DISRUPTED_S = 120.0
"""Seconds in which an evicted pod must begin its deletion before it counts again."""
STALE_TARGET_S = 120.0
"""Seconds after which DisruptionTarget is stale on a pod that is not deleted."""
UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of "
    "the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
    'set ".spec.minAvailable" field of the PDB to an integer value.'
)
_POD = "pods/"

W = TypeVar("W", StatefulSet, ReplicaSet, Deployment)


class SyncError(Exception):
    """Error: the budget cannot be computed; until it can, no disruption is allowed."""


def pod_changed(change: Change[Pod], listers: Listers) -> list[Key]:
    """Return the budgets that select the old or new pod, and the pod if its disruption is announced."""
    keys: dict[Key, None] = {}
    for budget in listers.of(PodDisruptionBudget).all(change.object.metadata.namespace):
        selector, sides = _selector(budget), (change.old, change.new)
        if selector is not None and any(pod is not None and selector.matches(pod.metadata.labels) for pod in sides):
            keys[budget.metadata.key] = None
    new = change.new
    if new is not None and _disruption_condition(new) is not None:
        keys[Key(new.metadata.namespace, _POD + new.metadata.name)] = None
    return list(keys)


def workload_changed(
    change: Change[ReplicaSet] | Change[Deployment] | Change[StatefulSet], listers: Listers
) -> list[Key]:
    """Return the namespace's budgets when a workload's scale changed: percentages refer to the scale."""
    old, new = change.old, change.new
    if old is not None and new is not None and old.spec.replicas == new.spec.replicas:
        return []
    return [b.metadata.key for b in listers.of(PodDisruptionBudget).all(change.object.metadata.namespace)]


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Update a budget's status, or reset a pod's stale DisruptionTarget."""
    if key.name.startswith(_POD):
        return _reset_stale(Key(key.namespace, key.name[len(_POD) :]), listers, moment)
    budget = listers.of(PodDisruptionBudget).get(key)
    if budget is None:
        return NOTHING
    selector = _selector(budget)
    pods = [p for p in listers.of(Pod).all(key.namespace) if selector and selector.matches(p.metadata.labels)]
    try:
        expected, desired = _expected_and_desired(budget, [pod for pod in pods if not pod.is_terminal], listers)
    except SyncError as error:
        return Result(tuple(_fail_safe(budget, str(error), moment.wall_s)))
    disrupted, again_s, events = _pending_evictions(budget, pods, moment.wall_s)
    healthy = sum(
        is_ready(pod) and pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted for pod in pods
    )
    # None may go when nothing is expected.
    allowed = max(0, healthy - desired) if expected > 0 else 0
    counters = {"expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy}
    counters["disruptionsAllowed"] = allowed
    actions = [*events, *_unmanaged_events(budget, pods)]
    if not pods:
        actions.append(event(budget, "NoPods", "No matching pods found"))
    return Result((*actions, *_status(budget, counters, disrupted, moment.wall_s)), again_s)


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    """Return the matcher: a missing selector selects nothing, an empty one everything (policy/v1)."""
    try:
        return from_label_selector(budget.spec.selector) if budget.spec.selector is not None else None
    except ValueError:
        return None


def _expected_and_desired(budget: PodDisruptionBudget, pods: list[Pod], listers: Listers) -> tuple[int, int]:
    """Return (expected, desired). Raises: SyncError when a scale is needed and a pod's owner has none."""
    spec = budget.spec
    try:
        if spec.max_unavailable is not None:
            expected = _scale(pods, listers)
            return expected, max(0, expected - resolve(spec.max_unavailable, expected, is_up=True))
        if isinstance(spec.min_available, str):
            expected = _scale(pods, listers)
            return expected, resolve(spec.min_available, expected, is_up=True)
    except ValueError as error:
        raise SyncError(str(error)) from error
    return len(pods), spec.min_available or 0


def _unmanaged_events(budget: PodDisruptionBudget, pods: list[Pod]) -> list[RecordEvent]:
    """Return the Event about pods without a controller, which a budget that needs a scale cannot count."""
    needs_scale = budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)
    if not needs_scale or all(pod.metadata.controller is not None for pod in pods):
        return []
    return [event(budget, "UnmanagedPods", UNMANAGED.format(go_text(budget.spec.selector)), warns=True)]


def _scale(pods: list[Pod], listers: Listers) -> int:
    """Return how many pods the pods' controllers want, each controller counted once."""
    wanted: dict[str, int] = {}
    for pod in pods:
        reference, namespace = pod.metadata.controller, pod.metadata.namespace
        if reference is None:
            continue  # unmanaged pods have no scale; they count in integers only
        owner: StatefulSet | ReplicaSet | Deployment | None
        if is_owner(reference, StatefulSet):
            owner = _find_owner(StatefulSet, reference, namespace, listers)
        elif is_owner(reference, ReplicaSet):
            owner = _find_owner(ReplicaSet, reference, namespace, listers)
            above = owner.metadata.controller if owner is not None else None
            if above is not None and is_owner(above, Deployment):
                owner = _find_owner(Deployment, above, namespace, listers) or owner
        else:
            raise SyncError(_unscalable(reference))
        if owner is None:
            raise SyncError(f'found no controllers for pod "{pod.metadata.name}"')
        wanted[owner.metadata.uid] = owner.spec.replicas
    return sum(wanted.values())


def _unscalable(reference: OwnerReference) -> str:
    """Return why a pod's controller has no scale, in upstream's words."""
    found = resource_of_kind(reference.api_version, reference.kind)
    if found is None:
        return f'no matches for kind "{reference.kind}" in version "{reference.api_version}"'
    return f"{found.name} does not implement the scale subresource"


def _find_owner(view: type[W], reference: OwnerReference, namespace: str, listers: Listers) -> W | None:
    found = listers.of(view).get(Key(namespace, reference.name))
    return found if found is not None and found.metadata.uid == reference.uid else None


def _pending_evictions(
    budget: PodDisruptionBudget, pods: list[Pod], wall_s: float
) -> tuple[dict[str, str], float | None, list[RecordEvent]]:
    """Return the evictions still awaited, when the next expires, and events for those that expired."""
    by_name = {pod.metadata.name: pod for pod in pods}
    kept: dict[str, str] = {}
    events: list[RecordEvent] = []
    again_s: float | None = None
    for name, stamp in budget.status.disrupted_pods.items():
        pod = by_name.get(name)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            continue
        left_s = seconds_of(stamp) + DISRUPTED_S - wall_s
        if left_s <= 0:
            text = f"Pod was expected by PDB {budget.metadata.key} to be deleted but it wasn't"
            events.append(event(pod, "NotDeleted", text, warns=True))
            continue
        kept[name] = stamp
        again_s = earliest(again_s, left_s)
    return kept, again_s, events


def _status(
    budget: PodDisruptionBudget, counters: dict[str, int], disrupted: dict[str, str], wall_s: float
) -> list[Patch]:
    old = budget.status
    listed = conditions.as_documents(old.conditions)
    status_and_reason = (
        ("True", "SufficientPods") if counters["disruptionsAllowed"] > 0 else ("False", "InsufficientPods")
    )
    _put(listed, budget, *status_and_reason, "", wall_s)
    status: Document = {**counters, "observedGeneration": budget.metadata.generation, "conditions": listed}
    gone: dict[str, str | None] = {name: None for name in old.disrupted_pods if name not in disrupted}
    if not gone and not writes.differing(old, status):
        return []
    if gone:
        status["disruptedPods"] = gone
    # On the version seen, here and below: an eviction that has meanwhile spent from the budget must not be undone.
    return [writes.status(RESOURCE, budget, status, on_version=True)]


def _put(
    listed: list[Document], budget: PodDisruptionBudget, status: str, reason: str, message: str, wall_s: float
) -> bool:
    """Set the condition, and the generation and message that it always shows; return whether it is a new one."""
    is_new = conditions.put(listed, "DisruptionAllowed", status, reason, message, wall_s) is not None
    condition = conditions.find(listed, "DisruptionAllowed") or {}
    condition |= {"observedGeneration": budget.metadata.generation, "message": condition.get("message", "")}
    return is_new


def _fail_safe(budget: PodDisruptionBudget, message: str, wall_s: float) -> list[Action]:
    """Allow nothing while the numbers are unknown."""
    listed = conditions.as_documents(budget.status.conditions)
    is_new = _put(listed, budget, "False", "SyncFailed", message, wall_s)
    if budget.status.disruptions_allowed == 0 and not is_new:
        return []
    text = f"Failed to calculate the number of expected pods: {message}"
    failed = event(budget, "CalculateExpectedPodCountFailed", text, warns=True)
    status: Document = {"disruptionsAllowed": 0, "conditions": listed}
    return [failed, writes.status(RESOURCE, budget, status, on_version=True)]


def _disruption_condition(pod: Pod) -> Condition | None:
    """Return what a component other than the kubelet said of the pod's end, if that has not begun."""
    target = find_condition(pod.status.conditions, "DisruptionTarget") if pod.is_active else None
    is_open = target is not None and target.status == "True" and target.reason != "TerminationByKubelet"
    return target if is_open else None


def _reset_stale(key: Key, listers: Listers, moment: Moment) -> Result:
    pod = listers.of(Pod).get(key)
    if pod is None or (target := _disruption_condition(pod)) is None:
        return NOTHING
    left_s = seconds_of(target.last_transition_time) + STALE_TARGET_S - moment.wall_s
    if left_s > 0:
        return Result(requeue_after_s=left_s)
    condition = {"type": "DisruptionTarget", "status": "False", "lastTransitionTime": format_time(moment.wall_s)}
    return Result((writes.conditions("pods", pod, condition, on_version=True),))


_WATCHES: tuple[Watch[Any], ...] = (
    Watch(Pod, pod_changed),
    Watch(ReplicaSet, workload_changed),
    Watch(Deployment, workload_changed),
    Watch(StatefulSet, workload_changed),
)


def _build(switches: Switches) -> Controller:
    # Upstream's events of this controller are the controller manager's.
    return Controller("disruption", PodDisruptionBudget, reconcile, watches=_WATCHES, reporter="controllermanager")


CONTROLLER = Registration("disruption", _build, start_order=13)
