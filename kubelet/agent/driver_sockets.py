"""One node's side of DRA drivers: the registration folder, and the calls to registered drivers.

The process behind each file that appears in `plugins_registry` is asked who it is, and followed until the
file is gone. While its endpoint can be reached the driver is called there. A registration that fails is
tried again, with growing delays. Source: dra-core 7, 7.1; upstream `pkg/kubelet/pluginmanager`,
`pkg/kubelet/cm/dra/plugin`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from kubelet.agent.node import NodeShell
from kubelet.dra import wire
from kubelet.dra.calls import PLUGIN_TYPE, REGISTRY, Answer, CallFailed, Registered, names_of
from kubelet.dra.drivers import Instance, choose_service
from kubelet.dra.health import DriverHealth
from kubelet.dra.manager import CALL_MAX_S, PREPARE, ClaimManager
from kubelet.effects import CallDriver
from kubelet.view import WorkerKey
from services.api.local_rpc import LocalConnection, RpcError
from services.telemetry.calls import rpc_call
from services.telemetry.spans import parse_traceparent

POLL_S = 0.5
"""Seconds between two looks at the folder."""
DIAL_TIMEOUT_S, INFO_TIMEOUT_S, NOTIFY_TIMEOUT_S = 10.0, 1.0, 5.0
RETRY_MIN_S, RETRY_MAX_S = 0.5, 122.0
HEALTH_RETRY_S = 5.0
_NO_SOCKET = "it is no Unix socket"
_FAILED = "RegisterPlugin error -- "
log = structlog.get_logger()


class _Refused(Exception):
    """A registration that failed, with Kubernetes' text."""


@dataclass
class SocketRecord:
    """A file in `plugins_registry`.

    `error`: why its last registration failed; `instance`: which driver instance registered.
    """

    path: str
    error: str = ""
    instance: Instance | None = None

    def document(self, node: str) -> dict[str, Any]:
        """Return the record as the kubelet's process shows it."""
        instance = self.instance
        return {
            "node": node,
            "driver": instance.driver if instance is not None else "",
            "socket": self.path,
            "endpoint": instance.endpoint if instance is not None else "",
            "service": instance.service if instance is not None else "",
            "registered": instance is not None,
            "connected": instance is not None and instance.is_connected,
            "error": self.error,
        }


