"""One node's side of the device plugin API: the registration socket, and the calls to registered plugins.

A plugin that registers is reached on its own socket and asked for its options. It is followed as long as
its list of devices streams; the stream's end means that the plugin is gone. Source: kubelet 5.5.
"""

import msgspec
import structlog

from kubelet.admission.handler import AdmissionHandler
from kubelet.agent.node import NodeShell
from kubelet.deviceplugin import wire
from kubelet.deviceplugin.plugins import DevicePlugins
from kubelet.managers.device_calls import (
    KUBELET_SOCKET,
    Allocate,
    Answer,
    Call,
    CallPlugin,
    Failed,
    Preference,
    PreStart,
    Registration,
)
from services.api.errors import UNREADABLE
from services.api.local_rpc import LocalConnection, LocalServer, LocalService, RpcError

DIAL_TIMEOUT_S = 10.0
PRE_START_TIMEOUT_S = 30.0
log = structlog.get_logger()


class DeviceSockets:
    """The sockets of one node that accepts device plugins."""

    def __init__(self, node: NodeShell, plugins: DevicePlugins, admission: AdmissionHandler) -> None:
        self._host, self._node, self._plugins, self._admission = node.host, node, plugins, admission
        self._folder = f"{node.host.config.sockets_dir}/{node.name}"
        self._file = f"devices-{node.name}.json"
        self._connections: dict[int, LocalConnection] = {}
        self._server: LocalServer | None = None
        self._saved: tuple[str, ...] = ()
        self._is_saving = False

    def restore(self) -> None:
        """Restore the list of resources with plugins that a former kubelet of this node saved."""
        data = self._host.seams.disk.read(self._file)
        if data is None:
            return
        try:
            self._saved = msgspec.json.decode(data, type=tuple[str, ...])
        except UNREADABLE as error:
            log.warning("devices.checkpoint_unreadable", node=self._node.name, file=self._file, error=str(error))
            return
        self._plugins.restore(self._saved, self._node.now())

    async def serve(self) -> None:
        """Serve a new registration socket and remove every other socket.

        Plugins notice by this that they have to register (again).
        """
        sockets = self._host.seams.sockets
        sockets.clear(self._folder)
        self._server = await sockets.serve(
            f"{self._folder}/{KUBELET_SOCKET}", LocalService({wire.REGISTER: self._register})
        )

    async def _register(self, request: bytes) -> bytes:
        asked = wire.decode_registration(request)
        why = self._plugins.refusal(asked)
        if not why:
            why = await self._take_on(asked)
        data = {"resource": asked.resource, "endpoint": asked.endpoint, "version": asked.version}
        self._host.seams.events.write(
            "kubelet.device_register", node=self._node.name, data=data | ({"refused": why} if why else {})
        )
        if why:
            raise RpcError("Unknown", why)
        return wire.EMPTY

    async def _take_on(self, asked: Registration) -> str:
        """Reach the plugin and follow it; return why it cannot be had, as Kubernetes says it."""
        connection = self._host.seams.sockets.dial(f"{self._folder}/{asked.endpoint}")
        try:
            await connection.connect(DIAL_TIMEOUT_S)
        except RpcError as error:
            await connection.close()
            return f"failed to dial device plugin: {error.message}"
        try:
            options = wire.decode_options(await connection.call(wire.GET_OPTIONS, wire.EMPTY))
        except RpcError as error:
            await connection.close()
            return f"failed to get device plugin options: {error}"
        number = self._plugins.on_connected(asked.resource, options, self._node.now())
        self._connections[number] = connection
        self._node.drain()
        self._node.spawn(self._listen(asked.resource, number, connection))
        return ""

    async def _listen(self, resource: str, number: int, connection: LocalConnection) -> None:
        why = "the plugin ended its list"
        try:
            async for message in connection.stream(wire.LIST_AND_WATCH, wire.EMPTY):
                devices = wire.decode_devices(message)
                now = self._node.now()
                changed = self._plugins.update_devices(resource, number, devices, now)
                if changed is None:
                    break
                healthy = sum(device.is_healthy for device in devices)
                self._log("kubelet.devices_listed", resource, {"devices": len(devices), "healthy": healthy})
                if self._plugins.show_health(now) or changed:
                    self._admission.capacity_came(now)  # pods may wait for such devices
                self._node.drain()
        except RpcError as error:
            why = str(error)
        finally:
            del self._connections[number]
        now = self._node.now()
        lost = self._plugins.on_disconnected(resource, number, now)
        if lost is not None:
            self._log("kubelet.devices_lost", resource, {"why": why})
            log.warning("devices.plugin_gone", node=self._node.name, resource=resource, error=why)
            self._plugins.show_health(now)
            self._node.drain()
        await connection.close()

    def _log(self, ev: str, resource: str, data: dict[str, object]) -> None:
        self._host.seams.events.write(ev, node=self._node.name, data={"resource": resource, **data})

    async def call(self, wanted: CallPlugin) -> None:
        """Make a call and report its answer."""
        connection = self._connections.get(wanted.connection)
        answer: Answer
        if connection is None:
            answer = Failed(f"endpoint {wanted.call.resource} has been stopped")
        else:
            answer = await _answer(connection, wanted.call)
        now = self._node.now()
        if not self._plugins.on_answer(wanted.number, answer, now):
            self._admission.devices_answered(wanted.number, answer, now)
        self._node.drain()

    def save(self, registered: tuple[str, ...]) -> None:
        """Save which resources have plugins, if that changed."""
        if registered == self._saved:
            return
        self._saved = registered
        if not self._is_saving:
            self._is_saving = True
            self._node.spawn(self._write())

    async def _write(self) -> None:
        written: tuple[str, ...] | None = None
        try:
            while written != self._saved:
                written = self._saved
                await self._host.seams.disk.write(self._file, msgspec.json.encode(written))
        except OSError as error:
            log.warning("devices.checkpoint_failed", node=self._node.name, file=self._file, error=str(error))
        finally:
            self._is_saving = False


async def _answer(connection: LocalConnection, call: Call) -> Answer:
    method, request = wire.encode_call(call)
    try:
        match call:
            case Preference():
                return wire.decode_preference(await connection.call(method, request))
            case Allocate():
                return wire.decode_given(await connection.call(method, request))
            case PreStart():
                await connection.call(method, request, PRE_START_TIMEOUT_S)
                return None
    except RpcError as error:
        return Failed(str(error))
