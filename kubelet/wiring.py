"""The composition of a kubelet host: nodes, one timer heap, one journal, and the pages of the process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from kubelet.agent import resource_metrics
from kubelet.agent.agent import Agent
from kubelet.agent.host import Host
from kubelet.agent.log_server import ContainerLogs
from kubelet.agent.slot import SlotDisk, Slots, SlotTransport, leave
from kubelet.config import KubeletConfig
from kubelet.deviceplugin.plugins import pod_resources
from kubelet.dra.manager import dynamic_resources
from kubelet.interaction.kwok_streams import KwokStreams
from kubelet.managers.device_calls import Share
from kubelet.metrics import METRICS, HostState
from kubelet.node.definition import apply_switches
from kubelet.pod.logs import Run
from kubelet.view import KubeletPod
from services.api.meta import Document, Key
from services.api.seams import Seams
from services.client.lease_record import Terms
from services.client.leases import Elector, LeadershipLost
from services.kwok.documents import STAGE
from services.runtime.components import API_SERVER_AS_CLIENT
from services.runtime.config import EXIT_DEPOSED, EXIT_USAGE, StartError
from services.runtime.delegation import Caller, Delegation, Refusal, rights_on_nodes
from services.runtime.health import Handler, HealthServer, HttpRequest, HttpResponse, path_pattern
from services.telemetry.metrics import Samples

if TYPE_CHECKING:
    from kubelet.agent.metric_pages import MetricPages
    from services.runtime.serving_tls import ServingTls

ROUTES: Final = (
    "/containerLogs/{namespace}/{pod}/{container}",
    "/podResources/{node}",
    "/draDrivers",
    "/explain/{namespace}/{pod}",
    resource_metrics.PATH,
    resource_metrics.DISCOVERY,
)
PAGES: Final = "/metrics/{page*}"
"""The path pattern of Metrics that are objects: they come and go."""


class KubeletProcess:
    """A process that hosts emulated nodes."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._tls: ServingTls | None = None
        self._delegation = Delegation(host.seams.transport.api, host.clock)
        self._kwok = KwokStreams(lambda: host.kwok, runs_commands=host.config.host_commands)
        self._metric_pages = _metric_pages(host, lambda: self.agents) if host.knows_kwok else None
        if self._metric_pages is not None:
            host.on_pod, host.on_kwok = self._metric_pages.pod_changed, self._kwok_changed

    @property
    def agents(self) -> list[Agent]:
        """The present nodes, each as it was last booted."""
        return cast("list[Agent]", self.host.agents)

    async def run(self) -> None:
        """Host the nodes, and serve the API server if there is a certificate for that, until cancelled.

        Raises: StartError.
        """
        if not self.host.config.tls_cert_file:
            await self.host.run()
            return
        from kubelet.agent.streams import Streams  # with the emulated shell, which a simulation seldom needs

        streams = Streams(lambda: self.agents, self._kwok)
        endpoint = HealthServer(
            is_ready=lambda: self.is_ready,
            metrics=self.metrics,
            configuration=dict,
            routes=self.http_routes(),
            upgrades=streams.upgrades(),
            guard=self._guard,
        )
        config = self.host.config
        tls = self._tls = endpoint_tls(config)
        await endpoint.start(config.health_host, config.port, tls.context)
        following = asyncio.create_task(tls.follow())
        try:
            await self.host.run()
        finally:
            following.cancel()
            streams.stop()
            await endpoint.stop()

    async def _guard(self, caller: Caller) -> Refusal | None:
        """Return why a caller of the endpoint is sent away. The API server has asked already who may."""
        if is_api_server(caller.peer):
            return None
        node = self.agents[0].name if len(self.agents) == 1 else ""
        from services.runtime.serving_tls import identity_of_peer

        return await self._delegation.refusal(caller, identity_of_peer(caller.peer), rights_on_nodes(caller, node))

    def _kwok_changed(self) -> None:
        assert self._metric_pages is not None
        self._metric_pages.on_changed()
        for agent in self.agents:
            agent.annotations_changed()

    @property
    def is_ready(self) -> bool:
        """Whether every node is registered and knows its pods."""
        return all(agent.is_ready for agent in self.agents)

    def metrics(self) -> Samples:
        """Return counters and gauges of all nodes together, upstream names."""
        agents, journal = self.agents, self.host.journal
        state = HostState(
            kubelets=[agent.kubelet for agent in agents],
            now=self.host.clock.now(),
            has_resize_preemption=self.host.switches.has_resize_preemption,
            nodes_ready=sum(agent.is_ready for agent in agents),
            timers=len(self.host.timers),
            status_writes=sum(agent.calls.status_writes for agent in agents),
            status_failures=sum(agent.calls.status_failures for agent in agents),
            lease_renewals=sum(agent.heartbeats.lease_renewals for agent in agents),
            node_writes=sum(agent.node_writes for agent in agents),
            checkpoint_batches=journal.batches,
            checkpoint_syncs=journal.syncs,
            checkpoint_useless=journal.useless_lines,
            checkpoint_lost=sum(journal.silent.values()),
        )
        return METRICS.of(state)

    def rates(self) -> dict[str, float]:
        """Return the `metrics` that are needed each second."""
        ready = sum(agent.is_ready for agent in self.agents)
        return {"keplab_kubelet_nodes": len(self.agents), "keplab_kubelet_nodes_ready": ready}

    def certificates(self) -> list[dict[str, str]]:
        """Return the certificate that the endpoint uses at present."""
        return [self._tls.loaded_files()] if self._tls is not None else []

    def http_routes(self) -> list[tuple[str, Handler]]:
        """Return the routes of the process besides its health: container logs, devices of pods, and drivers.

        The pages of KWOK's Metrics come first.
        """
        logs = ContainerLogs(self._run_of, self.host.clock, self._log_file_of).answer
        answers = (logs, self._pod_resources, self._dra_drivers, self._explain, self._resource_metrics, self._discovery)
        pages = self._metric_pages.routes() if self._metric_pages is not None else ()
        objects = [(PAGES, self._page)] if self._metric_pages is not None else []
        return [*pages, *objects, *zip(ROUTES, answers, strict=True)]

    async def _page(self, request: HttpRequest) -> HttpResponse:
        """Return the page of whichever Metric has that path now, before those that every kubelet has."""
        assert self._metric_pages is not None
        if (response := await self._metric_pages.answer(request)) is not None:
            return response
        if (match := path_pattern(resource_metrics.PATH).match(request.path)) is not None:
            return self._resource_metrics(replace(request, params=match.groupdict()))
        return 404, "text/plain", f"no Metric has the path {request.path}\n".encode()

    def _log_file_of(self, namespace: str, pod: str, container: str, previous: bool) -> str | None:
        """Return the log file of a container of these nodes, as a document of KWOK's says; None: it says none."""
        key = Key(namespace, pod)
        path = self._kwok.log_file(key, container, previous=previous)
        return path if path is not None and any(each.has_container(key, container) for each in self.agents) else None

    def explain(self, key: Key) -> Document | None:
        """Return what the claims of a pod wait for on its node.

        None for a pod that is not here or does not wait.
        """
        now = self.host.clock.now()
        for agent in self.agents:
            for machine in agent.kubelet.table.pods.values():
                if (
                    machine.pod.metadata.key == key
                    and (wait := agent.kubelet.claims.waits_for(machine, now)) is not None
                ):
                    fields: Document = msgspec.to_builtins(wait)
                    return {"node": agent.name, "uid": machine.key.uid, **fields}
        return None

    def _explain(self, request: Any) -> HttpResponse:
        key = Key(request.params["namespace"], request.params["pod"])
        found = self.explain(key)
        if found is None:
            return 404, "text/plain", f"pod {key} waits for nothing here\n".encode()
        return 200, "application/json", msgspec.json.encode(found)

    def _run_of(self, namespace: str, pod: str, container: str, previous: bool) -> Run | str | None:
        runs = (agent.run_of(namespace, pod, container, previous=previous) for agent in self.agents)
        return next((run for run in runs if run is not None), None)

    def _pod_resources(self, request: Any) -> HttpResponse:
        for agent in self.agents:
            if agent.name == request.params["node"]:
                found = pod_resources(agent.kubelet.managers.devices, _devices_of(agent))
                return 200, "application/json", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        return 404, "text/plain", f"node {request.params['node']!r} is not here\n".encode()

    def _resource_metrics(self, request: Any) -> HttpResponse:
        for agent in self.agents:
            if agent.name == request.params["node"]:
                offset_s = self.host.times.offset_s
                text = resource_metrics.resource_metrics(agent.kubelet.table.pods.values(), agent.now(), offset_s)
                return 200, "text/plain; version=0.0.4; charset=utf-8", text
        return 404, "text/plain", f"node {request.params['node']!r} is not here\n".encode()

    def _discovery(self, _: HttpRequest) -> HttpResponse:
        config = self.host.config
        scheme = "https" if config.tls_cert_file else "http"
        where, names = f"{config.health_host}:{config.port}", [agent.name for agent in self.agents]
        if self._metric_pages is not None and self.host.kwok["Metric"]:
            targets = self._metric_pages.discovery(where, names, scheme)
        else:
            targets = resource_metrics.discovery(where, names, scheme)
        return 200, "application/json", msgspec.json.format(msgspec.json.encode(targets), indent=2) + b"\n"

    def _dra_drivers(self, _: HttpRequest) -> HttpResponse:
        found = [each for agent in self.agents if agent.drivers is not None for each in agent.drivers.records]
        return 200, "application/json", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def _metric_pages(host: Host, agents: Callable[[], Sequence[Agent]]) -> "MetricPages":
    from kubelet.agent.metric_pages import MetricPages  # expressions are large, and few hosts have such documents

    return MetricPages(host, agents)


