"""The pods that a node unbinds: calls, waits and reads for each, until it is gone or decided otherwise. Pure.

`unbinding` has the meaning of one answer; here it is carried out, for all pods of the node. A pod that was
not unbound is reported as an outcome, and the kubelet decides about it. Pods that the API server put off
form a line, by namespace because limits are per namespace: only the first of a line asks again, and the
next one once that is settled. Source: kubelet-unbinding 6.2; decision 0021.
"""

import msgspec

from kubelet.effects import CallUnbind, Outbox, ReadNode, ReadPod, SetTimer
from kubelet.pod.context import WallTimes
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind import unbinding
from kubelet.unbind.unbinding import FallBack, Next, Step, UnbindAnswer, Unbinding, Wait
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Document, find_condition
from services.api.unbind import REQUESTED, request_id
from services.telemetry.metrics import DEFAULT_BOUNDS

UNTIL_RUNNING = "pod_unbinds_until_running"
UNANSWERED_MAX = 1_000
"""Maximal number of pods whose answers may still come after the watch showed them gone."""


class UnbindOutcome(msgspec.Struct, frozen=True):
    """The end of an unbind whose pod stays here. `step` is the reason: CONFIRM, RESUME, ABSENT or a FallBack."""

    state: Unbinding
    step: Step


