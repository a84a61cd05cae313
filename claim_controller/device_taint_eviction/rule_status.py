"""The status of a DeviceTaintRule: how many pods it evicts, in upstream's words. Pure.

Source: dra-core 8; upstream `pkg/controller/devicetainteviction/device_taint_eviction.go`
(`maybeUpdateRuleStatus`).
"""

from dataclasses import dataclass

from services.api.kinds.devicetaintrule import EVICTION_IN_PROGRESS, DeviceTaintRule
from services.api.kinds.resourceslice import NO_EXECUTE
from services.api.meta import Document
from services.api.times import format_time

NONE = "None"
"""Effect of a rule that only previews NoExecute."""


@dataclass(frozen=True)
class Counts:
    """`pods` to evict, the number of their `namespaces`, devices that the rule selects, and pods `evicted` so far."""

    pods: int = 0
    namespaces: int = 0
    published: int = 0
    allocated: int = 0
    evicted: int = 0


def condition_of(rule: DeviceTaintRule, counts: Counts, wall_s: float) -> Document:
    """Return the condition EvictionInProgress."""
    reason, message, is_true = _reason_and_message(rule.spec.taint.effect, counts)
    if counts.evicted:
        message = f"{message} {_many(counts.evicted, 'pod')} evicted since starting the controller.".lstrip()
    return {
        "type": EVICTION_IN_PROGRESS,
        "status": "True" if is_true else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": rule.metadata.generation,
        "lastTransitionTime": format_time(wall_s),
    }


def _reason_and_message(effect: str, counts: Counts) -> tuple[str, str, bool]:
    spaces = _many(counts.namespaces, "namespace", "different namespaces")
    if effect == NO_EXECUTE:
        if counts.pods:
            needs = "needs" if counts.pods == 1 else "need"
            return "PodsPendingEviction", f"{_many(counts.pods, 'pod')} {needs} to be evicted in {spaces}.", True
        return ("Completed" if counts.evicted else "NotStarted"), "", False
    if effect == NONE:
        message = (
            f"{_many(counts.published, 'published device')} selected. "
            f"{_many(counts.allocated, 'allocated device')} selected. "
            f"{_many(counts.pods, 'pod')} would be evicted in {spaces} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
        return "NoEffect", message, False
    return "OtherEffect", "Eviction only happens for the NoExecute effect.", False


def _many(number: int, one: str, several: str = "") -> str:
    return f"1 {one}" if number == 1 else f"{number} {several or one + 's'}"
