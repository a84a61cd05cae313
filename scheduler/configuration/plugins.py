"""The existing plugins, and the default profile: their order and weights.

The plugins folder is the register of existing plugins: one file per plugin, or a folder whose `plugin.py`
offers it. The list here turns them on. There are also those of installed packages, and the ones that
`--plugin` names: a package offers a plugin by an entry point in the group `keplab.scheduler.plugins`; its
value leads to a `PluginEntry`. An offered plugin is off until a configuration turns it on. So packages are
searched only when there is one, and a scheduler without a file starts as fast, and behaves the same,
whatever is installed. Source: scheduler-queue-and-cycles 5.1.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from scheduler.entry import Handle, PluginEntry
from scheduler.framework.arrangement import Enabled
from scheduler.switches import GangSwitches, WorldSwitches
from services.api.switches import Switches

NODE_REJECTION_WEIGHT: Final = 100
"""A weight above the sum of all others, so that a node with a soft exclusion ranks last but stays possible."""

DEFAULT: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 1),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("GangScheduling", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("NodeDeclaredFeatures", 0),
    ("NodeResourceTopologyMatch", 0),
    ("NodeRejection", NODE_REJECTION_WEIGHT),
    ("DefaultBinder", 0),
)
"""Names and weights in upstream's multiPoint order; NodeRejection is ours, NodeResourceTopologyMatch a SIG's."""


@cache
def plugins() -> dict[str, PluginEntry]:
    """Return every plugin of the folder by name, sorted by the names of files and folders."""
    # By name, not by import statement: the register finds its entries.
    folder = importlib.import_module("scheduler.plugins")
    entries: dict[str, PluginEntry] = {}
    for name, is_folder in sorted((info.name, info.ispkg) for info in pkgutil.iter_modules(folder.__path__)):
        module = f"{folder.__name__}.{name}.plugin" if is_folder else f"{folder.__name__}.{name}"
        entry: PluginEntry = importlib.import_module(module).PLUGIN
        if entry.name in entries:
            raise ValueError(f"two modules in plugins/ offer {entry.name}")
        entries[entry.name] = entry
    return entries


def defaults(switches: Switches) -> tuple[tuple[str, int], ...]:
    """Return the names and weights of the plugins that run by default with these feature gates."""
    own = switches.of(WorldSwitches)
    runs = {
        "GangScheduling": switches.of(GangSwitches).is_on,
        "NodeDeclaredFeatures": own.has_declared_features,
        "NodeResourceTopologyMatch": own.numa_scheduler != "none",
    }
    return tuple(each for each in DEFAULT if runs.get(each[0], True))


def default_profile(handle: Handle) -> list[Enabled]:
    """Return the default plugins, in order, made for this scheduler."""
    known = plugins()
    return [
        Enabled(known[name].make(known[name].defaults(handle.switches), handle), weight)
        for name, weight in defaults(handle.switches)
    ]


GROUP: Final = "keplab.scheduler.plugins"


class PluginSourceError(Exception):
    """Error: a plugin cannot be loaded; the line says which, from where and why."""


def known_plugins(named: Sequence[str] = ()) -> dict[str, PluginEntry]:
    """Return all existing plugins by name: the folder's, those of installed packages, and those `named`.

    `named`: texts `module:ATTRIBUTE`. Raises: PluginSourceError for one that cannot be imported, is no
    PluginEntry, or has another's name.
    """
    entries = dict(plugins())
    came_from = dict.fromkeys(entries, "keplab itself")
    for origin, value in (*_installed_plugins(), *_named_plugins(named)):
        if not isinstance(value, PluginEntry):
            raise PluginSourceError(f"{origin} is a {type(value).__name__}, want a PluginEntry")
        if value.name in entries:
            raise PluginSourceError(f"{origin} offers {value.name}, which {came_from[value.name]} offers already")
        entries[value.name], came_from[value.name] = value, origin
    return entries


def _installed_plugins() -> Iterator[tuple[str, Any]]:
    # Only here: a scheduler without a configuration file never looks at packages.
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        package = point.dist.name if point.dist is not None else "an unnamed package"
        origin = f"entry point {point.name} = {point.value} of {package}"
        try:
            value = point.load()
        except Exception as error:  # whatever an out-of-tree module raises while it is imported
            raise PluginSourceError(f"{origin}: {_reason(error)}") from error
        yield origin, value


def _named_plugins(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for text in texts:
        module, colon, attribute = text.partition(":")
        if not (module and colon and attribute):
            raise PluginSourceError(f"--plugin {text}: want module:ATTRIBUTE")
        try:
            value = importlib.import_module(module)
            for name in attribute.split("."):
                value = getattr(value, name)
        except Exception as error:  # as above
            raise PluginSourceError(f"--plugin {text}: {_reason(error)}") from error
        yield f"--plugin {text}", value


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
