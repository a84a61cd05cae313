"""The plugins of a profile by extension point, sorted as the parts of a runner need them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from scheduler.cache.node_info import PodInfo
from scheduler.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScoreExtensions,
    ScorePlugin,
    implements,
)
from scheduler.framework.timing import Observed, Observer
from scheduler.framework.vectorized import Signs, VectorFilterPlugin, VectorScorePlugin

POINTS: Final[dict[str, tuple[Any, ...]]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin,),
    "filter": (FilterPlugin, VectorFilterPlugin),
    "postFilter": (PostFilterPlugin,),
    "preScore": (PreScorePlugin,),
    "score": (ScorePlugin, VectorScorePlugin),
    "reserve": (ReservePlugin,),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
"""The protocols by extension point, any of which serves it; in the order of scheduler-queue-and-cycles 5."""


def serves(plugin: Any, point: str) -> bool:
    """Whether the plugin has the methods of the point; a point that is not in `POINTS` is served by no plugin."""
    return any(implements(plugin, protocol) for protocol in POINTS.get(point, ()))


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin of the profile with its weight in scoring."""

    plugin: Any
    weight: int = 1
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.plugin.name)


SortKey = Callable[[PodInfo, float], tuple[float, ...]]
"""Of a pod and the seconds when it (re)entered the queue: smaller comes first."""


class Arrangement:
    """The plugins of a profile at their points. `observer`: observes calls.

    `points`: plugin names by extension point, in order; None: every plugin at every point that it serves.
    """

    def __init__(
        self, profile: Sequence[Enabled], points: Mapping[str, Sequence[str]] | None, observer: Observer | None
    ) -> None:
        self.profile, self._observer = tuple(profile), observer
        self._by_name = {e.name: e for e in profile}
        self.points = points or {point: [e.name for e in profile if serves(e.plugin, point)] for point in POINTS}

    def at(self, point: str) -> list[Enabled]:
        """Return the plugins of a point, in order."""
        return [self._by_name[name] for name in self.points[point]]

    def plugins_with(self, protocol: Any) -> list[Any]:
        """Return the plugins that have the methods of a protocol, in the profile's order, as they are."""
        return [e.plugin for e in self.profile if implements(e.plugin, protocol)]

    def sort_key(self) -> SortKey | None:
        """Return the key by which the first plugin at `queueSort` orders the queue; None when there is none."""
        return next((e.plugin.sort_key for e in self.at("queueSort")), None)

    def plugins_at(self, point: str) -> list[Any]:
        """Return the plugins of a point for calling: observed, if there is an observer."""
        return self.callees(self.at(point))

    def callees(self, enabled: Sequence[Enabled]) -> list[Any]:
        """Return the plugins for calling: observed, if there is an observer."""
        return [Observed(e.plugin, self._observer) if self._observer is not None else e.plugin for e in enabled]

    def scorers(self, enabled: Sequence[Enabled]) -> list[Enabled]:
        """Return the plugins for calling, with their weights."""
        return [Enabled(callee, e.weight) for callee, e in zip(self.callees(enabled), enabled, strict=True)]


@dataclass(frozen=True, slots=True)
class FilterPlugins:
    """The filter plugins. `plugins`: all of them, in order.

    `pure`: those whose answers are cached by template; `others`: the rest, `callees` the same for calling.
    `followers`: plugins whose state follows the pods that a what-if puts on a node.
    """

    plugins: list[Any]
    pure: list[Enabled]
    others: list[Enabled]
    callees: list[Any]
    followers: list[Any]

    @classmethod
    def of(cls, arrangement: Arrangement, row_pure: Sequence[Any]) -> Self:
        """Return the filters of an arrangement. `row_pure`: plugins whose answers may be cached."""
        enabled = arrangement.at("filter")
        pure = [e for e in enabled if e.plugin in row_pure and implements(e.plugin, FilterPlugin)]
        others = [e for e in enabled if e not in pure]
        followers = [e.plugin for e in arrangement.at("preFilter") if implements(e.plugin, PreFilterExtensions)]
        return cls([e.plugin for e in enabled], pure, others, arrangement.callees(others), followers)


@dataclass(frozen=True, slots=True)
class ScorePlugins:
    """The score plugins.

    `plain` and `normalized`: those whose scores are cached by template, without and with a normalisation.
    `others`: the rest, `callees` the same for calling and `other_names` by name; `normalizing`: names of all
    plugins that normalise.
    """

    plain: list[Enabled]
    normalized: list[Enabled]
    others: list[Enabled]
    callees: list[Enabled]
    other_names: frozenset[str]
    normalizing: frozenset[str]

    @classmethod
    def of(cls, arrangement: Arrangement, row_pure: Sequence[Any]) -> Self:
        """Return the scorers of an arrangement. `row_pure`: plugins whose answers may be cached."""
        enabled = arrangement.at("score")
        pure = [e for e in enabled if e.plugin in row_pure and implements(e.plugin, ScorePlugin)]
        others = [e for e in enabled if e not in pure]
        # Asking a protocol costs microseconds; ask once.
        normalizing = frozenset(e.name for e in arrangement.profile if implements(e.plugin, ScoreExtensions))
        return cls(
            plain=[e for e in pure if e.name not in normalizing],
            normalized=[e for e in pure if e.name in normalizing],
            others=others,
            callees=arrangement.scorers(others),
            other_names=frozenset(e.name for e in others),
            normalizing=normalizing,
        )


@dataclass(frozen=True, slots=True)
class SigningPlugins:
    """Plugins that are not cached by template (KEP-5598).

    `signers`: those that can sign; by name the filters and scorers that cannot.
    """

    signers: list[Any]
    unsigned_filters: list[str]
    unsigned_scores: list[str]

    @classmethod
    def of(cls, filters: FilterPlugins, scores: ScorePlugins) -> Self:
        """Return the signing plugins among those whose answers are not cached by template."""
        plugins = {e.name: e.plugin for e in (*filters.others, *scores.others)}
        return cls(
            [plugin for plugin in plugins.values() if implements(plugin, Signs)],
            [e.name for e in filters.others if not implements(e.plugin, Signs)],
            [e.name for e in scores.others if not implements(e.plugin, Signs)],
        )


@dataclass(frozen=True, slots=True)
class PointPlugins:
    """The plugins of the points at which plugins are called one after the other."""

    pre_enqueue: list[Any]
    pre_filter: list[Any]
    post_filter: list[Any]
    pre_score: list[Any]
    reserve: list[Any]
    permit: list[Any]
    pre_bind: list[Any]
    bind: list[Any]
    post_bind: list[Any]

    @classmethod
    def of(cls, arrangement: Arrangement) -> Self:
        """Return the plugins of an arrangement. Among the binding points, only PostBind is observed by plugin."""
        return cls(
            pre_enqueue=arrangement.plugins_at("preEnqueue"),
            pre_filter=arrangement.plugins_at("preFilter"),
            post_filter=arrangement.plugins_at("postFilter"),
            pre_score=arrangement.plugins_at("preScore"),
            reserve=arrangement.plugins_at("reserve"),
            permit=arrangement.plugins_at("permit"),
            pre_bind=[e.plugin for e in arrangement.at("preBind")],
            bind=[e.plugin for e in arrangement.at("bind")],
            post_bind=arrangement.plugins_at("postBind"),
        )
