"""The picture of an emulated device plugin's process."""

from __future__ import annotations

from kubelet.deviceplugin.emulated.config import PluginConfig
from kubelet.deviceplugin.emulated.plugin import EmulatedPlugin
from kubelet.deviceplugin.emulated.serving import PluginServing
from services.api.seams import Seams


class PluginRoom:
    """A process that is one plugin of one node."""

    def __init__(self, plugin: EmulatedPlugin, serving: PluginServing) -> None:
        self._plugin, self._serving = plugin, serving

    async def run(self) -> None:
        """Be the plugin until cancelled."""
        await self._serving.run()

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet has its list of devices, or it is configured to stay away."""
        return self._serving.is_listed or self._plugin.is_away

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges."""
        devices = self._plugin.listed()
        return {
            "device_plugin_devices": len(devices),
            "device_plugin_devices_healthy": sum(device.is_healthy for device in devices),
            "device_plugin_allocations_total": self._serving.allocations,
            "device_plugin_registrations_total": self._serving.registrations,
        }


def build(config: PluginConfig, seams: Seams) -> PluginRoom:
    """Return the plugin the configuration describes. Raises: StartError."""
    plugin = EmulatedPlugin(config.plugin())
    return PluginRoom(plugin, PluginServing(plugin, seams, config.node, config.place))
