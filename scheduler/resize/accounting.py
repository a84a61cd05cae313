"""The counted amounts of a pod on a node, if not the maximum of each of its containers (kep-5836 4.1, 13.3).

Switches select another way of counting: by the whole pod, as the newest upstream does; with the part that
is not actuated yet; or without a deferred resize that the scheduler has not accepted. Without these
switches this module is not used.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from scheduler.cache.node_info import TEMPLATES_MAX, PodInfo, PodRequests, as_specified, most, requests_of
from scheduler.resize.deferral import waits
from scheduler.switches import ResizeSwitches
from services.api.kinds.pod import Pod
from services.api.lru import LRU
from services.api.podresources import Amounts, as_actual, as_allocated, as_held, has_infeasible_resize, pod_requests
from services.api.switches import Switches

ONCE_ACCEPTED: Final = "once_accepted"


@dataclass
class Accounting:
    """Counts pods on nodes.

    `is_aggregated`: containers are added up first; `tracks_unactuated`: sets `PodRequests.unactuated`.
    `awaits_acceptance`: a deferred resize reserves nothing until the scheduler has found capacity for it, or
    has chosen the victims; then the accepted amount is reserved until the pod waits no more or requests another
    one. These amounts are kept by the pod's uid.

    Pods of one template and one state share their requests, so that a change of costs shows as another object.
    """

    is_aggregated: bool
    tracks_unactuated: bool
    awaits_acceptance: bool = False
    _accepted: dict[str, Amounts] = field(default_factory=dict)
    _made: LRU[tuple[PodRequests, ...], PodRequests] = field(default_factory=lambda: LRU(TEMPLATES_MAX))

    def apply(self, info: PodInfo) -> None:
        """Count a pod on a node this way. A malformed quantity leaves it unchanged."""
        pod = info.pod
        if not (pod.spec.node_name and pod.status.container_statuses):
            return
        try:
            info.requests = as_specified(as_held(pod)) if self._is_open(pod) else self._of(pod)
        except ValueError:
            return

    def accept(self, pod: Pod) -> PodInfo | None:
        """Reserve the pod's present request from now on; return the pod as counted then, None if nothing changes."""
        if not self._is_open(pod):
            return None
        self._accepted[pod.metadata.uid] = pod_requests(pod)
        info = PodInfo(pod)
        self.apply(info)
        return info

    def forget(self, uid: str) -> None:
        """Forget a pod that no longer waits."""
        self._accepted.pop(uid, None)

    def _is_open(self, pod: Pod) -> bool:
        """Whether the pod's resize is deferred and the scheduler has not accepted it."""
        return self.awaits_acceptance and waits(pod) and self._accepted.get(pod.metadata.uid) != pod_requests(pod)

    def _of(self, pod: Pod) -> PodRequests:
        sizes = self._sizes(pod) if self.is_aggregated else (requests_of(pod),)
        held = (as_specified(as_held(pod)),) if self.tracks_unactuated else ()
        key = (*sizes, *held)
        requests = self._made.get(key)
        if requests is None:
            requests = reduce(most, sizes)
            if held:
                has = held[0].amounts
                unactuated = {name: need - has.get(name, 0) for name, need in requests.amounts.items()}
                requests = dataclasses.replace(
                    requests, unactuated={name: more for name, more in unactuated.items() if more > 0}
                )
            self._made.put(key, requests)
        return requests

    @staticmethod
    def _sizes(pod: Pod) -> tuple[PodRequests, ...]:
        """Return the sums over all containers of what is desired, allocated and actual, which compete."""
        given = (as_specified(as_allocated(pod)), as_specified(as_actual(pod)))
        return given if has_infeasible_resize(pod) else (as_specified(pod), *given)


def accounting_of(switches: Switches) -> Accounting | None:
    """Return the way of counting that these switches select; None for the usual one."""
    is_aggregated = switches.of(ResizeSwitches).accounting == "aggregated"
    reserved = switches.of(ResizeSwitches).reserved_space
    if not is_aggregated and reserved == "evict_pod":
        return None
    return Accounting(is_aggregated, reserved == "ignore_unactuated", reserved == ONCE_ACCEPTED)
