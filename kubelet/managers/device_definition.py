"""What an emulated device plugin of a node consists of, as a node's definition says it. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from kubelet.managers.device_calls import Device, is_extended

DEVICES_MAX = 10_000


class DevicePlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An emulated device plugin of a node, a process of its own: `devices` of one extended resource.

    `topology`: the NUMA node of each device in turn; none: the devices have no topology. `preferred`: what it answers
    to GetPreferredAllocation (`kubelet/deviceplugin/emulated/plugin.py`); "": it is not to be asked. `pre_start`: it
    wants PreStartContainer. `delay_s`: how long it takes to register, from when it finds a kubelet's socket.
    """

    resource: str
    devices: int = 1
    topology: tuple[int, ...] = ()
    preferred: Literal["", "pairs", "spread"] = ""
    pre_start: bool = False
    delay_s: float = 0.0

    def check(self) -> None:
        """Raise ValueError when there can be no such plugin."""
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

    def listed(self) -> tuple[Device, ...]:
        """Return its devices, all healthy: dev-0, dev-1 and so on."""
        return tuple(
            Device(f"dev-{number}", numa=(self.topology[number],) if self.topology else ())
            for number in range(self.devices)
        )


def check_plugins(plugins: Sequence[DevicePlugin]) -> None:
    """Raise ValueError naming the plugin that cannot be, or has the resource of another."""
    for index, plugin in enumerate(plugins):
        try:
            plugin.check()
        except ValueError as error:
            raise ValueError(f"devicePlugins[{index}].{error}") from None
        if any(other.resource == plugin.resource for other in plugins[:index]):
            raise ValueError(f"devicePlugins[{index}].resource: {plugin.resource} has a plugin already")
