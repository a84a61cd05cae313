"""The extension points by their names in KubeSchedulerConfiguration, and which of them a plugin serves."""

from __future__ import annotations

from typing import Any, Final

from scheduler.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.framework.vectorized import VectorFilterPlugin, VectorScorePlugin

POINTS: Final[dict[str, tuple[Any, ...]]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin,),
    "filter": (FilterPlugin, FilterPlugin, VectorFilterPlugin),
    "postFilter": (PostFilterPlugin,),
    "preScore": (PreScorePlugin,),
    "score": (ScorePlugin, VectorScorePlugin),
    "reserve": (ReservePlugin,),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
"""Any of the protocols serves the point; in the order of scheduler-queue-and-cycles 5."""

REJECTING: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
"""Points at which a plugin can reject a pod, which then waits for an event."""


def serves(plugin: Any, point: str) -> bool:
    """Whether the plugin has what the point calls; a point that is not in `POINTS` is served by no plugin."""
    return isinstance(plugin, POINTS.get(point, ()))
