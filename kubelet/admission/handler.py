"""Admission of pods on a node: decides each new pod, and keeps those that are undecided or refused. Pure.

A pod is admitted, waits (for capacity, for a read of the Node, for a second try), is unbound, or is
rejected as Kubernetes does today. What an admitted pod then does is the kubelet's affair.
Source: kubelet 5; kubelet-unbinding 2, 6.2.
"""

from collections.abc import Callable, Mapping

import msgspec

from kubelet.admission.devices import DeviceAdmission
from kubelet.admission.features import NodeFeatures, forbidden_sysctl
from kubelet.admission.predicates import Admitted, Ledger, NodeFacts, PreemptionNeeded, admit, asks_for_labels
from kubelet.effects import Outbox, ReadNode, SetTimer
from kubelet.eviction.manager import NodePressure
from kubelet.managers.allocation import Allocation, Rejection
from kubelet.managers.device_calls import Answer
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.pod.context import WallTimes
from kubelet.pod.table import PodTable
from kubelet.status.manager import StatusManager
from kubelet.switches import KubeletSwitches
from kubelet.unbind import unbinding
from kubelet.unbind.deferral import Deferral
from kubelet.unbind.manager import UnbindManager, UnbindOutcome
from kubelet.unbind.unbinding import HOLD_PERIOD_S, FallBack, Next, UnbindAnswer, Unbinding
from kubelet.view import KubeletPod, WorkerKey, is_critical, is_static
from services.api.meta import Document


class Parked(msgspec.Struct):
    """A pod that is not decided yet.

    `why`: health, capacity, node, hold, defer, devices or turn (waits for other pods' devices).
    """

    pod: KubeletPod
    why: str
    rejection: Rejection | None = None


