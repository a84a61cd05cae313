"""Where plugins come from besides the plugins folder: installed packages, and what `--plugin` names.

A package offers a plugin by an entry point in the group `keplab.scheduler.plugins`; its value leads to a
`PluginEntry`. Being offered turns nothing on: that takes a configuration. So packages are looked at only when
there is one, and a scheduler without a file starts as fast, and behaves the same, whatever is installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from scheduler.configuration.default_plugins import plugins
from scheduler.entry import PluginEntry

GROUP: Final = "keplab.scheduler.plugins"


class PluginSourceError(Exception):
    """A plugin cannot be had; one line that says which, from where and why."""


def known_plugins(named: Sequence[str] = ()) -> dict[str, PluginEntry]:
    """Return all plugins there are, by name: the folder's, those of installed packages, those `named`.

    `named`: texts `module:ATTRIBUTE`. Raises: PluginSourceError for one that cannot be imported, is no
    PluginEntry, or has another's name.
    """
    found = dict(plugins())
    came_from = dict.fromkeys(found, "keplab itself")
    for origin, value in (*_installed(), *_named(named)):
        if not isinstance(value, PluginEntry):
            raise PluginSourceError(f"{origin} is a {type(value).__name__}, want a PluginEntry")
        if value.name in found:
            raise PluginSourceError(f"{origin} offers {value.name}, which {came_from[value.name]} offers already")
        found[value.name], came_from[value.name] = value, origin
    return found


def _installed() -> Iterator[tuple[str, Any]]:
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        package = point.dist.name if point.dist is not None else "an unnamed package"
        origin = f"entry point {point.name} = {point.value} of {package}"
        try:
            value = point.load()
        except Exception as error:  # whatever an out-of-tree module raises while it is imported
            raise PluginSourceError(f"{origin}: {_reason(error)}") from error
        yield origin, value


def _named(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
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
