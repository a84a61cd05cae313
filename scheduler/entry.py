"""How a plugin is registered: its name, its arguments, and how it is made.

A module in `scheduler/plugins/` ends with `PLUGIN = PluginEntry(…)`; a package of its own offers one by the
entry point group `keplab.scheduler.plugins`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduler.handle import Handle
from services.api.switches import Switches


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plugin's arguments as KubeSchedulerConfiguration writes them; subclasses add the fields."""


@dataclass(frozen=True)
class PluginEntry:
    """`make` gets arguments of the class `args`; `default_args` makes them when the configuration gives none.

    Without `default_args` they are what the class itself defaults to, whatever the switches.
    """

    name: str
    make: Callable[[Any, Handle], Any]
    args: type[Args] = Args
    default_args: Callable[[Switches], Args] | None = None

    def defaults(self, switches: Switches) -> Args:
        """Return the arguments of a plugin that is given none."""
        return self.args() if self.default_args is None else self.default_args(switches)
