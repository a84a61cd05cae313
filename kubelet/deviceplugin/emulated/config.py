"""The settings of an emulated device plugin."""

from dataclasses import dataclass

import msgspec

from kubelet.deviceplugin.emulated.plugin import DevicePlugin
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting


@dataclass(frozen=True, kw_only=True)
class PluginConfig(CommonConfig):
    """One plugin of one node."""

    node: str = setting("", "the node whose kubelet it registers with")
    sockets_dir: str = setting("nodes", "directory of the nodes' sockets: the kubelet's is DIR/NODE/kubelet.sock")
    folder: str = setting("", "the directory of kubelet.sock itself, instead of sockets_dir and node")
    definition: str = setting("", 'the plugin as JSON, for example {"resource": "example.com/gpu", "devices": 4}')

    @property
    def place(self) -> str:
        """The directory of the kubelet's socket."""
        return self.folder or f"{self.sockets_dir}/{self.node}"

    def plugin(self) -> DevicePlugin:
        """Return the plugin. Raises: StartError naming the field."""
        if not self.node:
            raise StartError("--node: want the name of a node", EXIT_USAGE)
        try:
            found = msgspec.json.decode(self.definition or "{}", type=DevicePlugin)
            found.check()
        except (msgspec.DecodeError, ValueError) as error:
            raise StartError(f"--definition: {error}", EXIT_USAGE) from None
        return found
