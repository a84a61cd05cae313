"""What follows an answer of PreEnqueue: a line in the event log, and perhaps a word in the pod's status (KEP-5501)."""

from dataclasses import dataclass

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.profiles import Profiles
from scheduler.dispatcher.calls import StatusPatch
from scheduler.dispatcher.dispatch import Dispatcher
from scheduler.framework.proposed import ExplainsGate
from scheduler.framework.status import Status
from scheduler.queue.preenqueue_status import Reporter, ReportRules
from scheduler.queue.queued_pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.recorder import SchedulerRecorder


@dataclass
class GateReports:
    """Stands between the queue, which asks the gates, and the dispatcher, which writes the pods' status."""

    rules: ReportRules
    profiles: Profiles
    queue: SchedulingQueue
    dispatcher: Dispatcher
    recorder: SchedulerRecorder

    def __post_init__(self) -> None:
        self._reporter = Reporter(self.rules, self._user_message)
        self.queue.on_gate = self.observe
        self.dispatcher.on_event = self._record_event

    def observe(self, queued: QueuedPod, status: Status, now: float) -> None:
        """Take in a rejection, or that a pod rejected before passes now."""
        logged = (status.plugin, status.message)
        if logged != queued.gate_logged:
            queued.gate_logged = logged
            data = {} if status.is_success else {"plugin": status.plugin, "message": status.message}
            if data and (shown := self._reporter.message_of(queued.info, status)) != status.message:
                data["shown"] = shown
            self.recorder.gate("sched.gated" if data else "sched.ungated", queued.info, data)
        report = self._reporter.observe(queued, status)
        if report is not None:
            self.dispatcher.later(report.call, delay_s=report.delay_s)

    def _user_message(self, info: PodInfo, status: Status) -> str | None:
        plugin = self.profiles.runner_of(info).plugins_by_name.get(status.plugin)
        return plugin.gate_message(info, status) if isinstance(plugin, ExplainsGate) else None

    def _record_event(self, call: StatusPatch) -> None:
        queued = self.queue.by_uid(call.uid)
        if queued is not None and call.event is not None:
            reason, message = call.event
            cause = call.causes[0] if call.causes else ""
            self.recorder.event(queued.info, reason, message, is_warning=True, traceparent=cause)
