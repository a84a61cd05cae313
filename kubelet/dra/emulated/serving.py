"""The process of the emulated DRA driver: serve, be registered by the kubelet, publish, prepare, report health.

It has three sockets in its node's folder: one in `plugins_registry`, where the kubelet finds it, one in
`plugins/<driver>`, where the kubelet calls it, and one beside that for commands. It has a service account
with its name and a token bound to its node. The API server lets it write slices of that node only, read
claims, and write the status of its own devices in claims that are allocated there. Source: dra-core 1.1, 7,
7.1, 9; upstream `staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin`.
"""

import asyncio
import math
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubelet.control_socket import POLL_S, RETRY_S, ChangeSignal, ControlSocket, NodePartConfig, command
from kubelet.dra import wire
from kubelet.dra.calls import (
    HEALTH_SERVICE,
    PLUGIN_TYPE,
    PLUGINS,
    REGISTRY,
    SERVICES,
    ClaimName,
    ClaimResult,
    PluginInfo,
)
from kubelet.dra.emulated.binding import Waiting, conditions_patch
from kubelet.dra.emulated.definition import DriverDefinition, parse_drivers, read_definition
from kubelet.dra.emulated.driver import Command, EmulatedDriver, PreparedClaim, check_act, differs
from kubelet.dra.emulated.switches import DriverSwitches
from services.api.errors import UNREADABLE, ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import SLICES, ResourceSlice
from services.api.local_rpc import LocalService, RpcError, Sockets, Unary, caller_traceparent
from services.api.meta import Document, Key
from services.api.seams import Seams
from services.client.client import Client
from services.client.informer import Informer
from services.runtime.config import EXIT_USAGE, StartError, setting
from services.runtime.mesh_directory import hold
from services.telemetry.calls import rpc_call
from services.telemetry.metrics import Metrics, Samples, counter, gauge
from services.telemetry.spans import parse_traceparent

COMMAND = "/keplab.v1.DRADriver/Command"
STATE_FILE = "prepared.json"
RETRY_MAX_S = 30.0
HEALTH_PERIOD_S = 10.0
"""Seconds between two health reports: the kubelet believes a report for 30 s."""
_CLAIM = msgspec.json.Decoder(ResourceClaim)
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class DriverConfig(NodePartConfig):
    """The configuration of one DRA driver of one node."""

    definition: str = setting("", 'the driver as JSON, {"name": "gpu.example.com", "devices": 4}, or gpu.example.com:4')
    instance: str = setting("", "name of this instance, where a driver has several while it is updated")

    def driver(self) -> DriverDefinition:
        """Return the driver's definition. Raises: StartError naming the field."""
        self.check_node()
        text = self.definition or "{}"
        try:
            return read_definition(text.encode() if text.startswith("{") else parse_drivers(text)[0])
        except ValueError as error:
            raise StartError(f"--definition: {error}", EXIT_USAGE) from None


def control_path(folder: str, driver: str) -> str:
    """Return the path of a driver's control socket; `folder`: the node's folder."""
    return f"{folder}/{PLUGINS}/{driver}/control.sock"