def _devices_of(agent: Agent) -> Iterator[tuple[KubeletPod, tuple[Share, ...], dict[str, list[Document]]]]:
    """Yield the pods of a node, with what device plugins and claims gave them."""
    machines = agent.kubelet.table.pods
    for key, entry in agent.kubelet.ledger.entries.items():
        claims = machines[key].claims if key in machines else ()
        yield entry.pod, entry.allocation.devices, dynamic_resources(entry.pod, claims)


def is_api_server(peer: dict[str, Any] | None) -> bool:
    """Whether a client's certificate, which the authority signed, is the API server's."""
    named = [pair for part in (peer or {}).get("subject", ()) for pair in part]
    return ("commonName", API_SERVER_AS_CLIENT) in named


def endpoint_tls(config: KubeletConfig) -> "ServingTls":
    """Return the TLS settings of the endpoint. Raises: StartError naming what is missing or cannot be read."""
    needed = {
        "--tls-private-key-file": config.tls_private_key_file,
        "--client-ca-file": config.client_ca_file,
        "--port": config.port or "",
    }
    if missing := [flag for flag, value in needed.items() if not value]:
        raise StartError(f"--tls-cert-file without {' and '.join(missing)}", EXIT_USAGE)
    files = (config.tls_cert_file, config.tls_private_key_file, config.client_ca_file)
    from services.runtime.serving_tls import ServingTls  # gRPC and certificates, which a simulation does not need

    return ServingTls(*map(Path, files), endpoint="the kubelet's endpoint")


