"""Limits on a recommendation: stabilization over time, scaling rates, and bounds. Pure.

Source: upstream `pkg/controller/podautoscaler/horizontal.go`; KEP-853.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from services.api.kinds.horizontalpodautoscaler import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HPAScalingRules,
)

DOWNSCALE_STABILIZATION_S = 300.0
UP_FACTOR, UP_LEAST = 2.0, 4.0
"""Limit of one step up without a behavior: the larger of this factor and this number of replicas."""
WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
READY = ("ReadyForNewScale", "recommended size matches current size")
UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
Said = tuple[str, str]
"""Reason and message of a condition."""


class Moved(NamedTuple):
    """A change of the number of replicas, or a recommended number, with its time."""

    at_s: float
    number: int


@dataclass
class History:
    """Recommendations and changes of one autoscaler. Times are monotonic."""

    recommended: list[Moved] = field(default_factory=list)
    ups: list[Moved] = field(default_factory=list)
    downs: list[Moved] = field(default_factory=list)

    def record_scale(self, before: int, after: int, now_s: float) -> None:
        """Record a change of the number of replicas."""
        moves = self.ups if after > before else self.downs
        moves.append(Moved(now_s, abs(after - before)))
        moves[:] = [each for each in moves if each.at_s > now_s - 1800.0]


class Limited(NamedTuple):
    """A limited recommendation, with the texts of the conditions AbleToScale and ScalingLimited."""

    replicas: int
    able: Said
    limit: Said
    is_limited: bool


def limit_replicas(
    scaler: HorizontalPodAutoscaler, history: History, current: int, wanted: int, now_s: float
) -> Limited:
    """Return the number of replicas to set now, given the wanted number; record the recommendation."""
    spec = scaler.spec
    if spec.behavior is None:
        window_s = DOWNSCALE_STABILIZATION_S
        recent = [each.number for each in history.recommended if each.at_s >= now_s - window_s]
        _remember(history, wanted, now_s, window_s)
        stable, reason = max([wanted, *recent]), DOWN_STABILIZED
        replicas, limit = _within_rates(current, stable, spec.min_replicas, spec.max_replicas)
    else:
        stable, reason = _stabilize(spec.behavior, history, current, wanted, now_s)
        replicas, limit = _within_behavior(scaler, spec.behavior, history, current, stable, now_s)
    return Limited(replicas, READY if stable == wanted else reason, limit, replicas != stable)


def _remember(history: History, wanted: int, now_s: float, window_s: float) -> None:
    kept = [each for each in history.recommended if each.at_s >= now_s - window_s]
    history.recommended = [*kept, Moved(now_s, wanted)]


def _within_rates(current: int, wanted: int, least: int, most: int) -> tuple[int, Said]:
    rate = int(max(UP_FACTOR * current, UP_LEAST))
    highest, reason = (rate, UP_LIMIT) if most > rate else (most, TOO_MANY)
    if wanted < least:
        return least, TOO_FEW
    return (highest, reason) if wanted > highest else (wanted, WITHIN)


def _window_s(rules: HPAScalingRules | None, default_s: float) -> float:
    seconds = rules.stabilization_window_seconds if rules is not None else None
    return default_s if seconds is None else float(seconds)


def _stabilize(
    behavior: HorizontalPodAutoscalerBehavior, history: History, current: int, wanted: int, now_s: float
) -> tuple[int, Said]:
    up_s = _window_s(behavior.scale_up, 0.0)
    down_s = _window_s(behavior.scale_down, DOWNSCALE_STABILIZATION_S)
    lowest = min([wanted, *(each.number for each in history.recommended if each.at_s > now_s - up_s)])
    highest = max([wanted, *(each.number for each in history.recommended if each.at_s > now_s - down_s)])
    _remember(history, wanted, now_s, max(up_s, down_s))
    reason = UP_STABILIZED if wanted >= current else DOWN_STABILIZED
    return min(max(current, lowest), highest), reason


def _within_behavior(
    scaler: HorizontalPodAutoscaler,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    current: int,
    wanted: int,
    now_s: float,
) -> tuple[int, Said]:
    spec = scaler.spec
    if wanted > current:
        rate = max(_up_limit(behavior.scale_up or HPAScalingRules(), history, current, now_s), current)
        highest, reason = (rate, UP_LIMIT) if spec.max_replicas > rate else (spec.max_replicas, TOO_MANY)
        return (highest, reason) if wanted > highest else (wanted, WITHIN)
    if wanted < current:
        rate = min(_down_limit(behavior.scale_down or HPAScalingRules(), history, current, now_s), current)
        lowest, reason = (rate, DOWN_LIMIT) if spec.min_replicas < rate else (spec.min_replicas, TOO_FEW)
        return (lowest, reason) if wanted < lowest else (wanted, WITHIN)
    return wanted, WITHIN


def _at_start(history: History, current: int, period_s: float, now_s: float) -> int:
    """Return how many replicas there were when the period began."""
    added, removed = (
        sum(each.number for each in moves if each.at_s > now_s - period_s) for moves in (history.ups, history.downs)
    )
    return current - added + removed


def _up_limit(rules: HPAScalingRules, history: History, current: int, now_s: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(history, current, policy.period_seconds, now_s)
        by_percent = math.ceil(start * (1 + policy.value / 100))
        limits.append(start + policy.value if policy.type == "Pods" else by_percent)
    return (min if rules.select_policy == "Min" else max)(limits, default=current)


def _down_limit(rules: HPAScalingRules, history: History, current: int, now_s: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = _at_start(history, current, policy.period_seconds, now_s)
        by_percent = int(start * (1 - policy.value / 100))
        limits.append(start - policy.value if policy.type == "Pods" else by_percent)
    # The smallest change leaves the most replicas.
    return (max if rules.select_policy == "Min" else min)(limits, default=current)
