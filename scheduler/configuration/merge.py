"""Which plugins run at which point in which order: the file's plugin sets over the default ones.

Two steps, as upstream takes them. First multiPoint: a default plugin that is enabled again keeps its place and
takes the new weight; what is disabled goes; the rest is added behind. Then every point: of its own enabled
plugins those first that multiPoint has, too; then multiPoint's others that serve the point; then its own others.

Source: upstream `mergePluginSet` (`pkg/scheduler/apis/config/v1/default_plugins.go`) and
`expandMultiPointPlugins` (`pkg/scheduler/framework/runtime/framework.go`). The web page says that plugins added in
multiPoint run before default ones; the code, and so we, put them behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.configuration.document import PluginRef, Plugins, PluginSet
from scheduler.configuration.validation import duplicate, invalid

ALL: Final = "*"
MULTI_POINT: Final = "multiPoint"
WEIGHT: Final = 1
"""What a weight of 0, or none, stands for."""


@dataclass(frozen=True)
class Lineup:
    """Point to plugin names in their order, and the weights of those that score."""

    points: dict[str, tuple[str, ...]]
    weights: dict[str, int]


def merged(defaults: Sequence[PluginRef], given: PluginSet) -> tuple[PluginRef, ...]:
    """Return the default plugins with the given set applied to them."""
    disabled = {plugin.name for plugin in given.disabled}
    # Of a name given twice the last replaces the default; the other stays and is refused later.
    again = {plugin.name: index for index, plugin in enumerate(given.enabled)}
    found: list[PluginRef] = []
    replaced: set[int] = set()
    for plugin in () if ALL in disabled else defaults:
        if plugin.name in disabled:
            continue
        if plugin.name in again:
            replaced.add(again[plugin.name])
            plugin = given.enabled[again[plugin.name]]
        found.append(plugin)
    found += [plugin for index, plugin in enumerate(given.enabled) if index not in replaced]
    return tuple(found)


def names(multi_point: Iterable[PluginRef], plugins: Plugins) -> list[str]:
    """Return every plugin that runs anywhere, each once."""
    found = dict.fromkeys(plugin.name for plugin in multi_point)
    for point, plugin_set in plugins.points():
        if point != MULTI_POINT:
            found |= dict.fromkeys(plugin.name for plugin in plugin_set.enabled)
    return list(found)


def unknown(plugins: Plugins, path: str, is_known: Callable[[str], bool]) -> list[str]:
    """Return a problem for each enabled plugin that does not exist; what is only disabled need not."""
    return [
        invalid(f"{path}.{point}.enabled[{index}]", plugin.name, "no plugin is called so")
        for point, plugin_set in plugins.points()
        for index, plugin in enumerate(plugin_set.enabled)
        if not is_known(plugin.name)
    ]


def lineup(
    multi_point: Sequence[PluginRef],
    plugins: Plugins,
    path: str,
    points: Iterable[str],
    serves: Callable[[str, str], bool],
) -> tuple[Lineup, list[str]]:
    """Return who runs where, and what is wrong with it.

    `multi_point`: merged already; `points`: all points that exist here; `serves(plugin, point)`.
    """
    problems = _repeated(multi_point, f"{path}.{MULTI_POINT}")
    sets = dict(plugins.points())
    for point, plugin_set in sets.items():
        if point != MULTI_POINT:
            problems += _misplaced(plugin_set, point, f"{path}.{point}", serves)
    order = {point: _order(point, multi_point, sets[point], serves) for point in points}
    weights: dict[str, int] = {}
    for plugin in (*plugins.score.enabled, *multi_point):
        if serves(plugin.name, "score"):
            weights.setdefault(plugin.name, plugin.weight or WEIGHT)
    return Lineup(order, weights), problems


def _order(
    point: str, multi_point: Sequence[PluginRef], own: PluginSet, serves: Callable[[str, str], bool]
) -> tuple[str, ...]:
    enabled = [plugin.name for plugin in own.enabled]
    disabled = {plugin.name for plugin in own.disabled}
    if ALL in disabled:
        return tuple(enabled)
    expanded = [p.name for p in multi_point if p.name not in disabled and serves(p.name, point)]
    first = [name for name in enabled if name in expanded]
    then = [name for name in expanded if name not in enabled]
    last = [name for name in enabled if name not in expanded]
    return (*first, *then, *last)


def _repeated(plugins: Iterable[PluginRef], path: str) -> list[str]:
    seen: set[str] = set()
    problems: list[str] = []
    for plugin in plugins:
        if plugin.name in seen:
            problems.append(duplicate(f"{path}.enabled", plugin.name))
        seen.add(plugin.name)
    return problems


def _misplaced(own: PluginSet, point: str, path: str, serves: Callable[[str, str], bool]) -> list[str]:
    problems = _repeated(own.enabled, path)
    for index, plugin in enumerate(own.enabled):
        if not serves(plugin.name, point):
            problems.append(invalid(f"{path}.enabled[{index}]", plugin.name, f"plugin does not extend {point}"))
    return problems
