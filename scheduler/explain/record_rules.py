"""How statuses are written into a decision record, and what follows a choice is taken in. Pure.

Source: simulator 2.1; kubernetes-sigs/kube-scheduler-simulator, `simulator/scheduler/plugin/wrappedplugin.go`.
"""

from dataclasses import dataclass
from typing import Any

from scheduler.framework.status import Code, Status
from services.api.times import Duration

PASSED, SUCCESS, WAIT, VICTIM = "passed", "success", "wait", "preemption victim"
Answers = dict[str, Any]


@dataclass(frozen=True)
class RecordRules:
    """`skip`: what stands for a plugin that skips, None for nothing; `all_nodes`: also those the cycle left out."""

    skip: str | None = ""
    all_nodes: bool = False

    def texts(self, statuses: dict[str, Status]) -> dict[str, str]:
        """Return plugin to "success" or message."""
        found = {plugin: self.text(status) for plugin, status in statuses.items()}
        return {plugin: text for plugin, text in found.items() if text is not None}

    def text(self, status: Status) -> str | None:
        """Return how a status is recorded; None: not at all."""
        if status.code is Code.SKIP:
            return self.skip
        return SUCCESS if status.is_success else WAIT if status.code is Code.WAIT else status.message


def answered(found: Answers, rules: RecordRules, point: str, plugin: str, status: Status, timeout_s: float) -> None:
    """Take in what a plugin answered at Reserve, Permit, PreBind or Bind."""
    text = rules.text(status)
    if text is None:
        return
    found[f"{point}-result"][plugin] = text
    if point == "permit":
        found["permit-result-timeout"][plugin] = Duration(timeout_s).text


def bind_failed(found: Answers, message: str) -> None:
    """Take in that the call which a Bind plugin asked for failed."""
    by_plugin: dict[str, str] = found["bind-result"]
    by_plugin.update({plugin: message for plugin, text in by_plugin.items() if text == SUCCESS})