class AdmissionHandler:
    """Decides about new pods, and keeps the undecided ones.

    Invariant: a key is in at most one of `parked` and `unbinds.going`, and in neither once it is admitted.
    """

    def __init__(
        self,
        pods: Mapping[str, KubeletPod],
        table: PodTable,
        *,
        start: Callable[[KubeletPod, WorkerKey, Admitted, float], None],
        evict: Callable[[WorkerKey, str, float], None],
        switches: KubeletSwitches,
        ledger: Ledger,
        managers: ResourceManagers,
        sysctls: tuple[str, ...],
        features: NodeFeatures,
        defined: NodeFacts,
        pressure: NodePressure,
        statuses: StatusManager,
        out: Outbox,
        times: WallTimes,
    ) -> None:
        self.switches = switches
        self.node, self._defined = msgspec.structs.replace(defined, labels=None), defined
        self._is_held = False
        self.refused: Rejection | None = None
        """Why no pod is admitted now."""
        self.parked: dict[WorkerKey, Parked] = {}
        self.unbinds = UnbindManager(defined.name, switches, statuses.versions, out, times)
        self.deferring = Deferral(switches, out)
        self._pods, self._table, self._statuses = pods, table, statuses
        self._start, self._evict = start, evict
        self._sysctls, self._features = sysctls, features
        self._ledger, self._managers, self._pressure = ledger, managers, pressure
        self._out, self._times = out, times
        self._blocked: dict[WorkerKey, Document] = {}
        self._tearing: dict[WorkerKey, UnbindOutcome | None] = {}
        """What was asked for before it was torn down, and what is to be done once it is."""
        self.devices: DeviceAdmission | None = None
        """Of nodes that take device plugins."""

    def holds(self, key: WorkerKey) -> bool:
        """Whether the pod is here and not decided yet."""
        return key in self.parked or key in self.unbinds.going

    def pending_status(self, key: WorkerKey) -> Document | None:
        """Return the status that admission sets for a pod, or None."""
        return self._blocked.get(key) or self.unbinds.asking.get(key)

    def forget(self, key: WorkerKey) -> None:
        """Forget a pod that is gone, is being deleted, or was started."""
        self.parked.pop(key, None)
        self.deferring.forget(key)
        self._blocked.pop(key, None)
        if key in self._tearing:
            self._tearing[key] = None
        if self.devices is not None:
            self.devices.forget(key)

    def outcome(self, pod: KubeletPod) -> Admitted | PreemptionNeeded | Rejection:
        """Return the node's current decision about the pod."""
        evicting = self._table.leaving() if is_critical(pod) else frozenset()
        # Static pods are admitted without the API server: the node is then what it is defined to be.
        node = self._defined if self.node.labels is None and is_static(pod) else self.node
        if (refused := self._features.refuses_first(pod)) is not None:
            return refused
        outcome = admit(pod, self._ledger, self._managers, node, evicting=evicting)
        if isinstance(outcome, Admitted) and (refused := self._features.refuses_last(pod)) is not None:
            self._managers.release(outcome.allocation)
            return refused
        return outcome

    def allocate(self, pod: KubeletPod) -> Allocation:
        """Return what the managers give to a pod that is not asked again whether it fits; nothing when it does not."""
        outcome = self.outcome(pod)
        return outcome.allocation if isinstance(outcome, Admitted) else Allocation()

    def decide(self, pod: KubeletPod, key: WorkerKey, now: float, *, is_live: bool = False) -> None:
        """Admit or reject the pod, or let it wait for what the decision depends on.

        A node may get its Node but not watch it (X-NR1), so labels are read live for pods whose admission depends
        on them.
        """
        if self._is_held:
            self.parked[key] = Parked(pod, "health")
            return
        if self.devices is not None and self.devices.is_busy:
            self.parked[key] = Parked(pod, "turn")
            return
        if (refused := self._pressure.refuses(pod) or forbidden_sysctl(pod, self._sysctls) or self.refused) is not None:
            self._on_rejected(pod, key, refused, now)
            return
        if not is_live and asks_for_labels(pod) and not is_static(pod):
            self._await_node(pod, key)
            return
        outcome = self.outcome(pod)
        if self.devices is not None and self.devices.takes(key, outcome):
            self.parked[key] = Parked(pod, "devices")
            return
        match outcome:
            case Admitted() as admitted:
                self._on_admitted(pod, key, admitted, now)
            case PreemptionNeeded(victims=victims, resource=resource):
                self.parked[key] = Parked(pod, "capacity")
                for victim in victims:
                    self._evict(victim, resource, now)
            case Rejection(reason="TaintToleration") if not is_live:
                # The taint may be gone since the Node was last seen.
                self._await_node(pod, key)
            case Rejection() as rejection:
                self._on_rejected(pod, key, rejection, now)

    def restrict(self, refused: Rejection | None, is_held: bool, now: float) -> None:
        """Admit no pod any more, or hold new ones back, because of the node."""
        is_new = refused is not None and self.refused is None
        self.refused = refused
        self.hold_back(is_held, now)
        if is_new:
            self.capacity_came(now)  # who waits is refused now

    def hold_back(self, is_held: bool, now: float) -> None:
        """Hold new pods back from now on, or decide about those that were held back."""
        was_held, self._is_held = self._is_held, is_held
        if was_held and not is_held:
            for key in [k for k, p in self.parked.items() if p.why == "health"]:
                self._retry(key, now)

    def _on_admitted(self, pod: KubeletPod, key: WorkerKey, admitted: Admitted, now: float) -> None:
        self.deferring.on_admitted(key)
        self.forget(key)
        self._statuses.versions.permit(key)
        self._out.span_stage(key, "admitted")
        self._start(pod, key, admitted, now)

    def _await_node(self, pod: KubeletPod, key: WorkerKey) -> None:
        """Decide once the Node is read; one read serves all who wait."""
        if not any(p.why == "node" for p in self.parked.values()):
            self._out.effects.append(ReadNode(key, False))
        self.parked[key] = Parked(pod, "node")

    def node_read(self, facts: NodeFacts | None, now: float) -> None:
        """Take a live read of the Node for which pods wait; None: it could not be read."""
        if facts is not None:
            self.node = facts
        for key, parked in [(k, p) for k, p in self.parked.items() if p.why == "node"]:
            if key in self.parked:
                del self.parked[key]
                self.decide(parked.pod, key, now, is_live=True)

    def capacity_came(self, now: float) -> None:
        """Decide again about the pods that wait for capacity, because some was freed."""
        for key in [k for k, p in self.parked.items() if p.why in ("capacity", "hold", "defer")]:
            self._retry(key, now)

    def due(self, what: str, key: WorkerKey, now: float) -> None:
        """Handle the timer of a waiting pod."""
        parked = self.parked.get(key)
        match what:
            case "unbind":
                self._stays(key, self.unbinds.call(key, now), now)
            case "hold" if parked is not None and parked.why == "hold":
                self._retry(key, now)
                if key in self.parked:
                    self._out.effects.append(SetTimer(now + HOLD_PERIOD_S, "hold", key))
            case "defer" if parked is not None and parked.why == "defer" and self.deferring.is_due(key, now):
                self._retry(key, now)

    def _retry(self, key: WorkerKey, now: float) -> None:
        parked = self.parked.get(key)
        if parked is None:
            return
        if parked.why != "hold":
            del self.parked[key]
            self.decide(parked.pod, key, now)
            return
        if self.devices is not None and self.devices.is_busy:
            return
        outcome = self.outcome(parked.pod)
        if self.devices is not None and self.devices.takes(key, outcome):
            return
        if isinstance(outcome, Admitted):
            self._on_admitted(parked.pod, key, outcome, now)

    def devices_answered(self, number: int, answer: Answer, now: float) -> None:
        """Take a plugin's answer for the pod that waits for it, then decide about the pods that wait for their turn."""
        assert self.devices is not None
        answered = self.devices.on_answer(number, answer)
        if answered is None:
            return
        asked_for, decision = answered
        if asked_for is not None and (parked := self.parked.get(asked_for)) is not None:
            match decision:
                case None if parked.why == "hold":
                    self._retry(asked_for, now)
                case None:
                    del self.parked[asked_for]
                    self.decide(parked.pod, asked_for, now, is_live=True)
                case Admitted():
                    self._on_admitted(parked.pod, asked_for, decision, now)
                case Rejection() if parked.why != "hold":
                    self._on_rejected(parked.pod, asked_for, decision, now)
        for key in [k for k, p in self.parked.items() if p.why == "turn"]:
            if self.devices.is_busy:
                return
            if key in self.parked:
                self.decide(self.parked.pop(key).pod, key, now)

    def _on_rejected(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        self.parked.pop(key, None)
        is_again = key in self.deferring.waiting
        self._out.log("kubelet.reject", pod, key, {"reason": rejection.reason, "message": rejection.message})
        if not is_again:
            self._out.counts.add("kubelet_admission_rejections_total", rejection.reason)
            self._out.event(pod, rejection.reason, rejection.message, "Warning")
            self._out.span_stage(key, "rejected", rejection.reason)
        if self.deferring.takes(pod, key, rejection, now):
            self.parked[key] = Parked(pod, "defer", rejection)
            return
        if self.unbinds.may_begin(pod, rejection.reason, now):
            self.unbind(pod, key, rejection, now)
            return
        if self.switches.on_reject == "recreate" and pod.metadata.controller is not None:
            # The deletion is confirmed when the watch shows it.
            self._out.end_span(key, rejection.reason)
            self._statuses.recreate(key, pod)
            return
        self._fail(pod, key, self.deferring.final_rejection(rejection) if is_again else rejection, now)

    def unbind(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float, *, torn_s: float = 0.0) -> None:
        """Unbind a pod that has left nothing on the node. `torn_s`: how long its teardown took, in seconds."""
        outcome = self.unbinds.begin(pod, key, rejection.reason, rejection.message, now, torn_s=torn_s)
        self._stays(key, outcome, now)
        if key in self.unbinds.asking:
            self._statuses.status_changed(key, now)

    def ask_first(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        """Request the unbind of a pod whose teardown only begins (`unbind_teardown=after`).

        Two nodes may then hold the pod's resources at once.
        """
        self._tearing[key] = None
        self._stays(key, self.unbinds.begin(pod, key, rejection.reason, rejection.message, now, torn_s=None), now)

    def torn_down(self, pod: KubeletPod, key: WorkerKey, took_s: float, now: float) -> bool:
        """Apply what was decided during the teardown; return whether the unbind was requested before the teardown."""
        if key not in self._tearing:
            return False
        outcome = self._tearing.pop(key)
        self.unbinds.torn_down(pod, key, took_s)
        if key in self.unbinds.going:
            self._statuses.versions.suppress(key)
        self._stays(key, outcome, now)
        return True

    def _fail(self, pod: KubeletPod, key: WorkerKey, rejection: Rejection, now: float) -> None:
        """Reject as Kubernetes does today."""
        self._out.fail_span(key, rejection.reason)
        status: Document = {
            "phase": "Failed",
            "reason": rejection.reason,
            "message": "Pod was rejected: " + rejection.message,
            "startTime": self._times.text(now),
        }
        self._statuses.set_final(key, pod, status, now)

    def pod_updated(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Take a newer view of a pod that is not being deleted."""
        if key in self.parked:
            self.parked[key].pod = pod
        elif pod.is_terminal and self.unbinds.forget_pod(key, pod, ""):
            # Another client ended it: there is nothing left to unbind.
            self._statuses.versions.permit(key)
            self._out.end_span(key, "terminal")
        else:
            self._stays(key, self.unbinds.pod_updated(key, pod, now), now)

    def on_deleted(self, key: WorkerKey, pod: KubeletPod, now: float) -> None:
        """Report an undecided pod that is being deleted as Failed: nothing of it ran, so it is gone after that."""
        self.unbinds.forget_pod(key, pod, "")
        self.forget(key)
        self._statuses.versions.permit(key)
        self._out.end_span(key, "deleted")
        self._statuses.set_final(key, pod, {"phase": "Failed"}, now)

    def unbind_answered(self, key: WorkerKey, answer: UnbindAnswer, now: float) -> None:
        """Take the answer to an unbind."""
        self._stays(key, self.unbinds.on_answer(key, answer, now), now)
        if key in self._tearing:
            # What is being torn down has no status to write, whatever was answered.
            self._statuses.versions.suppress(key)

    def pod_read(self, key: WorkerKey, still_mine: bool, now: float) -> bool:
        """Take a live read of a pod; return whether the pod is being unbound, so that the read was for admission."""
        if key not in self.unbinds.going:
            return False
        self._stays(key, self.unbinds.pod_read(key, still_mine, now), now)
        return True

    def session_read(self, key: WorkerKey, is_mine: bool, now: float) -> None:
        """Take a live read of the Node's kubelet session; the shell ends the node when another kubelet opened it."""
        self._stays(key, self.unbinds.session_read(key, is_mine, now), now)

    def _stays(self, key: WorkerKey, outcome: UnbindOutcome | None, now: float) -> None:
        """Decide what becomes of a pod that was not unbound after all; None: nothing to decide."""
        if outcome is None:
            return
        if key in self._tearing:
            self._tearing[key] = outcome
            self._statuses.versions.suppress(key)
            return
        state = outcome.state
        pod = self._pods.get(key.uid, state.pod)
        match outcome.step:
            case Next.CONFIRM:
                self._out.end_span(key, "Terminating")
                self._statuses.set_final(key, pod, {"phase": "Failed"}, now)
            case Next.RESUME:
                # A guard against bugs: nothing was started here, so decide again from the beginning.
                self._out.counts.add("keplab_kubelet_pod_unbind_already_started_total")
                self._out.end_span(key, "AlreadyStarted")
                self.decide(pod, key, now)
            case Next.ABSENT if state.reason in unbinding.OPT_IN_REASONS:
                # Today's kubelet goes on trying to start it.
                self.decide(pod, key, now)
            case Next.ABSENT:
                self._fail(state.pod, key, Rejection(state.reason, state.message), now)
            case FallBack(code=code):
                self._fall_back(pod, key, state, code, now)

    def _fall_back(self, pod: KubeletPod, key: WorkerKey, state: Unbinding, code: str, now: float) -> None:
        """Fail, or stay Pending, say so, and try admission again every minute and whenever something leaves."""
        if code == "LimitReached":
            self._out.event(pod, "UnbindLimitReached", f"The pod was unbound too often: {state.reason}", "Warning")
        else:
            self._out.event(pod, "UnbindFailed", f"The pod could not be unbound: {code}", "Warning")
        if self.switches.fallback == "fail":
            self._fail(pod, key, Rejection(state.reason, f"{state.message} (unbind: {code})"), now)
            return
        self._out.end_span(key, code)
        self.parked[key] = Parked(pod, "hold", Rejection(state.reason, state.message))
        self._out.event(pod, "UnbindBlocked", f"{state.reason}; the pod cannot be unbound: {code}", "Warning")
        self._out.effects.append(SetTimer(now + HOLD_PERIOD_S, "hold", key))
        message = f"{state.reason}: {state.message}"
        self._blocked[key] = unbinding.pending_status(pod, "UnbindBlocked", code, message, self._times.text(now))
        self._statuses.status_changed(key, now)