class DriverServing:
    """The component that runs one driver of one node. `run` once."""

    def __init__(self, definition: DriverDefinition, seams: Seams, node: str, folder: str, instance: str = "") -> None:
        guards = seams.switches.of(DriverSwitches).guard == "driver"
        self._driver = EmulatedDriver(definition, node, guards=guards)
        self._seams, self._node = seams, node
        tail = f"-{instance}" if instance else ""
        self._registry_path = f"{folder}/{REGISTRY}/{definition.name}{tail}-reg.sock"
        self._endpoint = f"{folder}/{PLUGINS}/{definition.name}/dra{tail}.sock"
        self._control = ControlSocket(seams.sockets, control_path(folder, definition.name), COMMAND, self._command)
        self._changes = ChangeSignal()
        self._dirty = asyncio.Event()
        """Set when slices may have to be written."""
        self._api = seams.transport.api()
        self._client = Client(self._api, seams.clock, seams.random, field_manager=definition.name)
        self._published = -1
        self._began_s = seams.clock.now()
        self._calls = self._registrations = self._failures = 0
        self._is_registered = False

    @property
    def is_ready(self) -> bool:
        """Whether the driver is registered and its devices are published, or it is to stay away."""
        return self._is_away or (self._is_registered and self._published >= 0)

    @property
    def _is_away(self) -> bool:
        return self._driver.is_away or self._driver.is_dead(self._since_s)

    @property
    def _since_s(self) -> float:
        return self._seams.clock.now() - self._began_s

    def metrics(self) -> Samples:
        """Return counters and gauges."""
        return METRICS.of(self)

    async def run(self) -> None:
        """Run the driver until cancelled."""
        data = self._seams.disk.read(STATE_FILE)
        if data is not None:
            try:
                self._driver.restore(data)
            except ValueError as error:
                log.warning("driver.state_unreadable", driver=self._driver.name, node=self._node, reason=str(error))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._live())
                group.create_task(self._publish())
                group.create_task(self._keep_turns())
                if self._driver.definition.is_bindable:
                    group.create_task(self._report_binding())
        finally:
            await self._control.close()

    # --- sockets ---

    async def _live(self) -> None:
        while True:
            await self._control.serve()
            if self._is_away:
                self._is_registered = False
                await self._changes.wait()
            else:
                await self._serve_once()

    async def _keep_turns(self) -> None:
        """Come and go as the definition says."""
        while (at_s := self._driver.next_turn(self._since_s)) is not None:
            await asyncio.sleep(at_s - self._since_s)
            self._changes.send()

    async def _serve_once(self) -> None:
        """Serve, first where the kubelet calls, then where it looks; until a socket is gone or the driver goes."""
        handlers = {wire.PREPARE: self._prepare, wire.UNPREPARE: self._unprepare}
        methods = {wire.method(service, call): handlers[call] for call in handlers for service in SERVICES}
        calls = {method: partial(self._answer, method, handler) for method, handler in methods.items()}
        streams = {wire.WATCH_HEALTH: self._watch_health} if self._driver.definition.health else {}
        sockets, restarts = self._seams.sockets, self._driver.restarts
        services = (
            (self._endpoint, LocalService(calls, streams)),
            (self._registry_path, LocalService({wire.GET_INFO: self._info, wire.NOTIFY: self._on_registration_status})),
        )
        async with AsyncExitStack() as served:
            served.callback(self._on_unregistered)
            for path, service in services:
                served.push_async_callback((await sockets.serve(path, service)).close)
            while not self._is_away and restarts == self._driver.restarts:
                if not (sockets.exists(self._endpoint) and sockets.exists(self._registry_path)):
                    return
                await self._control.serve()
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._changes.wait()

    def _on_unregistered(self) -> None:
        self._is_registered = False

    async def _info(self, _: bytes) -> bytes:
        services = (*SERVICES, HEALTH_SERVICE) if self._driver.definition.health else SERVICES
        return wire.encode_info(PluginInfo(PLUGIN_TYPE, self._driver.name, self._endpoint, services))

    async def _on_registration_status(self, request: bytes) -> bytes:
        status = wire.decode_status(request)
        data: dict[str, Any] = {"driver": self._driver.name}
        if status.is_registered:
            self._registrations += 1
            self._is_registered = True
            self._dirty.set()
            self._seams.events.write("driver.registered", node=self._node, data=data)
        else:
            log.warning("driver.not_registered", node=self._node, driver=self._driver.name, reason=status.error)
            self._seams.events.write("driver.refused", node=self._node, data=data | {"why": status.error})
        return wire.EMPTY

    async def _command(self, request: bytes) -> bytes:
        try:
            wanted = msgspec.json.decode(request, type=Command)
            self._driver.act(wanted)
        except (*UNREADABLE, ValueError) as error:
            raise RpcError("InvalidArgument", str(error)) from None
        data = {"driver": self._driver.name, "act": wanted.act, "words": list(wanted.words)}
        self._seams.events.write("driver.command", node=self._node, data=data)
        if wanted.act == "crash":
            signal.raise_signal(signal.SIGKILL)
        self._dirty.set()
        self._changes.send()
        return b""

    # --- calls of the kubelet ---

    async def _answer(self, method: str, handler: Unary, request: bytes) -> bytes:
        """Return what the handler answers, as a SERVER span of the caller's trace."""
        with rpc_call(self._seams.tracer, method, self._endpoint, caller_traceparent.get(), "server"):
            return await handler(request)

    async def _prepare(self, request: bytes) -> bytes:
        results: dict[str, ClaimResult] = {}
        await self._begin("prepare")
        for asked in wire.decode_claims(request):
            fails = self._happens(self._driver.definition.fail_prepare)
            known = asked.uid in self._driver.held
            claim = "" if known else await self._read(asked)
            result = self._driver.prepare(asked, claim, fails=fails, trace_id=_trace_id())
            results[asked.uid] = result
            self._failures += bool(result.error)
            if not result.error:
                # Nothing is awaited in between: a call that is given up leaves no device prepared that no line names.
                self._log("driver.prepare", asked, self._driver.held[asked.uid])
                await self._save()
        return wire.encode_prepared(results)

    async def _unprepare(self, request: bytes) -> bytes:
        results: dict[str, ClaimResult] = {}
        await self._begin("unprepare")
        for asked in wire.decode_claims(request):
            fails = self._happens(self._driver.definition.fail_unprepare)
            result, held = self._driver.unprepare(asked, fails=fails)
            results[asked.uid] = result
            self._failures += bool(result.error)
            if not result.error:
                self._log("driver.unprepare", asked, held or PreparedClaim(asked.namespace, asked.name))
                await self._save()
        return wire.encode_unprepared(results)

    async def _begin(self, what: str) -> None:
        """Take the time that such a call takes. Raises: RpcError when the whole call fails."""
        self._calls += 1
        await asyncio.sleep(self._draw(what))
        while self._driver.is_hung:
            await self._changes.wait()
        if self._happens(self._driver.definition.fail_call):
            self._failures += 1
            raise RpcError("Unknown", f"{self._driver.name} is configured to fail")

    def _draw(self, field: str) -> float:
        return self._driver.definition.duration(field).draw(self._seams.random.getrandbits(64))

    def _happens(self, chance: float) -> bool:
        return chance > 0.0 and self._seams.random.random() < chance

    async def _read(self, asked: ClaimName) -> ResourceClaim | str:
        """Return the claim as it is stored, or why it could not be read."""
        try:
            return _CLAIM.decode(await self._client.get_raw(CLAIMS, asked.key))
        except (ApiError, UnknownOutcome, *UNREADABLE) as error:
            return f"failed to fetch ResourceClaim {asked.name} in namespace {asked.namespace}: {error}"

    async def _save(self) -> None:
        """Have what is held on disk, before the kubelet hears of it. Raises: RpcError."""
        try:
            await self._seams.disk.write(STATE_FILE, self._driver.checkpoint())
        except OSError as error:
            raise RpcError("Internal", f"write {STATE_FILE}: {error.strerror or error}") from None

    def _log(self, event: str, asked: ClaimName, held: PreparedClaim) -> None:
        name = self._driver.name
        devices = [f"{name}/{device}" for device in held.exclusive]
        data: dict[str, Any] = {"claim": asked.uid, "name": asked.name, "driver": name, "devices": devices}
        data |= {"pods": list(held.pods)} if held.pods else {}
        obj = "ResourceClaim", asked.namespace, asked.name, asked.uid
        # A kubelet that was restarted names no trace: then it is that in which the claim was prepared.
        trace_id = _trace_id() or held.trace_id
        self._seams.events.write(event, obj=obj, node=self._node, trace_id=trace_id, data=data)

    async def _watch_health(self, _: bytes) -> AsyncIterator[bytes]:
        while True:
            version = self._driver.health_version
            yield wire.encode_health(self._driver.health(), self._seams.clock.wall())
            with suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_PERIOD_S):
                    while version == self._driver.health_version:
                        await self._changes.wait()

    # --- the API server ---

    async def _publish(self) -> None:
        """Offer the devices once the kubelet knows the driver, and whenever they changed or their slices are gone.

        What keeps it from that is said once, and tried again later each time.
        """
        last_error, delay_s = "", RETRY_S
        async with asyncio.TaskGroup() as group:
            await self._dirty.wait()
            informer: Informer[ResourceSlice] = Informer(
                self._api,
                ResourceSlice,
                clock=self._seams.clock,
                random=self._seams.random,
                field_selector=f"spec.nodeName={self._node}",
                resource=SLICES,
                events=self._seams.events,
            )
            informer.on_change(lambda _: self._dirty.set())
            group.create_task(informer.run())
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                if self._published != self._driver.version:
                    await asyncio.sleep(self._draw("publish_delay"))
                try:
                    await self._sync(self._client)
                    last_error, delay_s = "", RETRY_S
                except (ApiError, UnknownOutcome) as error:
                    if str(error) != last_error:
                        last_error, delay_s = str(error), RETRY_S
                        log.warning("driver.unpublished", node=self._node, driver=self._driver.name, reason=last_error)
                    self._dirty.set()
                    await asyncio.sleep(delay_s)
                    delay_s = min(delay_s * 2, RETRY_MAX_S)

    async def _report_binding(self) -> None:
        """Report the binding conditions of devices that were allocated long enough ago (KEP-5007)."""
        async with asyncio.TaskGroup() as group:
            claims: Informer[ResourceClaim] = Informer(
                self._api,
                ResourceClaim,
                clock=self._seams.clock,
                random=self._seams.random,
                resource=CLAIMS,
                events=self._seams.events,
            )
            changed = asyncio.Event()
            claims.on_change(lambda _: changed.set())
            group.create_task(claims.run())
            due: dict[Waiting, float] = {}
            while True:
                now = self._seams.clock.now()
                awaited = {key: claim for claim in claims.lister.all() for key in self._driver.waiting(claim)}
                due = {key: due.get(key, now + self._draw("binding_delay")) for key in awaited}
                changed.clear()
                for key in [key for key, at_s in due.items() if at_s <= now + 1e-6]:
                    # What is reported once is looked at again when the claim changes.
                    is_done = await self._report(awaited[key].metadata.key, key)
                    due[key] = math.inf if is_done else self._seams.clock.now() + RETRY_S
                left_s = min(due.values(), default=math.inf) - self._seams.clock.now()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s if left_s < math.inf else None):
                        await changed.wait()

    async def _report(self, claim: Key, waited: Waiting) -> bool:
        """Report one device's conditions; return whether that is done, or needs not be."""
        if self._is_away or self._driver.is_hung or not self._is_registered:
            return False
        fails = self._driver.fail_binding(waited.device)
        if self._published != self._driver.version:
            # The taint is there before the condition: the next attempt must not choose the device again.
            self._dirty.set()
            return False
        try:
            document = await self._client.get(CLAIMS, claim)
            patch = conditions_patch(document, waited, self._driver.name, self._seams.clock.wall(), fails=fails)
            if patch is not None:
                await self._client.patch(CLAIMS, claim, patch, subresource="status", patch_type="merge")
        except NotFound:
            return True
        except (ApiError, UnknownOutcome) as error:
            log.warning("driver.unreported", node=self._node, driver=self._driver.name, reason=str(error))
            return False
        data = {"driver": self._driver.name, "device": f"{waited.pool}/{waited.device}", "failed": fails}
        obj = "ResourceClaim", claim.namespace, claim.name, waited.uid
        self._seams.events.write("driver.binding", obj=obj, node=self._node, data=data)
        return True

    async def _sync(self, client: Client) -> None:
        """Have the API server hold the slices as they should be. Raises: ApiError, UnknownOutcome."""
        driver, version = self._driver, self._driver.version
        items, _ = await client.list(SLICES, field_selector=f"spec.nodeName={self._node}")
        there: dict[str, Document] = {
            item["metadata"]["name"]: item for item in items if item["spec"]["driver"] == driver.name
        }
        newest = max((int(item["spec"]["pool"]["generation"]) for item in there.values()), default=0)
        driver.generation = max(driver.generation, newest)
        wanted = driver.slices()
        if self._published == version and wanted.keys() <= there.keys():
            return
        if there and self._published != version and differs({n: i["spec"] for n, i in there.items()}, wanted):
            driver.generation = max(driver.generation, newest + 1)
            wanted = driver.slices()
        node = await client.get("nodes", Key("", self._node))
        uid = node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}
        is_first = True
        for name, spec in wanted.items():
            stored = there.get(name)
            if stored is not None and _is_same(stored["spec"], spec):
                continue
            if not is_first:
                await asyncio.sleep(self._draw("slice_delay"))
            is_first = False
            if stored is None:
                document = {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": name, "ownerReferences": [owner]},
                    "spec": spec,
                }
                with suppress(Conflict):
                    await client.create(SLICES, document)
            else:
                await client.update(SLICES, Key("", name), {**stored, "spec": spec})
        for name in there.keys() - wanted.keys():
            with suppress(NotFound):
                await client.delete(SLICES, Key("", name), uid=there[name]["metadata"]["uid"])
        self._published = version


