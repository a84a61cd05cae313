"""Fates of pods in two arms, compared pod by pod. Pods are matched by role (owner and order of creation);
equal fates form one row. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from lab.scenarios.measures.history import PodHistory

DIFFERENCES_MAX: Final = 5000
"""Maximum number of differing pods that are kept one by one; groups count all."""
NEVER: Final = "never created"


class Fate(msgspec.Struct, frozen=True, array_like=True):
    """Fate of a pod, in words. `running_s`: seconds from its creation until it was Running, in a simulation."""

    text: str
    running_s: float | None = None

    @property
    def whole(self) -> str:
        """Fate in words, with the time."""
        return self.text if self.running_s is None else f"{self.text}, Running after {self.running_s:.3f} s"


class PodDifference(msgspec.Struct, frozen=True):
    """A pod whose fate differs between the first arm (`arm_a`) and another one (`arm`, `arm_b`), for one seed.
    None: the pod does not exist in that arm.
    """

    seed: int
    pod: str
    arm: str
    arm_a: str | None
    arm_b: str | None


class FateGroup(msgspec.Struct, frozen=True):
    """Pods with the same pair of fates: `arm_a` in the first arm, `arm_b` in `arm`.

    `pods`: their number over all seeds; `seeds`: number of seeds with such a pod; `example`: the first pod.
    Times do not separate groups: both texts are equal for pods that differ only in the time until Running.
    """

    arm: str
    arm_a: str
    arm_b: str
    pods: int
    seeds: int
    example: str


def fate_of(pod: PodHistory, *, exact: bool) -> Fate:
    """Return a pod's fate. Its time is included only with `exact` (simulation): times of real processes never
    repeat.
    """
    where = "→".join(pod.nodes)
    text = f"{pod.outcome} on {where}" if where else f"{pod.outcome}, on no node"
    if pod.unbinds:
        text += f", {pod.unbinds} unbind{'s' if pod.unbinds > 1 else ''}"
    if exact and pod.running_s is not None:
        return Fate(text, round(pod.running_s - pod.created_s, 6))
    return Fate(text)


Fates = Mapping[str, Fate]
"""Fates of pods by role."""


def differences(pairs: Iterable[tuple[int, str, Fates, Fates]]) -> tuple[list[PodDifference], int, list[FateGroup]]:
    """Return the pods that differ (at most `DIFFERENCES_MAX`), their total number, and their groups, largest
    first.

    `pairs`: seed, arm, the pods' fates in the first arm, and those in `arm`.
    """
    pod_differences: list[PodDifference] = []
    pods: Counter[tuple[str, str, str]] = Counter()
    seeds: dict[tuple[str, str, str], set[int]] = {}
    examples: dict[tuple[str, str, str], str] = {}
    for seed, arm, first, other in pairs:
        for role in dict.fromkeys([*first, *other]):
            left, right = first.get(role), other.get(role)
            if left == right:
                continue
            group = arm, left.text if left else NEVER, right.text if right else NEVER
            pods[group] += 1
            seeds.setdefault(group, set()).add(seed)
            examples.setdefault(group, role)
            if len(pod_differences) < DIFFERENCES_MAX:
                texts = (left.whole if left else None, right.whole if right else None)
                pod_differences.append(PodDifference(seed, role, arm, *texts))
    groups = [FateGroup(*group, count, len(seeds[group]), examples[group]) for group, count in pods.most_common()]
    return pod_differences, pods.total(), groups
