"""The definition of an emulated device plugin in a node's definition, and its state and answers. Pure.

It acts as commanded: devices fall ill and recover, come and go, Allocate is refused; or the whole plugin
goes away for a while. A container gets an environment variable, an annotation and a device file for each
device: names only, nothing is behind them.
Source: kubelet 5.5.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from kubelet.managers.device_calls import AllocateResult, Device, DeviceNode, Options, is_extended

DEVICES_MAX = 10_000


class DevicePlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An emulated device plugin of a node, a process of its own: `devices` of one extended resource.

    `topology`: the NUMA node of each device in turn; empty: the devices have no topology. `preferred`: its
    answer to GetPreferredAllocation; "": it is not to be asked. `pre_start`: it wants PreStartContainer.
    `delay_s`: seconds that it takes to register, from when it finds a kubelet's socket.
    """

    resource: str
    devices: int = 1
    topology: tuple[int, ...] = ()
    preferred: Literal["", "pairs", "spread"] = ""
    pre_start: bool = False
    delay_s: float = 0.0

    def check(self) -> None:
        """Raise ValueError when the definition is invalid."""
        if not is_extended(self.resource):
            raise ValueError(f"resource: {self.resource!r}, want an extended resource such as example.com/gpu")
        if not 0 <= self.devices <= DEVICES_MAX:
            raise ValueError(f"devices: {self.devices}, want 0 to {DEVICES_MAX}")
        if self.topology and len(self.topology) != self.devices:
            raise ValueError(f"topology: {len(self.topology)} NUMA nodes for {self.devices} devices")
        if min(self.topology, default=0) < 0:
            raise ValueError(f"topology: NUMA node {min(self.topology)}, want 0 or more")
        if self.delay_s < 0:
            raise ValueError(f"delayS: {self.delay_s:g}, want 0 or more")

    def device_list(self) -> tuple[Device, ...]:
        """Return its devices, all healthy: dev-0, dev-1 and so on."""
        return tuple(
            Device(f"dev-{number}", numa=(self.topology[number],) if self.topology else ())
            for number in range(self.devices)
        )


def check_plugins(plugins: Sequence[DevicePlugin]) -> None:
    """Raise ValueError naming the plugin that is invalid or has the same resource as another."""
    for index, plugin in enumerate(plugins):
        try:
            plugin.check()
        except ValueError as error:
            raise ValueError(f"devicePlugins[{index}].{error}") from None
        if any(other.resource == plugin.resource for other in plugins[:index]):
            raise ValueError(f"devicePlugins[{index}].resource: {plugin.resource} has a plugin already")


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command to a plugin: an act and the devices it applies to."""

    act: str
    devices: tuple[str, ...] = ()


class EmulatedPlugin:
    """One plugin of one node. Invariant: `version` grows with every change of the list.

    Two neighbours are a pair, dev-0 and dev-1, dev-2 and dev-3: `preferred` "pairs" keeps pairs together, "spread"
    takes one of each.
    """

    def __init__(self, definition: DevicePlugin) -> None:
        self.definition = definition
        self.devices: dict[str, Device] = {device.id: device for device in definition.device_list()}
        self.is_away = False
        self.refuses = False
        self.version = 0

    @property
    def endpoint(self) -> str:
        """The name of the plugin's socket."""
        return self.definition.resource.replace("/", "_") + ".sock"

    @property
    def options(self) -> Options:
        """The optional calls that the plugin wants."""
        return Options(pre_start=self.definition.pre_start, prefers=bool(self.definition.preferred))

    def act(self, command: Command) -> None:
        """Perform the command. Raises: ValueError naming the unknown act or device."""
        act, devices = command.act, command.devices
        check_act(act, devices)
        if act in ("stop", "start"):
            self.is_away = act == "stop"
            return
        if act in ("refuse", "accept"):
            self.refuses = act == "refuse"
            return
        if act != "add":
            self._check_known(devices)
        numa = {device.id: device.numa for device in self.definition.device_list()}
        for device in devices:
            match act:
                case "remove":
                    del self.devices[device]
                case "add":
                    self.devices[device] = Device(device, numa=numa.get(device, ()))
                case _:
                    self.devices[device] = Device(device, act == "healthy", self.devices[device].numa)
        self.version += 1

    def _check_known(self, devices: Sequence[str]) -> None:
        if unknown := [device for device in devices if device not in self.devices]:
            raise ValueError(f"no device {unknown[0]!r}; there are: {', '.join(self.devices) or 'none'}")

    def allocate(self, ids: Sequence[str]) -> AllocateResult:
        """Return what a container needs to use these devices. Raises: ValueError when the plugin refuses."""
        if self.refuses:
            raise ValueError(f"{self.definition.resource} is configured to refuse")
        self._check_known(ids)
        name = self.definition.resource
        variable = "KEPLAB_DEVICES_" + "".join(sign.upper() if sign.isalnum() else "_" for sign in name)
        listed = ",".join(sorted(ids))
        return AllocateResult(
            envs={variable: listed},
            annotations={f"devices.keplab.dev/{name.rpartition('/')[2]}": listed},
            nodes=tuple(DeviceNode(f"/dev/{device}", f"/dev/keplab/{name}/{device}") for device in sorted(ids)),
        )

    def preferred_devices(self, available: Sequence[str], must: Sequence[str], size: int) -> tuple[str, ...]:
        """Return `size` of the available devices, those in `must` first; fewer when there are not enough."""
        chosen = [device for device in must if device in available][:size]
        pairs = {device: index // 2 for index, device in enumerate(self.devices)}
        left = [device for device in available if device not in chosen]
        while left and len(chosen) < size:
            taken = [pairs.get(device, -1) for device in chosen]
            best = min(left, key=lambda device: self._rank(device, pairs, taken, left, size - len(chosen)))
            chosen.append(best)
            left.remove(best)
        return tuple(chosen)

    def _rank(
        self, device: str, pairs: Mapping[str, int], taken: Sequence[int], left: Sequence[str], wanted: int
    ) -> tuple[bool, bool, int]:
        """Return how late a device comes: is its pair begun, is it whole (kept for who wants two), then its place."""
        pair = pairs.get(device, -1)
        is_begun = pair in taken
        is_whole = sum(pairs.get(other, -1) == pair for other in left) > 1
        place = list(self.devices).index(device) if device in self.devices else len(self.devices)
        if self.definition.preferred == "spread":
            return is_begun, not is_whole, place
        return not is_begun, is_whole != (wanted > 1), place


ABOUT_DEVICES = ("unhealthy", "healthy", "remove", "add")
ACTS = ("stop", "start", "refuse", "accept", *ABOUT_DEVICES)


def check_act(act: str, devices: Sequence[str]) -> None:
    """Raise ValueError when the act is unknown, or does not fit these devices."""
    if act not in ACTS:
        raise ValueError(f"no act {act!r}; there are: {', '.join(sorted(ACTS))}")
    if act in ABOUT_DEVICES and not devices:
        raise ValueError(f"{act} wants devices, for example: {act} dev-0")
    if act not in ABOUT_DEVICES and devices:
        raise ValueError(f"{act} is about no device, not {' '.join(devices)}")
