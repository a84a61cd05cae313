"""The form of statuses in a decision record, and the recording of answers after a choice. Pure.

Source: simulator 2.1; kubernetes-sigs/kube-scheduler-simulator,
`simulator/scheduler/plugin/wrappedplugin.go`.
"""

from dataclasses import dataclass
from typing import Any

from scheduler.framework.status import Code, Status
from services.api.times import Duration

PASSED, SUCCESS, WAIT, VICTIM = "passed", "success", "wait", "preemption victim"
Answers = dict[str, Any]


@dataclass(frozen=True)
class RecordRules:
    """The rules of a record. `skip`: the text for a plugin that skips, None for no text.

    `all_nodes`: whether nodes that the cycle did not visit are recorded, too.
    """

    skip: str | None = ""
    all_nodes: bool = False

    def texts(self, statuses: dict[str, Status]) -> dict[str, str]:
        """Return by plugin "success" or the message."""
        found = {plugin: self.text(status) for plugin, status in statuses.items()}
        return {plugin: text for plugin, text in found.items() if text is not None}

    def text(self, status: Status) -> str | None:
        """Return the recorded text of a status; None: it is not recorded."""
        if status.code is Code.SKIP:
            return self.skip
        return SUCCESS if status.is_success else WAIT if status.code is Code.WAIT else status.message


def add_answer(answers: Answers, rules: RecordRules, point: str, plugin: str, status: Status, timeout_s: float) -> None:
    """Record a plugin's answer at Reserve, Permit, PreBind or Bind."""
    text = rules.text(status)
    if text is None:
        return
    answers[f"{point}-result"][plugin] = text
    if point == "permit":
        answers["permit-result-timeout"][plugin] = Duration(timeout_s).text


def bind_failed(found: Answers, message: str) -> None:
    """Record that the call of a Bind plugin failed."""
    by_plugin: dict[str, str] = found["bind-result"]
    by_plugin.update({plugin: message for plugin, text in by_plugin.items() if text == SUCCESS})
