"""From a valid configuration to plugin objects, separate for each profile.

The plugins at each point and their order: the file's plugin sets over the default ones, in two steps, as
upstream applies them. First multiPoint: a default plugin that is enabled again keeps its place and takes
the new weight; a disabled one goes; the rest is added behind. Then every point: first its own enabled
plugins that multiPoint has, too; then multiPoint's others that serve the point; then its own others. Plugin
arguments that the file leaves out come from the switches, as without a file.

Source: upstream `mergePluginSet` (`pkg/scheduler/apis/config/v1/default_plugins.go`) and
`expandMultiPointPlugins` (`pkg/scheduler/framework/runtime/framework.go`). The web page says that plugins
added in multiPoint run before default ones; the code, and so we, put them behind.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.configuration.document import (
    KubeSchedulerConfiguration,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
    as_json,
)
from scheduler.configuration.parser import ConfigurationError, decode
from scheduler.configuration.validation import duplicate, invalid
from scheduler.configuration.validation import problems as problems_of
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.arrangement import POINTS, Enabled, serves
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.hooks import HookedPlugin, hooks_of
from scheduler.framework.plugin import FilterPlugin
from scheduler.framework.status import Status, error_status

ALL: Final = "*"
MULTI_POINT: Final = "multiPoint"
WEIGHT: Final = 1
"""Weight of an entry without a weight, or with 0."""


@dataclass(frozen=True)
class Lineup:
    """Plugin names by point, in order, and the weights of the score plugins."""

    points: dict[str, tuple[str, ...]]
    weights: dict[str, int]


def merge_plugins(defaults: Sequence[PluginRef], given: PluginSet) -> tuple[PluginRef, ...]:
    """Return the default plugins with the given set applied to them."""
    disabled = {plugin.name for plugin in given.disabled}
    # Of a name given twice the last replaces the default; the other stays and is refused later.
    again = {plugin.name: index for index, plugin in enumerate(given.enabled)}
    plugins: list[PluginRef] = []
    replaced: set[int] = set()
    for plugin in () if ALL in disabled else defaults:
        if plugin.name in disabled:
            continue
        if plugin.name in again:
            replaced.add(again[plugin.name])
            plugin = given.enabled[again[plugin.name]]
        plugins.append(plugin)
    plugins += [plugin for index, plugin in enumerate(given.enabled) if index not in replaced]
    return tuple(plugins)


def names(multi_point: Iterable[PluginRef], plugins: Plugins) -> list[str]:
    """Return every plugin that runs at any point, without duplicates."""
    found = dict.fromkeys(plugin.name for plugin in multi_point)
    for point, plugin_set in plugins.points():
        if point != MULTI_POINT:
            found |= dict.fromkeys(plugin.name for plugin in plugin_set.enabled)
    return list(found)


def unknown(plugins: Plugins, path: str, known: Container[str]) -> list[str]:
    """Return a problem for each enabled plugin that does not exist; a disabled one need not exist."""
    return [
        invalid(f"{path}.{point}.enabled[{index}]", plugin.name, "no plugin is called so")
        for point, plugin_set in plugins.points()
        for index, plugin in enumerate(plugin_set.enabled)
        if plugin.name not in known
    ]


def lineup(
    multi_point: Sequence[PluginRef],
    plugins: Plugins,
    path: str,
    points: Iterable[str],
    serves: Callable[[str, str], bool],
) -> tuple[Lineup, list[str]]:
    """Return the plugins of each point, and the problems.

    `multi_point`: merged already; `points`: all points that exist here; `serves(plugin, point)`.
    """
    problems = _duplicate_errors(multi_point, f"{path}.{MULTI_POINT}")
    sets = dict(plugins.points())
    for point, plugin_set in sets.items():
        if point != MULTI_POINT:
            problems += _placement_errors(plugin_set, point, f"{path}.{point}", serves)
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


def _duplicate_errors(plugins: Iterable[PluginRef], path: str) -> list[str]:
    names = [plugin.name for plugin in plugins]
    return [duplicate(f"{path}.enabled", name) for index, name in enumerate(names) if name in names[:index]]


def _placement_errors(own: PluginSet, point: str, path: str, serves: Callable[[str, str], bool]) -> list[str]:
    return _duplicate_errors(own.enabled, path) + [
        invalid(f"{path}.enabled[{index}]", plugin.name, f"plugin does not extend {point}")
        for index, plugin in enumerate(own.enabled)
        if not serves(plugin.name, point)
    ]


FIT: Final = "NodeResourcesFit"
_FORGETFUL: Final = {
    FIT: 'error reading "PreFilterNodeResourcesFit" from cycleState: not found',
    "InterPodAffinity": 'error reading "PreFilterInterPodAffinity" from cycleState: not found',
    "NodePorts": 'reading "PreFilterNodePorts" from cycleState: not found',
    "PodTopologySpread": 'reading "PreFilterPodTopologySpread" from cycleState: not found',
    "VolumeRestrictions": 'cannot read "PreFilterVolumeRestrictions" from cycleState',
    "VolumeBinding": "not found",
    "DynamicResources": "not found",
}
"""Errors of upstream's plugins at Filter if they did not run at PreFilter.