class DriverSockets:
    """The DRA drivers of one node, as its kubelet reaches them."""

    def __init__(self, node: NodeShell, claims: ClaimManager, health: DriverHealth | None) -> None:
        self._host, self._node, self._claims, self._health = node.host, node, claims, health
        self._folder = f"{node.host.config.sockets_dir}/{node.name}/{REGISTRY}"
        self._connections: dict[int, LocalConnection] = {}
        self._endpoints: dict[int, str] = {}
        self._records: dict[str, SocketRecord] = {}
        """What became of every file there is, by its path."""
        self._syncs: dict[WorkerKey, str] = {}
        """What names the pod sync in which the claims of a pod were prepared."""

    async def watch(self) -> None:
        """Follow every registration socket until cancelled."""
        sockets = self._host.seams.sockets
        following: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                entries = self._sync_records(sockets.listing(self._folder))
                for entry in [entry for entry in following if entry not in entries]:
                    following.pop(entry).cancel()
                for entry in entries:
                    if entry not in following:
                        following[entry] = group.create_task(self._follow(entry[0]))
                await asyncio.sleep(POLL_S)

    def _sync_records(self, listing: dict[str, str]) -> list[tuple[str, str]]:
        for path in [path for path in self._records if path not in listing]:
            del self._records[path]
        for path, mark in listing.items():
            known = self._records.setdefault(path, SocketRecord(path))
            if not mark and known.error != _NO_SOCKET:
                known.error = _NO_SOCKET
                log.warning("drivers.no_socket", node=self._node.name, path=path, reason=_NO_SOCKET)
                self._log("kubelet.driver_refused", {"socket": path, "why": _NO_SOCKET})
        return [(path, mark) for path, mark in listing.items() if mark]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return every file in the registration folder, with the outcome of its registration."""
        return [record.document(self._node.name) for record in self._records.values()]

    async def _follow(self, path: str) -> None:
        """Register who serves that socket, and follow it for as long as the socket is there."""
        delay_s = RETRY_MIN_S
        record = self._records[path]
        record.error, record.instance = "", None
        while True:
            try:
                instance = record.instance = await self._register(path)
                record.error = ""
                break
            except (_Refused, RpcError) as error:
                log.warning("drivers.registration_failed", node=self._node.name, path=path, reason=str(error))
                self._log("kubelet.driver_refused", {"socket": path, "why": str(error)})
                record.error = str(error)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MAX_S)
        try:
            async with asyncio.TaskGroup() as group:
                if self._health is not None:
                    group.create_task(self._follow_health(instance, self._health))
                await self._keep_connected(instance)
        finally:
            record.instance = None
            connection = self._connections.pop(instance.number)
            del self._endpoints[instance.number]
            self._claims.drivers.unregister(instance, self._node.now())
            self._log("kubelet.driver_lost", {"driver": instance.driver, "endpoint": instance.endpoint})
            self._node.drain()
            await connection.close()

    async def _register(self, path: str) -> Instance:
        """Ask who it is, and say what came of it. Raises: RpcError, _Refused."""
        connection = self._host.seams.sockets.dial(path)
        try:
            try:
                await connection.connect(DIAL_TIMEOUT_S)
            except RpcError as error:
                raise _Refused(f"{_FAILED}dial failed at socket {path}, err: {error.message}") from None
            try:
                info = wire.decode_info(await connection.call(wire.GET_INFO, wire.EMPTY, INFO_TIMEOUT_S))
            except RpcError as error:
                why = f"failed to get plugin info using RPC GetInfo at socket {path}, err: {error}"
                raise _Refused(_FAILED + why) from None
            if info.type != PLUGIN_TYPE:
                await self._refuse(connection, f"no handler registered for plugin type: {info.type} at socket {path}")
            endpoint = info.endpoint or path
            try:
                choose_service(info.name, endpoint, info.versions)
            except ValueError as error:
                await self._refuse(connection, f"plugin validation failed with err: {error}")
            try:
                instance = self._claims.drivers.register(info.name, endpoint, info.versions, self._node.now())
            except ValueError as error:
                await self._refuse(connection, f"plugin registration failed with err: {error}")
            self._connections[instance.number] = self._host.seams.sockets.dial(endpoint)
            self._endpoints[instance.number] = endpoint
            self._node.drain()
            data = {"driver": info.name, "endpoint": endpoint, "service": instance.service}
            self._log("kubelet.driver_registered", data)
            try:
                await self._notify(connection, Registered(is_registered=True))
            except RpcError as error:
                log.warning("drivers.not_notified", node=self._node.name, driver=info.name, reason=str(error))
            return instance
        finally:
            await connection.close()

    async def _refuse(self, connection: LocalConnection, why: str) -> None:
        """Raise _Refused, once the plugin was notified of the reason."""
        try:
            await self._notify(connection, Registered(is_registered=False, error=_FAILED + why))
        except RpcError as error:
            raise _Refused(f"{_FAILED}failed to send error, err: {_FAILED}{why}: {error}") from None
        raise _Refused(_FAILED + why)

    async def _notify(self, connection: LocalConnection, status: Registered) -> None:
        await connection.call(wire.NOTIFY, wire.encode_status(status), NOTIFY_TIMEOUT_S)

    async def _keep_connected(self, instance: Instance) -> None:
        """Know whether the driver can be reached, until cancelled."""
        connection = self._connections[instance.number]
        while True:
            try:
                await connection.connect(DIAL_TIMEOUT_S)
            except RpcError:
                continue
            self._set_connected(instance, is_connected=True)
            await connection.wait_until_broken()
            self._set_connected(instance, is_connected=False)

    def _set_connected(self, instance: Instance, *, is_connected: bool) -> None:
        self._claims.drivers.set_connected(instance, self._node.now(), is_connected=is_connected)
        self._log("kubelet.driver_connected" if is_connected else "kubelet.driver_away", {"driver": instance.driver})
        self._node.drain()

    def _log(self, ev: str, data: Mapping[str, object]) -> None:
        self._host.seams.events.write(ev, node=self._node.name, data=dict(data))

    # --- calls ---

    async def call(self, wanted: CallDriver) -> None:
        """Make a call and report its answer."""
        method = wire.method(wanted.service, wanted.call)
        traceparent = self._traceparent(wanted.key, is_prepare=wanted.call == PREPARE)
        answer = await self._answer(wanted, method, traceparent)
        caller = parse_traceparent(traceparent)
        self._host.seams.events.write(
            "kubelet.prepared" if wanted.call == PREPARE else "kubelet.unprepared",
            obj=self._claims.pod_of(wanted.key),
            node=self._node.name,
            trace_id=caller.trace_id if caller is not None and caller.is_sampled else "",
            data=_outcome(wanted, answer),
        )
        self._claims.on_answer(wanted.key, method, answer, self._node.now())
        if not any(wanted.key in cached.pods for cached in self._claims.cached.values()):
            self._syncs.pop(wanted.key, None)
        self._node.drain()

    async def _answer(self, wanted: CallDriver, method: str, traceparent: str) -> Answer:
        connection = self._connections.get(wanted.instance)
        if connection is None:
            return CallFailed("Canceled", "rpc error: code = Canceled desc = grpc: the client connection is closing")
        request = wire.encode_claims(names_of(wanted.claims))
        path = self._endpoints[wanted.instance]
        try:
            with rpc_call(self._host.seams.tracer, method, path, traceparent) as call:
                data = await connection.call(method, request, CALL_MAX_S, traceparent=call.traceparent)
            is_prepare = wanted.call == PREPARE
            return wire.decode_prepared(data, wanted.driver) if is_prepare else wire.decode_unprepared(data)
        except RpcError as error:
            return CallFailed(error.code, str(error))

    def _traceparent(self, key: WorkerKey, *, is_prepare: bool) -> str:
        """Return what names the pod's sync, "" for none; while its devices are unprepared that in which they were
        prepared, as it is over."""
        present = self._node.traces.stage_traceparent(key)
        if is_prepare:
            self._syncs[key] = present
            return present
        return self._syncs.get(key, "") or present

    # --- health (KEP-4680) ---

    async def _follow_health(self, instance: Instance, health: DriverHealth) -> None:
        """Take how the driver's devices are, for as long as it says; a driver that does not serve that is let be."""
        connection = self._connections[instance.number]
        while True:
            try:
                async for message in connection.stream(wire.WATCH_HEALTH, wire.EMPTY):
                    health.on_report(instance.driver, wire.decode_health(message), self._node.now())
                    self._node.drain()
            except RpcError as error:
                if error.code == "Unimplemented":
                    return
                log.info("drivers.health_ended", node=self._node.name, driver=instance.driver, reason=str(error))
            finally:
                health.clear(instance.driver, self._node.now())
                self._node.drain()
            await asyncio.sleep(HEALTH_RETRY_S)


def _outcome(wanted: CallDriver, answer: Answer) -> dict[str, Any]:
    """Return what the event log says of a call: its claims by uid and name, and of those that went well the devices
    that no other claim may have."""
    data: dict[str, Any] = {
        "driver": wanted.driver,
        "claims": [claim.uid for claim in wanted.claims],
        "names": [claim.name for claim in wanted.claims],
    }
    if isinstance(answer, CallFailed):
        return data | {"error": answer.text}
    devices: dict[str, list[str]] = {}
    for claim in wanted.claims:
        result = answer.get(claim.uid)
        if result is not None and not result.error:
            devices[claim.uid] = [
                each.path for each in result.devices if f"{each.driver}/{each.pool}/{each.device}" not in claim.admin
            ]
    return data | {"devices": devices}
