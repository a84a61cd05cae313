"""The registration of a plugin: its name, its arguments, and its constructor.

A module in `scheduler/plugins/` ends with `PLUGIN = PluginEntry(…)`; a package of its own offers one by the
entry point group `keplab.scheduler.plugins`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.dra.ledger import ClaimLedger
from scheduler.framework.world import World
from scheduler.preemption.progress import RunningPreemptions
from scheduler.queue.exclusions import Exclusions
from scheduler.volumes.claims import AssumedVolumes
from services.api.seams import Random
from services.api.switches import Switches

DEFAULT_SCHEDULER: Final = "default-scheduler"


class WaitingForPermit(Protocol):
    """The pods that wait at Permit; calls about another pod have no effect."""

    def allow(self, uid: str, plugin: str) -> None: ...  # noqa: D102
    def reject(self, uid: str, plugin: str, message: str) -> bool: ...  # noqa: D102


class NoWaitingPods:
    """No waiting pods: for a scheduler that binds nothing."""

    def allow(self, uid: str, plugin: str) -> None:
        """Do nothing."""

    def reject(self, uid: str, plugin: str, message: str) -> bool:
        """Do nothing."""
        return False


@dataclass
class PodEvents:
    """Sends Events about pods for plugins, once the loops have connected it; upstream's `EventRecorder()`."""

    send: Callable[..., None] = lambda pod, reason, message, **_: None


@dataclass
class CustomResults:
    """Adds results of a plugin's own to the decision record; nothing happens while no record is written."""

    add: Callable[[PodInfo, str, str], None] = lambda pod, key, text: None


@dataclass(frozen=True)
class Handle:
    """The parts of the scheduler that a plugin may use; upstream's `framework.Handle`.

    `profile`: the schedulerName. `world`: kinds other than pods and nodes. `wall`: seconds since 1970.
    `groups`: the members of pod groups; `waiting`: the pods that wait at Permit. `events`: the sender of
    Events. `record`: results of the plugin's own, `record.add(pod, annotation key, text)` as upstream's
    simulator has `AddCustomResult`.
    """

    switches: Switches
    cache: Cache
    nominator: Nominator
    world: World
    exclusions: Exclusions
    random: Random
    wall: Callable[[], float]
    profile: str = DEFAULT_SCHEDULER
    preempting: RunningPreemptions = field(default_factory=RunningPreemptions)
    volumes: AssumedVolumes = field(default_factory=AssumedVolumes)
    claims: ClaimLedger = field(default_factory=ClaimLedger)
    groups: PodGroups = field(default_factory=PodGroups)
    waiting: WaitingForPermit = field(default_factory=NoWaitingPods)
    events: PodEvents = field(default_factory=PodEvents)
    record: CustomResults = field(default_factory=CustomResults)


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plugin's arguments as KubeSchedulerConfiguration writes them; subclasses add the fields."""


@dataclass(frozen=True)
class PluginEntry:
    """A registered plugin. `make` gets arguments of the class `args`.

    `default_args` makes the arguments when the configuration gives none. Without `default_args` they are the
    class's own defaults, whatever the switches.

    `hooks`: it is not a plugin of its own but makes hooks around the plugin of that name
    (`scheduler/framework/hooks.py`).
    """

    name: str
    make: Callable[[Any, Handle], Any]
    args: type[Args] = Args
    default_args: Callable[[Switches], Args] | None = None
    hooks: str = ""

    def defaults(self, switches: Switches) -> Args:
        """Return the arguments of a plugin without configured arguments."""
        return self.args() if self.default_args is None else self.default_args(switches)
