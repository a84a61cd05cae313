"""Choose which deliveries to hold back, for how long, and in which order to try them. Pure.

Around a moment three families are tried one after the other. *Swaps*: a message arrives right after the one
that it preceded. *Overtakings and delays*: one message is held until some later one has passed it, or for a
time from a ladder, so that its consequences come late too. *Random*: a few messages at once, each held for a
random time. A bug that needs d messages out of order is found by d holds, and few bugs need more than two
(delay-bounded scheduling, Emmi, Qadeer and Rakamarić, 2011; the depth of PCT, Burckhardt et al., 2010).
Source: guarantees 12.2; kep-5836 13, the race for the freed capacity.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest

import msgspec

from lab.explore.deliveries import RUNNER, Delivery, is_about
from services.api.seams import Random

JUST_AFTER_S = 0.000_2
"""Seconds by which a held message arrives after the one that passes it: enough for another group of writes."""
LADDER_S = (0.001, 0.005, 0.025, 0.125, 0.625, 3.125)
SWAPS_PART, SINGLES_PART = 0.3, 0.7
"""Shares of the budget after which swaps end, and after which holds of a single message end."""
LANDMARKS_MAX = 8
"""Number of passing messages that a hold is tried against before its time is bisected."""
RESTLESS = ("leases.", "events", "nodes/")
"""Objects whose messages are always on their way, whatever the scenario is about: tried last."""


class Hold(msgspec.Struct, frozen=True, order=True):
    """One message is held back for `held_s` seconds more than its link takes."""

    delivery: str
    held_s: float


Schedule = tuple[Hold, ...]
"""Holds of a run; empty: an undisturbed run. Holds are sorted, so that equal schedules are equal values."""


@dataclass(frozen=True)
class Moment:
    """Moment to look around: its time (virtual seconds), its objects (`default/p`), and the reach to each side.

    `component`: the component of its event, "" if it is not known.
    """

    at_s: float
    objects: frozenset[str]
    reach_s: float
    component: str = ""


def holdable(deliveries: Sequence[Delivery], moment: Moment) -> list[Delivery]:
    """Return the messages around the moment that may be held, the most promising first.

    First come messages about the moment's own objects, of its own component before others'; last the mesh's
    periodic messages; among equals those nearest in time.
    """
    near = [d for d in deliveries if d.component != RUNNER and d.about and abs(d.due_s - moment.at_s) <= moment.reach_s]
    return sorted(near, key=lambda d: (_rank(d, moment), abs(d.due_s - moment.at_s), d.names))


def _rank(delivery: Delivery, moment: Moment) -> int:
    if is_about(delivery, moment.objects):
        return 0 if delivery.component == moment.component else 1
    return 3 if all(path.startswith(RESTLESS) for path in delivery.about) else 2


def _hold(delivery: Delivery, held_s: float) -> Schedule:
    return (Hold(delivery.names[0], round(held_s, 6)),)


def _after(delivery: Delivery, later: Delivery) -> Schedule:
    return _hold(delivery, later.arrives_s - delivery.arrives_s + JUST_AFTER_S)


def landmarks(deliveries: Sequence[Delivery], hold: Hold) -> list[float]:
    """Return the first times, shorter than the hold's, at which a related message has passed the held one."""
    held = next((d for d in deliveries if hold.delivery in d.names), None)
    if held is None:
        return []
    times = {
        round(other.arrives_s - held.arrives_s + JUST_AFTER_S, 6)
        for other in deliveries
        if other.receiver == held.receiver and other.arrives_s > held.arrives_s and set(other.about) & set(held.about)
    }
    return [held_s for held_s in sorted(times) if held_s < hold.held_s][:LANDMARKS_MAX]


