"""The reports of PreEnqueue rejections in a pod's status, and their times: the models of KEP-5501.

*Explicit* models show the text that a plugin wrote for users, *implicit* ones the message of its status;
*immediate* ones send at once, *delayed* ones after five seconds, so that a short rejection is never seen.
The memory of what was reported is on the queued pod (`reported`): the same text is sent once. Beside the
models are the alternatives of the review: another reason, a condition of its own, delays that plugins
choose, the status of the pod's group. Pure: reports to send are returned. Source: kep-5501 3 to 5, 7 and
12.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import (
    NOT_READY,
    POD_SCHEDULED,
    SCHEDULING_GATED,
    ClearCondition,
    SetCondition,
    StatusPatch,
    pod_group_status_patch,
    status_patch,
)
from scheduler.framework.status import SUCCESS, Status
from scheduler.queue.queued_pod import QueuedPod
from scheduler.switches import ReportSwitches
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import INITIALLY_SCHEDULED, PodGroup
from services.api.meta import Condition, find_condition
from services.api.switches import Switches

GATE: Final = "SchedulerPreEnqueuePodStatus"
REQUIRED_GATE: Final = "SchedulerAsyncAPICalls"
SILENT: Final = "blocked on PreEnqueue by plugin: {plugin}"


class Model(StrEnum):
    """The reporting models of kep-5501 7."""

    OFF = "off"
    EXPLICIT_IMMEDIATE = "explicit_immediate"
    EXPLICIT_DELAYED = "explicit_delayed"
    IMPLICIT_DELAYED_OPTOUT = "implicit_delayed_optout"
    IMPLICIT_DELAYED = "implicit_delayed"
    IMPLICIT_IMMEDIATE = "implicit_immediate"


@dataclass(frozen=True)
class ReportRules(ReportSwitches):
    """The model and its options."""

    @property
    def is_immediate(self) -> bool:
        """Whether the model has no delay."""
        return self.model in (Model.EXPLICIT_IMMEDIATE, Model.IMPLICIT_IMMEDIATE)

    @property
    def has_own_condition(self) -> bool:
        """Whether reports are in a condition that no bind overwrites."""
        return self.condition != POD_SCHEDULED


def rules_of(switches: Switches) -> ReportRules:
    """Return the rules from the switches; without the feature gate nothing is reported."""
    rules = switches.of(ReportRules)
    return rules if rules.is_on else replace(rules, model=Model.OFF)


def missing_gate(switches: Switches) -> str:
    """Return why the scheduler may not start with these gates, or ""."""
    if switches.flag(GATE) and not switches.flag(REQUIRED_GATE):
        return f"feature gate {GATE}=true requires {REQUIRED_GATE}=true, which is false"
    return ""


class Report(NamedTuple):
    """A call to make in `delay_s` seconds."""

    call: StatusPatch
    delay_s: float


@dataclass
class Reporter:
    """Observes every relevant answer of PreEnqueue; returns reports for the status of the pod or its group.

    The reported text of a group is remembered by its uid until the group is forgotten.
    """

    rules: ReportRules
    user_message: Callable[[PodInfo, Status], str | None]
    """The rejecting plugin's message for users; "" for none, None when it has no opinion."""
    asked_delay_s: Callable[[PodInfo, Status], float | None] = lambda info, status: None
    """The delay that the rejecting plugin wants for the report, in seconds; None when it has no opinion."""
    _said_of: dict[str, str] = field(default_factory=dict)

    def observe(self, queued: QueuedPod, status: Status) -> Report | None:
        """Return the call that this answer requires; it is remembered at once, as if it were made."""
        text = self._text(queued.info, status, queued.reported)
        return None if text is None else self._say(queued, text, status)

    def observe_member(self, group: PodGroup, queued: QueuedPod, status: Status) -> Report | None:
        """Return the call about the pod's group that this answer requires, once for all members with the same text."""
        uid = group.metadata.uid
        reported_text = self._said_of.get(uid, "")
        text = self._text(queued.info, status, reported_text)
        if text and not reported_text:
            reported_text = self._shown_message(group.status.conditions, INITIALLY_SCHEDULED, text)
        if text is None:
            return None
        if text:
            self._said_of[uid] = text
        else:
            self.forget_group(uid)
        if text == reported_text:
            return None
        change: SetCondition | ClearCondition = self._clearing(INITIALLY_SCHEDULED, reported_text)
        if text:
            generation = group.metadata.generation
            change = SetCondition(self.rules.reason, text, INITIALLY_SCHEDULED, observed_generation=generation)
        event = (self.rules.reason, text) if text else None
        call = pod_group_status_patch(group, change, event=event, traceparent=queued.traceparent)
        return Report(call, self._delay(queued.info, text, status))

    def forget_group(self, uid: str) -> None:
        """Forget the reported text of a group that is gone."""
        self._said_of.pop(uid, None)

    def withdraw(self, queued: QueuedPod) -> Report | None:
        """Return the call that removes the report from the pod's own status; None when there is no report."""
        return self._say(queued, "", SUCCESS)

    def clearing_call(self, pod: Pod) -> StatusPatch | None:
        """Return the call that removes a report from a pod that has a node: a bind overwrites PodScheduled alone."""
        rules = self.rules
        if rules.model == Model.OFF or not rules.has_own_condition:
            return None
        call = status_patch(pod, ClearCondition(rules.reason, rules.condition), is_report=True)
        return None if call.is_noop else call

    def message_of(self, info: PodInfo, status: Status) -> str:
        """Return the text that the model shows for this rejection; empty for none."""
        match self.rules.model:
            case Model.EXPLICIT_IMMEDIATE | Model.EXPLICIT_DELAYED:
                return self.user_message(info, status) or ""
            case Model.IMPLICIT_DELAYED_OPTOUT:
                return "" if self.user_message(info, status) == "" else status.message
            case _:
                return status.message

    def _text(self, info: PodInfo, status: Status, reported: str) -> str | None:
        """Return what should stand in the status now: "" for nothing, None for whatever stands there."""
        if self.rules.model == Model.OFF:
            return None
        if status.is_success:
            return ""
        if message := self.message_of(info, status):
            return message
        if reported and self.rules.on_other_plugin_rejects == "generic":
            return SILENT.format(plugin=status.plugin)
        return "" if self.rules.on_other_plugin_rejects == "clear" else None

    def _say(self, queued: QueuedPod, text: str, status: Status) -> Report | None:
        pod, rules, reported_text = queued.info.pod, self.rules, queued.reported
        if text and not reported_text:
            reported_text = self._shown_message(pod.status.conditions, rules.condition, text)
        queued.reported = text
        if text == reported_text:
            return None
        event = (rules.reason, text) if text else None
        change = (
            SetCondition(rules.reason, text, rules.condition)
            if text
            else self._clearing(rules.condition, reported_text)
        )
        call = status_patch(pod, change, event=event, traceparent=queued.traceparent, is_report=True)
        return Report(call, self._delay(queued.info, text, status))

    def _clearing(self, condition: str, said: str) -> ClearCondition:
        # Unschedulable is mostly an attempt's word, SchedulingGated the API server's: there the text says whose it is.
        return ClearCondition(self.rules.reason, condition, "" if self.rules.reason == NOT_READY else said)

    def _delay(self, info: PodInfo, text: str, status: Status) -> float:
        rules = self.rules
        if rules.is_immediate:
            return 0.0
        if not text:
            return rules.clear_delay_s
        asked_s = self.asked_delay_s(info, status)
        return rules.delay_s if asked_s is None else asked_s

    def _shown_message(self, conditions: tuple[Condition, ...], type_: str, text: str) -> str:
        """Return what the status says already: after a restart the same words need not be sent again."""
        shown = find_condition(conditions, type_)
        if shown is None or shown.status != "False":
            return ""
        # An Unschedulable message is not ours: passing PreEnqueue later must not clear it. Where the reason is shared,
        # only the very text is.
        is_ours = shown.reason in (NOT_READY, SCHEDULING_GATED)
        return shown.message if is_ours or (shown.reason, shown.message) == (self.rules.reason, text) else ""
