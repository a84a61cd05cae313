"""What a pod's status says of its rejection at PreEnqueue, and when: the models that KEP-5501 weighs.

*Explicit* models show the text that a plugin wrote for users, *implicit* ones what its status says anyway; *immediate*
ones send at once, *delayed* ones after five seconds, so that a passing no is never seen. The memory of what was
reported is on the queued pod (`reported`): the same words are sent once. Pure: what is to be sent is returned.
Source: kep-5501 3 to 5 and 7.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    status_patch,
)
from scheduler.framework.status import Status
from scheduler.queue.queued_pod import QueuedPod
from services.api.kinds.pod import Pod
from services.api.meta import find_condition
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
class ReportRules:
    """The model and its knobs."""

    model: Model = Model.IMPLICIT_DELAYED
    delay_s: float = 5.0
    clear_delay_s: float = 5.0
    on_other_plugin_rejects: str = "keep_stale"


def rules_of(switches: Switches) -> ReportRules:
    """Return what the switches say; without the feature gate nothing is reported."""
    is_on = switches.flag(GATE)
    return ReportRules(
        model=Model(switches.choice("preenqueue_report.model")) if is_on else Model.OFF,
        delay_s=switches.number("preenqueue_report.delay_s"),
        clear_delay_s=switches.number("preenqueue_report.clear_delay_s"),
        on_other_plugin_rejects=switches.choice("preenqueue_report.on_other_plugin_rejects"),
    )


def missing_gate(switches: Switches) -> str:
    """Return why the scheduler may not start with these gates, or ""."""
    if switches.flag(GATE) and not switches.flag(REQUIRED_GATE):
        return f"feature gate {GATE}=true requires {REQUIRED_GATE}=true, which is false"
    return ""


class Report(NamedTuple):
    """A call to make, `delay_s` from now."""

    call: StatusPatch
    delay_s: float


@dataclass
class Reporter:
    """Observes every answer of PreEnqueue that matters; returns what the pod's status should say."""

    rules: ReportRules
    user_message: Callable[[PodInfo, Status], str | None]
    """What the plugin that rejected wants people to read; "" for nothing, None when it has no opinion."""

    def observe(self, queued: QueuedPod, status: Status) -> Report | None:
        """Return the call that this answer asks for; remembers it at once, as if it were made."""
        if self.rules.model is Model.OFF:
            return None
        if status.is_success:
            return self._clear(queued)
        message = self.message_of(queued.info, status)
        if message:
            return self._say(queued, message)
        if queued.reported and self.rules.on_other_plugin_rejects == "generic":
            return self._say(queued, SILENT.format(plugin=status.plugin))
        if self.rules.on_other_plugin_rejects == "clear":
            return self._clear(queued)
        return None

    def message_of(self, info: PodInfo, status: Status) -> str:
        """Return the text that the model shows of this rejection, "" for none."""
        match self.rules.model:
            case Model.EXPLICIT_IMMEDIATE | Model.EXPLICIT_DELAYED:
                return self.user_message(info, status) or ""
            case Model.IMPLICIT_DELAYED_OPTOUT:
                return "" if self.user_message(info, status) == "" else status.message
            case _:
                return status.message

    def _say(self, queued: QueuedPod, message: str) -> Report | None:
        pod = queued.info.pod
        if not queued.reported:
            queued.reported = _shown(pod)
        if queued.reported == message:
            return None
        queued.reported = message
        condition, event = SetCondition(NOT_READY, message), (NOT_READY, message)
        call = status_patch(pod, condition, event=event, traceparent=queued.traceparent)
        return Report(call, self._delay(self.rules.delay_s))

    def _clear(self, queued: QueuedPod) -> Report | None:
        if not queued.reported:
            return None
        queued.reported = ""
        call = status_patch(queued.info.pod, ClearCondition(), traceparent=queued.traceparent)
        return Report(call, self._delay(self.rules.clear_delay_s))

    def _delay(self, delay_s: float) -> float:
        return 0.0 if self.rules.model in (Model.EXPLICIT_IMMEDIATE, Model.IMPLICIT_IMMEDIATE) else delay_s


def _shown(pod: Pod) -> str:
    """Return what the pod's status says already: after a restart the same words need not be sent again."""
    shown = find_condition(pod.status.conditions, POD_SCHEDULED)
    # An Unschedulable message is not ours: passing PreEnqueue later must not clear it.
    is_ours = shown is not None and shown.status == "False" and shown.reason in (NOT_READY, SCHEDULING_GATED)
    return shown.message if shown is not None and is_ours else ""
