"""Differences between the decisions of two runs: the first that differs, then all of them, aligned by role.
Pure.

The decisions of one actor (the scheduler, a kubelet) about one role are compared in their order. So it is
no difference when others decided in between, or sooner or later. Event, outcome and node are compared;
the time only on request.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

import msgspec

from lab.scenarios.decisions.decision import Decision

ALIGNED_MAX: Final = 400
"""Maximum number of decisions of one actor about one role that are aligned. If there are more, decisions
with the same number are compared.
"""
INSTANT_S: Final = 1e-6


class Difference(msgspec.Struct, frozen=True):
    """A decision about a role that differs between two runs; None: the run has no such decision. In results of
    `about`, both may be the same.
    """

    role: str
    first: Decision | None
    second: Decision | None

    @property
    def at_s(self) -> float:
        """Time of the earlier of the two decisions."""
        return min(side.at_s for side in (self.first, self.second) if side is not None)

    @property
    def is_same(self) -> bool:
        """Whether both runs decided the same; times do not matter."""
        return self.first is not None and self.second is not None and self.first.what == self.second.what


class Reordered(msgspec.Struct, frozen=True):
    """The first place at which equal scheduling attempts occur in a different order."""

    first: Decision
    second: Decision


class Compared(msgspec.Struct, frozen=True):
    """Comparison of two runs. `counts`: number of decisions of each; `same`: number of decisions that are the
    same in both.

    `differences`: in the order of time; `last_same`: the latest decision that both have before the first of
    them.
    """

    counts: tuple[int, int]
    same: int
    differences: list[Difference]
    last_same: Decision | None
    reordered: Reordered | None


def compare(first: Sequence[Decision], second: Sequence[Decision], *, with_times: bool = False) -> Compared:
    """Compare the decisions of two runs; times are seconds of clocks that both begin at 0.

    `with_times`: the same decision at another time (by more than a microsecond) differs as well.
    """
    sides = [_by_actor(first), _by_actor(second)]
    differences: list[Difference] = []
    pairs: list[tuple[Decision, Decision]] = []
    for actor in {**sides[0], **sides[1]}:
        ours, theirs = (side.get(actor, []) for side in sides)
        for one, other in _aligned_pairs(ours, theirs, with_times=with_times):
            if one is not None and other is not None and _key(one, with_times) == _key(other, with_times):
                pairs.append((one, other))
            else:
                differences.append(Difference(actor[0], one, other))
    differences.sort(key=lambda found: (found.at_s, in_order(found.role)))  # stable: of one role, in its own order
    places = {id(each): i for i, each in enumerate(first)}, {id(each): i for i, each in enumerate(second)}
    pairs.sort(key=lambda pair: places[0][id(pair[0])])
    first_s = differences[0].at_s if differences else float("inf")
    before = [one for one, other in pairs if max(one.at_s, other.at_s) <= first_s]
    return Compared(
        (len(first), len(second)),
        len(pairs),
        differences,
        before[-1] if before else None,
        _find_reordering(pairs, places[1]),
    )


def about(role: str, first: Sequence[Decision], second: Sequence[Decision]) -> list[Difference]:
    """Return all decisions about a role side by side, including equal ones, in the order of time."""
    sides = [_by_actor([each for each in run if each.role == role]) for run in (first, second)]
    differences = [
        Difference(role, *pair)
        for actor in {**sides[0], **sides[1]}
        for pair in _aligned_pairs(sides[0].get(actor, []), sides[1].get(actor, []), with_times=False)
    ]
    return sorted(differences, key=lambda each: each.at_s)


def in_order(role: str) -> tuple[str | int, ...]:
    """Return a sort key for roles: `web#2` before `web#10`."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(?<=#)(\d+)", role))


def _by_actor(decisions: Sequence[Decision]) -> dict[tuple[str, str], list[Decision]]:
    found: dict[tuple[str, str], list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.actor, []).append(decision)
    return found


def _key(decision: Decision, with_times: bool) -> Hashable:
    return (*decision.what, round(decision.at_s / INSTANT_S)) if with_times else decision.what


def _aligned_pairs(
    ours: list[Decision], theirs: list[Decision], *, with_times: bool
) -> Iterator[tuple[Decision | None, Decision | None]]:
    """Yield decisions in pairs; what has no counterpart stands beside None."""
    keys = [[_key(each, with_times) for each in side] for side in (ours, theirs)]
    begin = next((i for i, (a, b) in enumerate(zip(*keys, strict=False)) if a != b), min(map(len, keys)))
    yield from zip(ours[:begin], theirs[:begin], strict=True)
    ours, theirs = ours[begin:], theirs[begin:]
    if max(len(ours), len(theirs)) > ALIGNED_MAX:
        yield from _beside(ours, theirs)
        return
    matcher = SequenceMatcher(None, keys[0][begin:], keys[1][begin:], autojunk=False)
    for _, a0, a1, b0, b1 in matcher.get_opcodes():
        yield from _beside(ours[a0:a1], theirs[b0:b1])


def _beside(ours: Sequence[Decision], theirs: Sequence[Decision]) -> Iterator[tuple[Decision | None, Decision | None]]:
    for i in range(max(len(ours), len(theirs))):
        yield ours[i] if i < len(ours) else None, theirs[i] if i < len(theirs) else None


def _find_reordering(pairs: Sequence[tuple[Decision, Decision]], places: Mapping[int, int]) -> Reordered | None:
    """Return where attempts that both runs have were made in another order; pairs are in that of the first."""
    attempts = [pair for pair in pairs if pair[0].event == "sched.attempt"]
    others = sorted(attempts, key=lambda pair: places[id(pair[1])])
    for (one, _), (twin, other) in zip(attempts, others, strict=True):
        if one is not twin:
            return Reordered(one, other)
    return None
