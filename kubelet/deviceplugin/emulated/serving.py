"""The process of the emulated plugin: serve, register, register again when the directory was cleared.

A kubelet that starts clears the directory of all sockets; a plugin that misses its own begins anew.
Commands come on another socket below, in `plugins/`, which no kubelet clears. Source: kubelet 5.5; upstream
`staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from kubelet.control_socket import POLL_S, RETRY_S, ChangeSignal, ControlSocket, NodePartConfig, command
from kubelet.deviceplugin import wire
from kubelet.deviceplugin.emulated.plugin import Command, DevicePlugin, EmulatedPlugin, check_act
from kubelet.managers.device_calls import KUBELET_SOCKET, VERSION, Registration
from services.api.errors import UNREADABLE
from services.api.local_rpc import LocalService, RpcError, Sockets
from services.api.seams import Seams
from services.runtime.config import EXIT_USAGE, StartError, setting
from services.telemetry.metrics import Metrics, Samples, counter, gauge

COMMAND = "/keplab.v1.DevicePlugin/Command"
CALL_TIMEOUT_S = 15.0
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class PluginConfig(NodePartConfig):
    """One plugin of one node."""

    definition: str = setting("", 'the plugin as JSON, for example {"resource": "example.com/gpu", "devices": 4}')

    def plugin(self) -> DevicePlugin:
        """Return the plugin's definition. Raises: StartError naming the field."""
        self.check_node()
        try:
            plugin = msgspec.json.decode(self.definition or "{}", type=DevicePlugin)
            plugin.check()
        except (*UNREADABLE, ValueError) as error:
            raise StartError(f"--definition: {error}", EXIT_USAGE) from None
        return plugin


def control_path(folder: str, resource: str) -> str:
    """Return the path of the control socket of a resource's plugin; `folder`: the node's folder."""
    return f"{folder}/plugins/{resource.replace('/', '_')}.sock"