def build(config: KubeletConfig, seams: Seams) -> "KubeletProcess | KubeletInSlot":
    """Return a host of the configured nodes. Raises: StartError."""
    config.check_slots()
    if config.slots:
        config.in_slot(config.slots)  # what is wrong with the nodes is said before there is a slot
        return KubeletInSlot(config, seams)
    return _build(config.in_slot(config.slot) if config.slot else config, seams)


def _build(config: KubeletConfig, seams: Seams) -> KubeletProcess:
    try:
        definitions = tuple(apply_switches(node, seams.switches) for node in config.node_definitions())
    except ValueError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    host = Host(config, seams, definitions)
    host.make = lambda place: Agent(host, definitions[place], place)
    host.agents += (host.make(place) for place in range(len(definitions)))
    return KubeletProcess(host)


class KubeletInSlot:
    """A kubelet host that has to claim a slot first, and hosts nodes for as long as it holds the slot."""

    def __init__(self, config: KubeletConfig, seams: Seams) -> None:
        self._config, self._seams = config, seams
        self._process: KubeletProcess | None = None
        self.slot = ""
        """Empty: none yet."""

    async def run(self) -> None:
        """Host the nodes of a slot until cancelled; then the slot is free at once.

        Raises: StartError, also when another host has taken the slot.
        """
        seams = self._seams
        holding = await Slots(seams, self._config.slots, self._config.name, Terms()).claim()
        keeping = asyncio.create_task(holding.hold(until_taken=True))
        hosting = asyncio.create_task(self._host(holding))
        try:
            await asyncio.wait((keeping, hosting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # In this order: whoever has the slot next finds that nothing is written any more.
            hosting.cancel()
            await asyncio.gather(hosting, return_exceptions=True)
            if not keeping.done():
                await leave(seams.disk, holding)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        try:
            for task in (keeping, hosting):
                if not task.cancelled():
                    task.result()
        except LeadershipLost as error:
            raise StartError(f"the slot {self.slot} is another's: {error}", EXIT_DEPOSED) from None

    async def _host(self, holding: Elector) -> None:
        slot, seams = holding.lease.name, self._seams
        disk = SlotDisk(seams.disk, slot, holding.transitions)
        await disk.take_over()
        transport = SlotTransport(seams.transport, holding, seams.clock)
        process = _build(self._config.in_slot(slot), replace(seams, disk=disk, transport=transport))
        self._process, self.slot = process, slot
        await process.run()

    @property
    def agents(self) -> list[Agent]:
        """The nodes; empty before the slot is claimed."""
        return self._process.agents if self._process is not None else []

    @property
    def is_ready(self) -> bool:
        """Whether the slot is claimed, and every node of it is registered and knows its pods."""
        return self._process is not None and self._process.is_ready

    def metrics(self) -> Samples:
        """Return counters and gauges of all nodes together, upstream names."""
        return self._process.metrics() if self._process is not None else Samples()

    def rates(self) -> dict[str, float]:
        """Return the `metrics` that are needed each second."""
        return self._process.rates() if self._process is not None else {}

    def certificates(self) -> list[dict[str, str]]:
        """Return the certificate that the endpoint uses at present."""
        return self._process.certificates() if self._process is not None else []

    def configz(self) -> dict[str, str]:
        """Return the name of the slot."""
        return {"slot": self.slot}

    def http_routes(self) -> list[tuple[str, Handler]]:
        """Return the routes of the process besides its health, once there are nodes."""
        pages = [rule.spec.path for rule in self._config.read_kwok()["Metric"].all]
        if self._config.read_kwok() or any(kind != STAGE for kind in self._config.kwok_kinds()):
            pages.append(PAGES)
        return [(path, partial(self._answer, place)) for place, path in enumerate((*pages, *ROUTES))]

    def _answer(self, place: int, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self._process is None:
            return 503, "text/plain", b"this host has no slot yet\n"
        return self._process.http_routes()[place][1](request)