The profile starts, and its pods fail. Source: upstream `pkg/scheduler/framework/plugins` (getPreFilterState
of each).
"""
_SELF_RELIANT: Final = frozenset(
    (("NodeAffinity", "filter"), (FIT, "score"), ("NodeResourcesBalancedAllocation", "score"))
)
"""Plugins that compute at the point what they would else have stored at an earlier point."""
_TYPE_META: Final = ("apiVersion", "kind")


@dataclass(frozen=True)
class MadeProfile:
    """A profile's plugins. `percentage` None: the configuration's. `points` None: each plugin wherever it serves."""

    name: str
    percentage: int | None
    plugins: tuple[Enabled, ...]
    points: Mapping[str, Sequence[str]] | None


def make_profiles(
    configuration: KubeSchedulerConfiguration,
    known: Mapping[str, PluginEntry],
    defaults: Sequence[tuple[str, int]],
    handle: Handle,
) -> list[MadeProfile]:
    """Return the profiles in the order of a completed configuration.

    `known`: all existing plugins; `defaults`: names and weights of the plugins that run by default. Raises:
    ConfigurationError with all problems.
    """
    problems = problems_of(configuration)
    for index, profile in enumerate(configuration.profiles):
        problems += unknown(profile.plugins, f"profiles[{index}].plugins", known)
    if problems:
        raise ConfigurationError(problems)
    ignored = [r.name for e in configuration.extenders for r in e.managed_resources if r.ignored_by_scheduler]
    base = tuple(PluginRef(name=name, weight=weight) for name, weight in defaults)
    profiles: list[MadeProfile] = []
    for index, profile in enumerate(configuration.profiles):
        maker = _Maker(f"profiles[{index}]", _ignoring(profile, ignored), known, handle)
        new_profile = maker.make(base)
        problems += maker.problems
        if new_profile is not None:
            profiles.append(new_profile)
    sorts = [", ".join((each.points or {}).get("queueSort", ())) for each in profiles]
    problems += [
        f'profiles[{index}]: different queue sort plugins for profile "{profiles[index].name}": '
        f'"{sort}", first: "{sorts[0]}"'
        for index, sort in enumerate(sorts)
        if sort != sorts[0]
    ]
    if problems:
        raise ConfigurationError(problems)
    return profiles


class _Unprepared:
    """A Filter that fails because the plugin's PreFilter did not run."""

    def __init__(self, text: str) -> None:
        self._status = error_status(text)

    def before_filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Return the error, whatever the pod and the node."""
        return self._status


class _Maker:
    """The maker of one profile; errors are collected in `problems`."""

    def __init__(self, path: str, profile: Profile, known: Mapping[str, PluginEntry], handle: Handle) -> None:
        assert profile.scheduler_name is not None, f"{path} has a name, that is validated"
        self._path, self._profile, self._known = path, profile, known
        self._name = profile.scheduler_name
        self._handle = replace(handle, profile=self._name)
        self.problems: list[str] = []

    def make(self, defaults: Sequence[PluginRef]) -> MadeProfile | None:
        """Return the profile, or None when it cannot be made."""
        plugins = self._profile.plugins
        multi_point = merge_plugins(defaults, plugins.multi_point)
        args = self._args()
        instances = {name: self._instance(name, args) for name in names(multi_point, plugins)}
        if not self.problems:
            self._hook(instances)
        if self.problems:
            return None
        order, problems = lineup(
            multi_point, plugins, f"{self._path}.plugins", POINTS, lambda name, point: serves(instances[name], point)
        )
        self.problems += problems + self._unfit(order.points, instances)
        for name in order.points["filter"]:
            if name in _FORGETFUL and name not in order.points["preFilter"]:
                instances[name] = HookedPlugin(instances[name], _Unprepared(_FORGETFUL[name]))
        plugins_made = {name: plugin for name, plugin in instances.items() if not self._known[name].hooks}
        enabled = tuple(Enabled(plugin, order.weights.get(name, 0)) for name, plugin in plugins_made.items())
        return MadeProfile(self._name, self._profile.percentage_of_nodes_to_score, enabled, order.points)

    def _hook(self, instances: dict[str, Any]) -> None:
        """Put hooks around the plugins that they are about, in the order in which they are enabled."""
        for name, hooks in list(instances.items()):
            about = self._known[name].hooks
            if not about:
                continue
            if about not in instances:
                self.problems.append(
                    invalid(f"{self._path}.plugins", name, f"it has hooks of {about}, which does not run")
                )
            elif not hooks_of(hooks):
                self.problems.append(invalid(f"{self._path}.plugins", name, "it has no hook, such as before_filter"))
            else:
                instances[about] = HookedPlugin(instances[about], hooks)

    def _args(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return, by plugin, where its arguments stand and what they are."""
        args_by_name: dict[str, tuple[str, dict[str, Any]]] = {}
        for index, given in enumerate(self._profile.plugin_config):
            here = f"{self._path}.pluginConfig[{index}]"
            entry = self._known.get(given.name)
            if entry is None or entry.args is Args:
                continue  # as upstream: of no registered kind, so nothing decodes them and nothing is refused
            kind = given.args.get("kind", f"{given.name}Args")
            if kind != f"{given.name}Args":
                self.problems.append(invalid(f"{here}.args.kind", kind, f"want {given.name}Args"))
            args_by_name[given.name] = (
                f"{here}.args",
                {name: value for name, value in given.args.items() if name not in _TYPE_META},
            )
        return args_by_name

    def _instance(self, name: str, args: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
        entry = self._known[name]
        default = entry.defaults(self._handle.switches)
        path, given = args.get(name, (f"{self._path}.plugins", {}))
        try:
            decoded = decode(entry.args, {**as_json(default), **given}, path) if given else default
            return entry.make(decoded, self._handle)
        except ConfigurationError as error:
            self.problems += error.problems
        except ValueError as error:
            self.problems.append(f"{path}: initializing plugin {name}: {error}")
        return None

    def _unfit(self, points: Mapping[str, Sequence[str]], instances: Mapping[str, Any]) -> list[str]:
        problems: list[str] = []
        sorts = len(points["queueSort"])
        if sorts != 1:
            problems.append(
                f"{self._path}: only one queue sort plugin required for profile with scheduler name "
                f'"{self._name}", but got {sorts}'
            )
        if not points["bind"]:
            problems.append(
                f'{self._path}: at least one bind plugin is needed for profile with scheduler name "{self._name}"'
            )
        # What the first leaves in the cycle state the second takes for granted.
        for before, after in (("preFilter", "filter"), ("preScore", "score")):
            for name in points[after]:
                answers = (after == "filter" and name in _FORGETFUL) or (name, after) in _SELF_RELIANT
                if serves(instances[name], before) and name not in points[before] and not answers:
                    detail = f"it runs at {after}, which needs its {before}"
                    problems.append(invalid(f"{self._path}.plugins.{before}", name, detail))
        for name in points["filter"]:
            if not isinstance(instances[name], FilterPlugin):
                detail = "it has filter_all alone; preemption asks about one node, changed in thought: it needs filter"
                problems.append(invalid(f"{self._path}.plugins.filter", name, detail))
        return problems


def _ignoring(profile: Profile, resources: Sequence[str]) -> Profile:
    """Have the fit pass over resources that an extender answers for (`ignoredByScheduler`)."""
    if not resources:
        return profile
    own = next((given for given in profile.plugin_config if given.name == FIT), PluginConfig(name=FIT))
    both = [*own.args.get("ignoredResources", ()), *resources]
    others = tuple(given for given in profile.plugin_config if given is not own)
    extended = msgspec.structs.replace(own, args={**own.args, "ignoredResources": both})
    return msgspec.structs.replace(profile, plugin_config=(*others, extended))