class PluginServing:
    """The component that runs one plugin of one node. `run` once."""

    def __init__(self, definition: DevicePlugin, seams: Seams, node: str, folder: str) -> None:
        plugin = self._plugin = EmulatedPlugin(definition)
        self._seams, self._node, self._folder = seams, node, folder
        self._path = f"{folder}/{plugin.endpoint}"
        path = control_path(folder, plugin.definition.resource)
        self._control = ControlSocket(seams.sockets, path, COMMAND, self._command)
        self._changes = ChangeSignal()
        self._was_registered = False
        self._is_listed = False
        self._allocations = self._registrations = 0

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet has the plugin's list of devices, or the plugin is configured to stay away."""
        return self._is_listed or self._plugin.is_away

    def metrics(self) -> Samples:
        """Return counters and gauges."""
        return METRICS.of(self)

    async def run(self) -> None:
        """Run the plugin until cancelled."""
        try:
            while True:
                await self._control.serve()
                if self._plugin.is_away:
                    await self._changes.wait()
                else:
                    await self._serve_once()
        finally:
            await self._control.close()

    async def _serve_once(self) -> None:
        """Serve and be registered until the socket is gone or the plugin is commanded to go."""
        service = LocalService(
            {
                wire.GET_OPTIONS: self._options,
                wire.PREFERENCE: self._preferred_allocation,
                wire.ALLOCATE: self._allocate,
                wire.PRE_START: self._pre_start,
            },
            {wire.LIST_AND_WATCH: self._list},
        )
        if self._was_registered and self._plugin.definition.delay_s:
            await self._pause(self._plugin.definition.delay_s)
        if self._plugin.is_away:
            return
        server = await self._seams.sockets.serve(self._path, service)
        try:
            while not await self._register():
                await self._pause(RETRY_S)
                if self._plugin.is_away or not self._seams.sockets.exists(self._path):
                    return
            while not self._plugin.is_away and self._seams.sockets.exists(self._path):
                await self._control.serve()
                await self._pause(POLL_S)
        finally:
            await server.close()

    async def _pause(self, duration_s: float) -> None:
        """Wait, but not longer than until the plugin is commanded to go."""
        end_s = self._seams.clock.now() + duration_s
        while not self._plugin.is_away and (left_s := end_s - self._seams.clock.now()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._changes.wait()
            except TimeoutError:
                return

    async def _register(self) -> bool:
        definition = self._plugin.definition
        asked = Registration(VERSION, self._plugin.endpoint, definition.resource, self._plugin.options)
        data = {"resource": definition.resource}
        try:
            connection = self._seams.sockets.dial(f"{self._folder}/{KUBELET_SOCKET}")
            try:
                await connection.call(wire.REGISTER, wire.encode_registration(asked), CALL_TIMEOUT_S)
            finally:
                await connection.close()
        except RpcError as error:
            log.info("plugin.not_registered", node=self._node, error=str(error), **data)
            return False
        self._registrations += 1
        self._was_registered = True
        self._seams.events.write("plugin.registered", node=self._node, data=data)
        return True

    async def _command(self, request: bytes) -> bytes:
        try:
            wanted = msgspec.json.decode(request, type=Command)
            self._plugin.act(wanted)
        except (*UNREADABLE, ValueError) as error:
            raise RpcError("InvalidArgument", str(error)) from None
        data = {"resource": self._plugin.definition.resource, "act": wanted.act, "devices": list(wanted.devices)}
        self._seams.events.write("plugin.command", node=self._node, data=data)
        self._changes.send()
        return b""

    async def _options(self, _: bytes) -> bytes:
        return wire.encode_options(self._plugin.options)

    async def _list(self, _: bytes) -> AsyncIterator[bytes]:
        version = -1
        while True:
            if version != self._plugin.version:
                version = self._plugin.version
                yield wire.encode_devices(self._plugin.devices.values())
                self._is_listed = True
                continue
            await self._changes.wait()

    async def _preferred_allocation(self, request: bytes) -> bytes:
        wanted = wire.decode_preferences(request)
        return wire.encode_preferences([self._plugin.preferred_devices(*each) for each in wanted])

    async def _allocate(self, request: bytes) -> bytes:
        wanted = wire.decode_allocate(request)
        try:
            answer = wire.encode_given([self._plugin.allocate(ids) for ids in wanted])
        except ValueError as error:
            raise RpcError("Unknown", str(error)) from None
        self._allocations += 1
        data = {"resource": self._plugin.definition.resource, "containers": [list(ids) for ids in wanted]}
        self._seams.events.write("plugin.allocate", node=self._node, data=data)
        return answer

    async def _pre_start(self, request: bytes) -> bytes:
        data = {"resource": self._plugin.definition.resource, "devices": list(wire.decode_pre_start(request))}
        self._seams.events.write("plugin.pre_start", node=self._node, data=data)
        return wire.EMPTY


METRICS: Final[Metrics[PluginServing]] = Metrics(
    gauge("keplab_device_plugin_devices", "Devices.", lambda own: len(own._plugin.devices)),
    gauge(
        "keplab_device_plugin_devices_healthy",
        "Devices that are healthy.",
        lambda own: sum(device.is_healthy for device in own._plugin.devices.values()),
    ),
    counter("keplab_device_plugin_allocations_total", "Calls of Allocate.", lambda own: own._allocations),
    counter(
        "keplab_device_plugin_registrations_total", "Registrations with a kubelet.", lambda own: own._registrations
    ),
)


def build(config: PluginConfig, seams: Seams) -> PluginServing:
    """Return the plugin the configuration describes. Raises: StartError."""
    return PluginServing(config.plugin(), seams, config.node, config.place)


async def command_plugin(
    sockets: Sockets, sockets_dir: str, node: str, resource: str, act: str, devices: Sequence[str]
) -> None:
    """Send a command to a plugin; return once it was performed.

    Raises: ValueError when it cannot perform it, Away when the plugin is not there.
    """
    check_act(act, devices)
    path, request = control_path(f"{sockets_dir}/{node}", resource), Command(act, tuple(devices))
    await command(sockets, path, COMMAND, msgspec.json.encode(request), actor=f"device plugin {resource}", node=node)
