"""Extenders have a say in which candidates stay (preemption 3.4, `preemptVerb`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import Code, Status, unschedulable
from scheduler.preemption.candidates import NO_CANDIDATE, Candidate
from scheduler.preemption.victims import Victims

ASKING: Final = "DefaultPreemption/extenders"
"""Key of the cycle state: whether extenders must see the candidates before one is picked."""
LEFT: Final = "DefaultPreemption/left"
"""Key of the cycle state: the candidates they left, or the status that came instead."""
SEARCHED: Final = "DefaultPreemption/search"
"""Key of the cycle state: what was found, kept while they are asked."""


class ExtenderError(Exception):
    """An extender did not answer, or not so that it can be understood."""


class PreemptionExtender(Protocol):
    """An extender as preemption sees it."""

    @property
    def is_ignorable(self) -> bool:
        """Whether scheduling goes on without it when it fails."""
        ...

    @property
    def supports_preemption(self) -> bool:
        """Whether it has a `preemptVerb`."""
        ...

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether it manages a resource the pod asks for, or all pods."""
        ...

    def process_preemption(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return the nodes it agrees with, each with the same or other victims. Raises: ExtenderError."""
        ...


def ask_extenders(
    extenders: Sequence[PreemptionExtender], pod: PodInfo, found: Sequence[Candidate]
) -> list[Candidate] | Status:
    """Return the candidates that every interested extender left, or why there are none.

    An ignorable extender that fails, or leaves a node without victims, is passed over; any other ends the attempt.
    """
    if not extenders:
        return list(found)
    victims: Mapping[str, Victims] = {candidate.node: candidate.victims for candidate in found}
    for extender in extenders:
        if not extender.supports_preemption or not extender.is_interested(pod):
            continue
        try:
            answer = extender.process_preemption(pod, victims)
        except ExtenderError as error:
            if extender.is_ignorable:
                continue
            return Status(Code.ERROR, (str(error),))
        empty = next((node for node, left in answer.items() if not left.units), None)
        if empty is not None:
            if extender.is_ignorable:
                continue
            return Status(Code.ERROR, (f'expected at least one victim pod on node "{empty}"',))
        victims = answer
        if not victims:
            break
    if not victims:
        return unschedulable(NO_CANDIDATE)
    # In the order in which they were found, whatever order an extender answers in.
    return [Candidate(c.node, victims[c.node]) for c in found if c.node in victims]