class UnbindManager:
    """The bindings that one node is unbinding.

    Invariant: as long as a pod is in `going`, its status is suppressed, or is the one that `asking` has for it.
    Invariant: a pod in a line is in `going`, and the first pod of each line asks or has a timer to ask.
    """

    def __init__(
        self, node: str, switches: KubeletSwitches, statuses: StatusVersions, out: Outbox, times: WallTimes
    ) -> None:
        self._times = times
        self.going: dict[WorkerKey, Unbinding] = {}
        self.asking: dict[WorkerKey, Document] = {}
        self._node, self._switches, self._statuses, self._out = node, switches, statuses, out
        self._lines: dict[str, dict[WorkerKey, None]] = {}
        """By namespace, the pods that were put off, in that order."""
        self._absent_until_s = float("-inf")
        self._running: set[WorkerKey] = set()
        """Bindings whose containers have run: a restart of a container is not another start of the pod."""
        self._unanswered: dict[WorkerKey, Unbinding] = {}

    def begin(
        self, pod: KubeletPod, key: WorkerKey, reason: str, message: str, now: float, *, torn_s: float | None = 0.0
    ) -> UnbindOutcome | None:
        """Begin to unbind the pod; from now on nothing else writes the pod's status.

        `torn_s`: seconds that its teardown took; None: it is still going on.
        """
        is_asking = self._switches.unbind_api == "condition"
        if not is_asking:
            self._statuses.suppress(key)
        state = self.going[key] = Unbinding(pod, reason, message, now, self._switches.request_deadline_s)
        state.torn_s = torn_s
        if self._switches.teardown == "before" and torn_s is not None:
            # Also of a pod rejected at admission, of which nothing was set up: the line comes before the call (I4).
            self.torn_down(pod, key, torn_s)
        self._out.event(pod, "UnbindRequested", f"Unbinding the pod: {reason}", "Normal")
        self._out.span_stage(key, "unbinding", reason)
        if is_asking:
            # By this condition a kubelet asks the controller to unbind the pod (`unbind.api=condition`).
            text, since = message[: unbinding.MESSAGE_MAX], self._times.text(now)
            self.asking[key] = unbinding.pending_status(pod, REQUESTED, reason, text, since)
        return self.call(key, now)

    def pod_updated(self, key: WorkerKey, pod: KubeletPod, now: float) -> UnbindOutcome | None:
        """Take the pod as the API shows it: the controller may have refused to unbind it."""
        state = self.going.get(key)
        if state is None:
            return None
        state.pod = pod  # the next try names this version (`unbind.fence=resourceVersion`)
        if key not in self.asking:
            return None
        answer = find_condition(pod.status.conditions, REQUESTED)
        if answer is None or answer.status != "False":
            return None
        self._out.log("kubelet.unbind_result", pod, key, {"result": answer.reason, "code": 422})
        self._out.counts.add("kubelet_pod_unbind_total", state.reason, answer.reason)
        return self._step(key, state, FallBack(answer.reason), now)

    def forget_pod(self, key: WorkerKey, pod: KubeletPod, result: str) -> bool:
        """Forget a pod that has left the node, or ends otherwise; return whether it was being unbound."""
        self._running.discard(key)
        state = self.going.pop(key, None)
        if state is None:
            return False
        self._leave_line(key, state)
        if state.is_calling:
            # The watch may show the unbind sooner than the answer does.
            self._unanswered[key] = state
            if len(self._unanswered) > UNANSWERED_MAX:
                del self._unanswered[next(iter(self._unanswered))]
        self.asking.pop(key, None)
        if result:
            self._out.log("kubelet.unbind_result", pod, key, {"result": result})
        return True

    def pod_read(self, key: WorkerKey, still_mine: bool, now: float) -> UnbindOutcome | None:
        """Take a live read of a pod that is being unbound."""
        state = self.going[key]
        return self._step(key, state, state.pod_read(still_mine), now)

    def on_started(self, pod: KubeletPod, key: WorkerKey) -> None:
        """Observe once, when a container of this binding runs, how often the pod was unbound before."""
        if key in self._running:
            return
        self._running.add(key)
        self._out.observe(UNTIL_RUNNING, pod.status.unbind_count, bounds=(0, 1, 2, 4, 8))

    def torn_down(self, pod: KubeletPod, key: WorkerKey, took_s: float) -> None:
        """Log that nothing of the pod is left on the node, and observe the time of its teardown."""
        self._out.log("kubelet.teardown_done", pod, key, {})
        self._out.observe("kubelet_unbind_teardown_seconds", took_s, bounds=DEFAULT_BOUNDS)

    def may_begin(self, pod: KubeletPod, reason: str, now: float) -> bool:
        """Whether a pod rejected for this reason may be unbound now."""
        switches = self._switches
        return (
            switches.on_reject in ("unbind", "defer-then-unbind")
            and switches.has_unbinding
            and switches.unbind_api in ("subresource", "binding_delete", "condition")
            and now >= self._absent_until_s
            and unbinding.may_unbind(pod, reason, user_bound=switches.user_bound, reasons=switches.unbind_reasons)
        )

    def call(self, key: WorkerKey, now: float) -> UnbindOutcome | None:
        """Send the unbind request, unless it is too early or a request is in flight."""
        state = self.going.get(key)
        if state is None:
            return None
        if key in self.asking or self._waits_in_line(key, state):
            return self._step(key, state, state.on_requested(now), now)
        return self._step(key, state, state.call(now), now)

    def on_answer(self, key: WorkerKey, answer: UnbindAnswer, now: float) -> UnbindOutcome | None:
        """Take the answer to an unbind."""
        code = answer.code
        state = self.going.get(key)
        result = "ok" if code in (200, 201) else answer.reason or str(code)
        if state is None:
            # The watch had shown it to be gone already, but it is counted.
            if (late := self._unanswered.pop(key, None)) is not None:
                self._out.counts.add("kubelet_pod_unbind_total", late.reason, result)
                if code in (200, 201):
                    self._took(late, now)
            return None
        self._out.log("kubelet.unbind_result", state.pod, key, {"result": result, "code": code})
        self._out.counts.add("kubelet_pod_unbind_total", state.reason, result)
        step = state.answer(answer, now)
        if code == 429 and isinstance(step, Wait):
            self._lines.setdefault(state.pod.metadata.namespace, {})[key] = None
            step = state.on_requested(now) if self._waits_in_line(key, state) else step
        else:
            self._leave_line(key, state)
        return self._step(key, state, step, now)

    def _waits_in_line(self, key: WorkerKey, state: Unbinding) -> bool:
        """Whether another pod was put off before this one, and is not settled yet."""
        line = self._lines.get(state.pod.metadata.namespace, {})
        return key in line and next(iter(line)) != key

    def _leave_line(self, key: WorkerKey, state: Unbinding) -> None:
        """Forget that the pod was put off; if it was the first, it is the next one's turn."""
        namespace = state.pod.metadata.namespace
        line = self._lines.get(namespace, {})
        if key not in line:
            return
        was_first = next(iter(line)) == key
        del line[key]
        if not line:
            del self._lines[namespace]
        elif was_first:
            following = next(iter(line))
            self._out.effects.append(SetTimer(self.going[following].retry_at_s, "unbind", following))

    def _took(self, state: Unbinding, now: float) -> None:
        self._out.observe("kubelet_pod_unbind_duration_seconds", now - state.started_s, bounds=DEFAULT_BOUNDS)

    def session_read(self, key: WorkerKey, is_mine: bool, now: float) -> UnbindOutcome | None:
        """Take a live read of the Node's kubelet session."""
        state = self.going.get(key)
        if state is None or not is_mine:
            return None
        return self._step(key, state, state.session_read(now), now)

    def _step(self, key: WorkerKey, state: Unbinding, step: Step, now: float) -> UnbindOutcome | None:
        match step:
            case Next.CALL:
                named = request_id(key.uid, key.generation, self._node)
                data = {"reason": state.reason, "try": state.tries, "request_id": named}
                self._out.log("kubelet.unbind_call", state.pod, key, data)
                self._out.effects.append(CallUnbind(key, state.pod, state.reason, state.message))
            case Wait(until_s=until_s):
                self._out.effects.append(SetTimer(until_s, "unbind", key))
            case Next.DONE | Next.GONE:
                if step is Next.DONE:
                    if self._switches.teardown == "after" and state.torn_s is not None:
                        self.torn_down(state.pod, key, state.torn_s)
                    self._took(state, now)
                self._stop(key)
                self._out.end_span(key, "" if step is Next.DONE else "gone")
                self._statuses.forget(key)
            case Next.READ_POD:
                self._out.effects.append(ReadPod(key, state.pod))
            case Next.READ_SESSION:
                self._out.effects.append(ReadNode(key, True))
            case _:
                if step is Next.ABSENT:
                    self._absent_until_s = now + unbinding.ABSENT_S
                self._stop(key)
                return UnbindOutcome(state, step)
        return None

    def _stop(self, key: WorkerKey) -> None:
        self._leave_line(key, self.going.pop(key))
        self.asking.pop(key, None)
        self._statuses.permit(key)
