"""Unbind pods whose kubelets request it by a condition (`unbind.api=condition`).

The kubelet writes condition UnbindRequested=True with its reason and starts nothing; this controller performs
the unbind under its own identity. If the server refuses it for good, the controller sets the condition False
with the code, and the kubelet falls back. Everything else is tried again until the kubelet gives up. Source:
kubelet-unbinding 4.2 (`condition`), 4.4 (`authz.unbind_callers`).
"""

from collections.abc import Iterable

from services.api.kinds.pod import MIRROR_ANNOTATION, Pod
from services.api.meta import Condition, Document, Key, find_condition
from services.api.switches import Switches
from services.api.unbind import REQUESTED, UNBINDER, UnbindSwitches, request_id
from services.controllers.shared_switches import UnbindingSwitches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Create, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

MESSAGE_MAX = 1024


class PodUnbind:
    """Reconcile function of one pod, without memory."""

    def __init__(self, switches: Switches) -> None:
        self._unbinding = switches.of(UnbindSwitches)
        self._max_attempts = switches.of(UnbindingSwitches).attempts_max
        self._takes_preset = switches.of(UnbindingSwitches).user_bound == "allow"
        self._names_version = switches.of(UnbindingSwitches).fence == "resourceVersion"

    def pod_changed(self, change: Change[Pod], listers: Listers) -> Iterable[Key]:
        """Return the pod if its kubelet requests an unbind."""
        return (change.new.metadata.key,) if change.new is not None and _request(change.new) is not None else ()

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Unbind the pod, or report that it stays bound."""
        pod = listers.of(Pod).get(key)
        if pod is None or (request := _request(pod)) is None:
            return NOTHING
        if code := self._refusal(pod, moment.wall_s):
            refused = conditions.new(REQUESTED, "False", code, request.message, moment.wall_s)
            return Result((writes.conditions("pods", pod, refused),))
        body = _unbind(pod, request, names_version=self._names_version)
        return Result((Create("pods", body, subresource="unbind"),))

    def _refusal(self, pod: Pod, wall_s: float) -> str:
        """Return why this pod may never be unbound, or "" (checks 10 and 11)."""
        owner = pod.metadata.controller
        if MIRROR_ANNOTATION in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet"):
            return "Exempt"
        if pod.status.binding_generation == 0 and not self._takes_preset:
            return "Exempt"
        times = [entry.time for entry in pod.status.unbind_history]
        counted = self._unbinding.count_attempts(pod.status.unbind_count, times, wall_s)
        return "LimitReached" if counted >= self._max_attempts else ""


def _request(pod: Pod) -> Condition | None:
    """Return the kubelet's request, while it can still be met."""
    if pod.is_terminal or not pod.spec.node_name or pod.metadata.deletion_timestamp or pod.status.start_time:
        return None
    found = find_condition(pod.status.conditions, REQUESTED)
    return found if found is not None and found.status == "True" else None


def _unbind(pod: Pod, request: Condition, *, names_version: bool) -> Document:
    meta, generation, node = pod.metadata, pod.status.binding_generation, pod.spec.node_name
    version = {"resourceVersion": meta.resource_version} if names_version else {}
    return {
        "apiVersion": "v1",
        "kind": "PodUnbind",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, **version},
        "nodeName": node,
        "bindingGeneration": generation,
        "requestID": request_id(meta.uid, generation, node),
        "reason": request.reason,
        "message": request.message[:MESSAGE_MAX],
    }


def _build(switches: Switches) -> Controller:
    memory = PodUnbind(switches)
    watches = (Watch(Pod, memory.pod_changed),)
    return Controller("pod-unbind", None, memory.reconcile, identity=UNBINDER.user, watches=watches, workers=4)


CONTROLLER = Registration(
    "pod-unbind", _build, start_order=19, is_wanted=lambda switches: switches.of(UnbindingSwitches).api == "condition"
)