class Plan:
    """Schedules to try around one moment of one seed's undisturbed run."""

    def __init__(self, deliveries: Sequence[Delivery], moment: Moment, random: Random, depth: int) -> None:
        self._moment, self._random, self._depth = moment, random, depth
        self.candidates = holdable(deliveries, moment)
        self._arriving: dict[str, list[Delivery]] = {}
        for delivery in sorted(deliveries, key=lambda d: (d.arrives_s, d.sent_s)):
            self._arriving.setdefault(delivery.receiver, []).append(delivery)

    def _later(self, delivery: Delivery) -> Iterator[Delivery]:
        """Yield what arrives at the same place after it and could pass it, the next first."""
        for other in self._arriving[delivery.receiver]:
            if other.arrives_s > delivery.arrives_s + self._moment.reach_s:
                return
            if other.arrives_s > delivery.arrives_s and other.stream != delivery.stream and other.about:
                yield other

    def swaps(self) -> Iterator[Schedule]:
        """Yield schedules that hold one message until the next one has passed it."""
        for delivery in self.candidates:
            for later in islice(self._later(delivery), 1):
                yield _after(delivery, later)

    def overtakings(self) -> Iterator[Schedule]:
        """Yield schedules that hold one message until a later related one has passed it, the nearest first."""

        def is_related(delivery: Delivery, other: Delivery) -> bool:
            return is_about(other, self._moment.objects) or not set(other.about).isdisjoint(delivery.about)

        for _, alike in groupby(self.candidates, lambda delivery: _rank(delivery, self._moment)):
            lists = [(d, [other for other in self._later(d) if is_related(d, other)]) for d in alike]
            for place in range(max((len(others) for _, others in lists), default=0)):
                for delivery, others in lists:
                    if place < len(others):
                        yield _after(delivery, others[place])

    def delays(self) -> Iterator[Schedule]:
        """Yield schedules that hold one message for a time of the ladder, up to the moment's reach."""
        times = [held_s for held_s in LADDER_S if held_s < self._moment.reach_s] + [self._moment.reach_s]
        for delivery in self.candidates:
            for held_s in reversed(times):
                yield _hold(delivery, held_s)

    def random(self) -> Iterator[Schedule]:
        """Yield schedules that hold up to `depth` messages, short times as likely as long ones; without end."""
        if not self.candidates:
            return
        least, most = math.log(LADDER_S[0] / 2), math.log(self._moment.reach_s)
        # The first of the list are the likeliest to matter.
        weights = [1.0 / (1 + place) ** 0.5 for place in range(len(self.candidates))]
        while True:
            count = self._random.randrange(1, self._depth + 1)
            chosen = dict.fromkeys(self._pick(weights) for _ in range(count))
            holds = [Hold(d.names[0], round(math.exp(self._random.uniform(least, most)), 6)) for d in chosen]
            yield tuple(sorted(holds))

    def _pick(self, weights: Sequence[float]) -> Delivery:
        left = self._random.random() * sum(weights)
        for delivery, weight in zip(self.candidates, weights, strict=True):
            left -= weight
            if left < 0:
                return delivery
        return self.candidates[-1]

    def schedules(self, budget: int) -> Iterator[Schedule]:
        """Yield at most `budget` different schedules: swaps, single holds, then random ones."""
        seen: dict[Schedule, None] = {(): None}
        yield from _new(self.swaps(), seen, int(budget * SWAPS_PART))
        in_turns = chain.from_iterable(zip_longest(self.overtakings(), self.delays(), fillvalue=()))
        yield from _new(in_turns, seen, 1 + int(budget * SINGLES_PART))
        # The same few messages may be all there is to hold: then nothing new comes, and that is the end.
        yield from _new(islice(self.random(), budget * 20), seen, 1 + budget)


def _new(schedules: Iterable[Schedule], seen: dict[Schedule, None], until: int) -> Iterator[Schedule]:
    """Yield what was not seen yet until so many were."""
    for schedule in schedules:
        if len(seen) >= until:
            return
        if schedule not in seen:
            seen[schedule] = None
            yield schedule


def share(budget: int, plans: int) -> list[int]:
    """Return how many runs each plan gets: equal numbers, the first ones one more where needed."""
    return [budget // plans + (number < budget % plans) for number in range(plans)]
