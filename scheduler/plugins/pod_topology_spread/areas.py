"""Which nodes form the domains that a pod is spread over.

Source: scheduler-queue-and-cycles 6, 12.5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import PodInfo
from scheduler.cache.node_selection import required_mask
from scheduler.cache.pod_index import Area
from services.api.taints import NO_EXECUTE, NO_SCHEDULE, untolerated

AREAS_MAX: Final = 128
REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)


class Areas:
    """Areas by what they are made of, kept while no node changes its labels or taints."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[int, Area]] = OrderedDict()

    def of(
        self,
        pod: PodInfo,
        columns: Columns,
        keys: tuple[str, ...],
        honors_affinity: bool = False,
        honors_taints: bool = False,
    ) -> Area:
        """Return the rows that have all the labels and, as far as they are honoured, suit the pod.

        Honoured affinity is node selector and required node affinity; taints are NoSchedule and NoExecute (12.5).
        """
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        wanted = affinity.required if affinity is not None else None
        chosen = (tuple(sorted(spec.node_selector.items())), wanted) if honors_affinity else ((), None)
        name = (keys, chosen, spec.tolerations if honors_taints else None)
        known = self._known.get(name)
        if known is not None and known[0] == columns.layout:
            return known[1]
        mask = columns.valid.copy()
        for key in keys:
            mask &= columns.label_ids(key)[0] != 0
        if honors_affinity and (suited := required_mask(pod, columns)) is not None:
            mask &= suited
        if honors_taints:
            tolerated = columns.taint_mask(lambda taints: untolerated(taints, spec.tolerations, REPELLING) is None)
            mask = mask if tolerated is None else mask & tolerated
        area = Area(name, mask)
        self._known[name] = (columns.layout, area)
        self._known.move_to_end(name)
        if len(self._known) > AREAS_MAX:
            self._known.popitem(last=False)
        return area
