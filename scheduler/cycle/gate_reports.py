"""The effects of PreEnqueue's answers: a line in the event log, and maybe a pod condition (KEP-5501)."""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import group_of
from scheduler.cycle.profiles import Profiles
from scheduler.dispatcher.calls import PodGroupStatusPatch, StatusPatch
from scheduler.dispatcher.dispatch import Dispatcher
from scheduler.framework.proposal_points import DelaysGateReport, ExplainsGate
from scheduler.framework.status import Status
from scheduler.queue.preenqueue_status import Reporter, ReportRules
from scheduler.queue.queued_pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.recorder import SchedulerRecorder
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key
from services.reconcile.controller import Change


@dataclass
class GateReports:
    """Stands between the queue, which runs PreEnqueue, and the dispatcher, which writes the pods' status.

    `find_group`: returns the group of that key, where groups are queued as one and their status has the
    reports; else None.
    """

    rules: ReportRules
    profiles: Profiles
    queue: SchedulingQueue
    dispatcher: Dispatcher
    recorder: SchedulerRecorder
    find_group: Callable[[Key], PodGroup | None] = lambda key: None

    def __post_init__(self) -> None:
        asked_delay_s = self._asked_delay_s if self.rules.delay_scope != "global" else lambda info, status: None
        self._reporter = Reporter(self.rules, self._user_message, asked_delay_s)
        self.queue.on_gate = self.observe
        self.dispatcher.on_report = self._record_report

    def observe(self, queued: QueuedPod, status: Status, now: float) -> None:
        """Take a rejection, or the news that a pod rejected before passes now."""
        logged = (status.plugin, status.message)
        if logged != queued.gate_logged:
            queued.gate_logged = logged
            data = {} if status.is_success else {"plugin": status.plugin, "message": status.message}
            if data and (shown := self._reporter.message_of(queued.info, status)) != status.message:
                data["shown"] = shown
            self.recorder.gate("sched.gated" if data else "sched.ungated", queued.info, data)
        group = self._group_of(queued.info)
        if group is None:
            reports = [self._reporter.observe(queued, status)]
        else:
            # What the pod itself said while its group did not exist is said by the group now.
            reports = [self._reporter.withdraw(queued), self._reporter.observe_member(group, queued, status)]
        for report in reports:
            if report is not None:
                self.dispatcher.later(report.call, delay_s=report.delay_s)

    def on_bound(self, pod: Pod) -> None:
        """Take a pod that has a node: clear a report that its bind did not overwrite."""
        if self.rules.has_own_condition and (call := self._reporter.clearing_call(pod)) is not None:
            self.dispatcher.later(call)

    def on_group(self, change: Change[PodGroup]) -> None:
        """Take a change of a group whose status may have reports."""
        if change.new is not None:
            self.dispatcher.sync(change.new)
        else:
            self.dispatcher.drop(change.object.metadata.uid)
            self._reporter.forget_group(change.object.metadata.uid)

    def _group_of(self, info: PodInfo) -> PodGroup | None:
        key = group_of(info.pod) if self.rules.target == "podgroup" else None
        group = self.find_group(key) if key is not None else None
        # True is never taken back: members that come later speak for themselves.
        return None if group is None or group.is_scheduled else group

    def _user_message(self, info: PodInfo, status: Status) -> str | None:
        plugin = self.profiles.runner_of(info).plugins_by_name.get(status.plugin)
        return plugin.gate_message(info, status) if isinstance(plugin, ExplainsGate) else None

    def _asked_delay_s(self, info: PodInfo, status: Status) -> float | None:
        plugin = self.profiles.runner_of(info).plugins_by_name.get(status.plugin)
        if not isinstance(plugin, DelaysGateReport):
            return None
        return plugin.gate_delay_s if self.rules.delay_scope == "per_plugin" else plugin.delay_of_gate(info, status)

    def _record_report(self, call: StatusPatch, size: int) -> None:
        if call.is_report:
            self.recorder.report(call, size)
        if call.event is None:
            return
        reason, message = call.event
        cause = call.causes[0] if call.causes else ""
        if isinstance(call, PodGroupStatusPatch):
            self.recorder.group_event(call.key, call.uid, self.profiles.names[0], reason, message, cause)
        elif (queued := self.queue.by_uid(call.uid)) is not None:
            self.recorder.event(queued.info, reason, message, is_warning=True, traceparent=cause)
