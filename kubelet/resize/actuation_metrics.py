"""How long attempts to carry a resize out take, as upstream's histogram counts it. Pure.

Source: kep-1287-in-place-resize 12. The KEP calls it kubelet_pod_resize_duration_seconds; the name served by kubelets
since v1.34 counts milliseconds and says whether the attempt succeeded.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from kubelet.effects import Outbox

NAME: Final = "kubelet_pod_resize_duration_milliseconds"
BOUNDS_MS: Final = (10, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)


def actuated(out: Outbox, took_s: float, *, succeeded: bool) -> None:
    """An attempt is over: count it and its time."""
    took_ms = took_s * 1000
    success = f'success="{str(succeeded).lower()}"'
    for bound in (*BOUNDS_MS[bisect_left(BOUNDS_MS, took_ms) :], "+Inf"):
        out.count(f'{NAME}_bucket{{{success},le="{bound}"}}')
    out.add(f"{NAME}_sum{{{success}}}", took_ms)
    out.count(f"{NAME}_count{{{success}}}")