def _trace_id() -> str:
    """Return the trace that the caller names, "" for none."""
    caller = parse_traceparent(caller_traceparent.get())
    return caller.trace_id if caller is not None and caller.is_sampled else ""


def _is_same(published: Document, wanted: Document) -> bool:
    same_generation = published["pool"]["generation"] == wanted["pool"]["generation"]
    return same_generation and not differs({"": published}, {"": wanted})


METRICS: Final[Metrics[DriverServing]] = Metrics(
    gauge(
        "keplab_dra_driver_devices", "Devices that the node's ResourceSlices name.", lambda o: len(o._driver.devices())
    ),
    gauge("keplab_dra_driver_claims_prepared", "Claims that are prepared.", lambda own: len(own._driver.held)),
    counter("keplab_dra_driver_calls_total", "Claims that the kubelet asked for.", lambda own: own._calls),
    counter("keplab_dra_driver_failures_total", "Claims of these that failed.", lambda own: own._failures),
    counter("keplab_dra_driver_registrations_total", "Registrations with a kubelet.", lambda own: own._registrations),
)


def build(config: DriverConfig, seams: Seams) -> DriverServing:
    """Return the driver the configuration describes. Raises: StartError, also when the same one runs already."""
    definition = config.driver()
    if config.data_dir:
        # Two that share one state would each forget what the other has prepared.
        hold(Path(config.data_dir), f"DRA driver {definition.name} of node {config.node}")
    return DriverServing(definition, seams, config.node, config.place, config.instance)


async def command_driver(
    sockets: Sockets, sockets_dir: str, node: str, driver: str, act: str, words: Sequence[str]
) -> None:
    """Send a command to a driver; return once it was performed.

    Raises: ValueError when it cannot perform it, Away when the driver is not there.
    """
    check_act(act, words)
    path, request = control_path(f"{sockets_dir}/{node}", driver), Command(act, tuple(words))
    await command(
        sockets,
        path,
        COMMAND,
        msgspec.json.encode(request),
        actor=f"DRA driver {driver}",
        node=node,
        is_last=act == "crash",
    )
