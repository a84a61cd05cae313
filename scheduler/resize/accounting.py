"""What a pod on a node counts for, where that is not the most of each of its containers (kep-5836 4.1, 13.3).

Two switches ask for another way of counting: by the whole pod, as the newest upstream does, or so that one can see
how much of it is not actuated yet. With neither of them this module is not asked.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import reduce

from scheduler.cache.node_info import TEMPLATES_MAX, PodInfo, PodRequests, as_specified, most, requests_of
from services.api.kinds.pod import Pod
from services.api.lru import LRU
from services.api.podresources import as_actual, as_allocated, as_held, has_infeasible_resize
from services.api.switches import Switches


@dataclass
class Accounting:
    """Counts pods. `is_aggregated`: containers are added up first; `tracks_unactuated`: sets `PodRequests.unactuated`.

    Pods of one template and one state share their requests, so that a change of costs shows as another object.
    """

    is_aggregated: bool
    tracks_unactuated: bool
    _made: LRU[tuple[PodRequests, ...], PodRequests] = field(default_factory=lambda: LRU(TEMPLATES_MAX))

    def apply(self, info: PodInfo) -> None:
        """Have a pod that is on a node count this way. A malformed quantity leaves it as it is."""
        pod = info.pod
        if not (pod.spec.node_name and pod.status.container_statuses):
            return
        try:
            info.requests = self._of(pod)
        except ValueError:
            return

    def _of(self, pod: Pod) -> PodRequests:
        sizes = self._sizes(pod) if self.is_aggregated else (requests_of(pod),)
        held = (as_specified(as_held(pod)),) if self.tracks_unactuated else ()
        key = (*sizes, *held)
        found = self._made.get(key)
        if found is None:
            found = reduce(most, sizes)
            if held:
                has = held[0].amounts
                unactuated = {name: need - has.get(name, 0) for name, need in found.amounts.items()}
                found = dataclasses.replace(
                    found, unactuated={name: more for name, more in unactuated.items() if more > 0}
                )
            self._made.put(key, found)
        return found

    @staticmethod
    def _sizes(pod: Pod) -> tuple[PodRequests, ...]:
        """Return the sums over all containers of what is desired, allocated and actual, which compete."""
        given = (as_specified(as_allocated(pod)), as_specified(as_actual(pod)))
        return given if has_infeasible_resize(pod) else (as_specified(pod), *given)


def accounting_of(switches: Switches) -> Accounting | None:
    """Return the way of counting that these switches ask for; None for the usual one."""
    is_aggregated = switches.choice("resize.accounting") == "aggregated"
    tracks_unactuated = switches.choice("resize.reserved_space") == "ignore_unactuated"
    if not is_aggregated and not tracks_unactuated:
        return None
    return Accounting(is_aggregated=is_aggregated, tracks_unactuated=tracks_unactuated)
