"""A mesh that already runs, in containers or elsewhere, as a scenario sees it: one API server, reached over
gRPC.

The scenario brings its nodes: a kubelet host of the run's own hosts those that the mesh lacks. All other
nodes are cordoned for the run, so that placement is as the scenario expects. Created objects are marked
and removed afterwards; leftovers of an earlier run are removed before. A mesh with pods of its own is
refused, because expectations would count them.

Some features are not available. Event logs, and so invariants, are internal to the mesh. Processes can
only be broken if they are containers that an engine's client reaches. Switches are set where the
processes are started, unless the containers read them from a volume (`mesh_switches`). Each is refused
with a line that says where it is possible.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path

import msgspec

from kubelet.agent.node_files import path_of
from lab.scenarios.mesh import MeshPlan, NotPossible, Progress, Site
from lab.scenarios.observer import RESOURCES
from lab.scenarios.processes.access import Access
from lab.scenarios.processes.containers import Container
from lab.scenarios.processes.mesh_switches import COMPONENTS as SWITCHED
from lab.scenarios.processes.mesh_switches import wanted_by
from lab.scenarios.processes.newest_version import newest_version
from lab.scenarios.processes.nodes_ready import nodes_ready
from services.api.errors import ApiError, Forbidden, NotFound, UnknownOutcome
from services.api.identity import ADMIN, Identity
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.client.client import Client
from services.client.link_faults import HEALTHY, LinkFaults
from services.client.rpc import RpcTransport
from services.runtime.config import PARENT_VARIABLE, MeshError
from services.runtime.real import RealClock, seeded_random, write_atomically

MARK = "keplab.dev/made-by-scenario"
"""Annotation of objects that a scenario created, label of its nodes, and annotation of nodes that it cordoned."""
CLEAN_MAX_S = 30.0
POLL_S = 0.2
HOST = "kubelet/lab"
OF_OTHERS = ("events", "leases.coordination.k8s.io")
NOT_MADE = (*OF_OTHERS, "nodes")
TOGETHER = 100
"""Number of Events that are removed at a time."""


def refusal(plan: MeshPlan, access: Access) -> str:
    """Return why a running mesh cannot be what the scenario asks for; empty if it can."""
    wanted, running_switches = plan.switches.chosen_values, Switches.parse(access.switches)
    differing = [f"{name}={value}" for name, value in wanted.items() if running_switches[name] != value]
    if differing and access.switching is None:
        words = ",".join(differing)
        return f"the running mesh has other values of {words}; start it so: KEPLAB_SET={words} docker compose up -d"
    if plan.own_switches and access.switching is None:
        return "switches of single components are set where these are started; run it with --processes or simulated"
    if plan.schedulers.others or plan.schedulers.replicas > 1 or plan.schedulers.config:
        return "the running mesh has its own schedulers; run it with --processes or simulated"
    if plan.window_s is not None:
        return "the window of a running API server is its own; run it with --processes or simulated"
    if any(node.get("devicePlugins") or node.get("drivers") for node in plan.nodes):
        return "device plugins and DRA drivers are processes beside a kubelet; run it with --processes or simulated"
    return ""


class ForeignMesh:
    """`Mesh` on top of one that was started elsewhere."""

    def __init__(self, plan: MeshPlan, access: Access) -> None:
        self.plan, self.clock, self._access = plan, RealClock(), access
        self._containers = access.containers
        self._found: dict[str, Container] = {}
        self._transport: RpcTransport | None = None
        self._hosted: list[dict[str, object]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._data = Path(tempfile.mkdtemp(prefix="keplab-lab-"))
        self._exits: list[int] = []
        self._host_switches: tuple[str, ...] = ()
        self._tasks: list[asyncio.Task[None]] = []

    # --- its life ---

    async def start(self) -> None:
        """Clean up, add the nodes, cordon the others. Raises: MeshError; NotPossible."""
        try:
            if why := refusal(self.plan, self._access):
                raise NotPossible(why)
            self._found = self._containers.by_name() if self._containers is not None else {}
            self._transport = self._access.transport()
            client = self._client()
            await self._clean(client)
            nodes = [str(node["metadata"]["name"]) for node in (await client.list("nodes"))[0]]
            if pods := (await client.list("pods"))[0]:
                names = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods[:3])
                raise NotPossible(
                    f"the mesh has {len(pods)} pods of its own, such as {names}: expectations would count them"
                )
            client = await self._with_switches(client)
            self._hosted = [dict(node) for node in self.plan.nodes if node["name"] not in nodes]
            wanted = [str(node["name"]) for node in self.plan.nodes]
            if self._hosted:
                await self._check_host()
            for name in nodes:
                if name not in wanted:
                    await self._cordon(client, name)
            if self._hosted:
                await self._start_host()
            await self._ready(wanted)
        except (ApiError, UnknownOutcome) as error:
            await self.stop()
            raise MeshError(f"{self._access.server}: {error}") from None
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.stop()))
            raise

    async def _with_switches(self, client: Client) -> Client:
        """Give the components the plan's switches; return a client of the API server, which may have been restarted."""
        if self._access.switching is None or self._transport is None:
            return client
        await self._access.switching.set(wanted_by(self.plan, self._access.switches))
        await self._transport.close()
        self._transport = self._access.transport()
        return self._client()

    async def _ready(self, names: Sequence[str]) -> None:
        waiting = asyncio.ensure_future(nodes_ready(self.api(ADMIN), self.clock, names))
        ending = asyncio.ensure_future(self._process.wait()) if self._process is not None else None
        await asyncio.wait(
            [each for each in (waiting, ending) if each is not None], return_when=asyncio.FIRST_COMPLETED
        )
        if not waiting.done():
            waiting.cancel()
            lines = (self._data / "host.log").read_text(errors="replace").strip().splitlines()
            raise MeshError(f"the host of the scenario's nodes ended: {lines[-1] if lines else 'without a word'}")
        if ending is not None:
            ending.cancel()
        waiting.result()

    async def stop(self) -> None:
        """Restore the mesh to its original state."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._containers is not None:
            self._containers.heal(list(self._found.values()))
        try:
            if self._transport is not None:
                await self._clean(self._client())
        except (ApiError, UnknownOutcome) as error:
            raise MeshError(f"not all objects of the scenario were removed: {error}") from None
        finally:
            await self._stop_host()
            if self._transport is not None:
                await self._transport.close()
            shutil.rmtree(self._data, ignore_errors=True)

    def _client(self) -> Client:
        assert self._transport is not None
        return Client(self._transport.api(), self.clock, seeded_random(None), field_manager="keplab-scenario")

    async def _clean(self, client: Client) -> None:
        """Remove what scenarios made: owners first, so that nothing makes their pods anew; nodes last."""
        for resource in (name for name in RESOURCES if name not in NOT_MADE):
            for document in (await client.list(resource))[0]:
                if MARK in (document["metadata"].get("annotations") or {}):
                    await _remove_object(client, resource, document)
        nodes = (await client.list("nodes"))[0]
        ours = [node for node in nodes if MARK in (node["metadata"].get("labels") or {})]
        if any(MARK in (node["metadata"].get("annotations") or {}) for node in nodes) or ours:
            await self._without_pods(client)
        await self._stop_host()
        for node in ours:
            await _remove_object(client, "nodes", node)
        for node in nodes:
            if MARK in (node["metadata"].get("annotations") or {}):
                change: Document = {"metadata": {"annotations": {MARK: None}}, "spec": {"unschedulable": None}}
                await client.patch("nodes", Key("", node["metadata"]["name"]), change)
        await self._remove_events(client)

    async def _remove_events(self, client: Client) -> None:
        """Remove the events about objects that are no more: the next run's may have the same names."""
        kept: set[str] = set()
        for resource in (name for name in RESOURCES if name not in OF_OTHERS):
            for document in (await client.list(resource))[0]:
                # Events about a node have its name for its uid.
                kept |= {
                    document["metadata"].get("uid", ""),
                    *([document["metadata"]["name"]] if resource == "nodes" else []),
                }
        events = (await client.list("events"))[0]
        gone = [each for each in events if (each.get("involvedObject") or {}).get("uid", "") not in kept]
        for start in range(0, len(gone), TOGETHER):
            await asyncio.gather(*(_remove_object(client, "events", each) for each in gone[start : start + TOGETHER]))

    async def _without_pods(self, client: Client) -> None:
        """Wait until the pods of what was removed are gone; those that a controller made end with their owner."""
        end_s = self.clock.now() + CLEAN_MAX_S
        while pods := (await client.list("pods"))[0]:
            if self.clock.now() > end_s:
                for pod in pods:
                    await _remove_object(client, "pods", pod)
                return
            await asyncio.sleep(POLL_S)

    async def _cordon(self, client: Client, name: str) -> None:
        node = await client.get("nodes", Key("", name))
        if not (node.get("spec") or {}).get("unschedulable"):
            change: Document = {"metadata": {"annotations": {MARK: "cordoned"}}, "spec": {"unschedulable": True}}
            await client.patch("nodes", Key("", name), change)

    async def _check_host(self) -> None:
        """Raise NotPossible when the credential for the scenario's nodes is not good for one of them."""
        transport = self._access.transport("host")
        try:
            await asyncio.gather(*(transport.node_api(str(node["name"])) for node in self._hosted))
        except Forbidden as error:
            raise NotPossible(f"the scenario's nodes cannot be brought to this mesh: {error}") from None
        finally:
            await transport.close()

    async def _start_host(self) -> None:
        """Start the kubelet host of the scenario's nodes, which finds what an earlier life of it left."""
        definitions = [{**node, "labels": {**_labels(node), MARK: "true"}} for node in self._hosted]
        (self._data / "nodes.json").write_text(json.dumps(definitions))
        words = self._host_words()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KEPLAB_")}
        with (self._data / "host.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kubelet", *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, PARENT_VARIABLE: str(os.getpid()), "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )

    def _host_words(self) -> list[str]:
        words = [*self._access.flags_of_host(), "--name", HOST, "--nodes-file", str(self._data / "nodes.json")]
        words += ["--data-dir", str(self._data / "host"), "--address", socket.gethostbyname(socket.gethostname())]
        words += [word for text in self.plan.latencies for word in ("--latency", text)]
        words += [word for file in self.plan.stages for word in ("--stages", str(Path(file).absolute()))]
        words += ["--enable-crds", ",".join(self.plan.enable_crds)] if self.plan.enable_crds else []
        switches = (*self._access.switches, *self.plan.switches_of("kubelet").assignments, *self._host_switches)
        words += [word for text in Switches.parse(switches).assignments for word in ("--set", text)]
        words += ["--health-host", "0.0.0.0", "--die-with-parent", "--log-level", "warning"]
        return words

    async def _stop_host(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        self._exits.append(await process.wait())

    # --- what a scenario does with it ---

    def api(self, identity: Identity) -> Api:
        """Return the API server as the administrator reaches it; created objects are marked. Raises: NotPossible."""
        assert self._transport is not None
        if identity == ADMIN:
            return _MarkingApi(self._transport.api())
        try:
            return _MarkingApi(self._transport.api(identity.user))
        except KeyError:
            raise NotPossible(
                f"against a running mesh a scenario has the administrator's credential, not that of {identity.user}"
            ) from None

    @property
    def progress(self) -> Progress:
        """Function with which the observer, the administrator's client, checks how far it has caught up."""
        assert self._transport is not None
        return partial(newest_version, self._transport.api(), self._transport)

    def components(self) -> Sequence[str]:
        """Return the components that can be broken: the scenario's own kubelet host, and the containers."""
        # Without the engine's client, those that can be restarted with other switches.
        known = self._found or (() if self._access.switching is None else SWITCHED)
        return sorted([*known, *([HOST] if self._hosted else [])])

    def _is_own_host(self, component: str) -> bool:
        kind, _, name = component.partition("/")
        return component == HOST or (kind == "kubelet" and any(node["name"] == name for node in self._hosted))

    def _container_of(self, component: str) -> Container | None:
        """Return a container, None for the scenario's own kubelet host. Raises: NotPossible."""
        if self._is_own_host(component):
            return None
        if component in self._found:
            return self._found[component]
        if self._containers is None:
            raise NotPossible(
                f"{component} is a process of a mesh that something else runs; `keplab run --containers PROJECT` can "
                "break containers, from where the engine is"
            )
        raise NotPossible(f"no container {component!r}; there are: {', '.join(self.components())}")

    async def kill(self, component: str, down_s: float | None, site: Site | None = None) -> None:
        """Send SIGKILL; a container is started again after `down_s`."""
        _without_site(site)
        if (container := self._container_of(component)) is not None and self._containers is not None:
            self._later(self._containers.kill(container, down_s))
            return
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            self._exits.append(await process.wait())
            self._later(self._back(down_s or 0.0))

    def _later(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _back(self, down_s: float) -> None:
        await asyncio.sleep(down_s)
        await self._start_host()

    async def restart(self, component: str, switches: Sequence[str] = ()) -> None:
        """Send SIGTERM, and start the component again, with these switches from now on. Raises: NotPossible."""
        if switches and not self._is_own_host(component):
            await self._restart_with(component, switches)
            return
        if (container := self._container_of(component)) is not None and self._containers is not None:
            await self._containers.restart(container)
            return
        self._host_switches = (*self._host_switches, *switches)
        await self._stop_host()
        await self._start_host()

    async def _restart_with(self, component: str, switches: Sequence[str]) -> None:
        switching = self._access.switching
        if switching is None:
            words = ",".join(switches)
            raise NotPossible(
                f"switches of a running mesh are set where it is started: KEPLAB_SET={words} docker compose up -d"
            )
        if component not in SWITCHED:
            raise NotPossible(
                f"restart {component} with: of a running mesh these have switches of their own: {', '.join(SWITCHED)}, "
                f"and the scenario's own {HOST}"
            )
        try:
            await switching.add(component, switches)
        except MeshError as error:
            raise NotPossible(str(error)) from None

    async def pause(self, component: str, duration_s: float, site: Site | None = None) -> None:
        """Freeze the component for `duration_s`."""
        _without_site(site)
        if (container := self._container_of(component)) is not None and self._containers is not None:
            await self._containers.pause(container, duration_s)
        elif self._process is not None:
            process = self._process
            process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(duration_s)
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGCONT)

    def link(self, component: str, faults: LinkFaults = HEALTHY) -> None:
        """Disconnect a container, or reconnect it. Raises: NotPossible for any other fault of a link."""
        container = self._container_of(component)
        if container is None or self._containers is None or faults not in (HEALTHY, LinkFaults(cut="both")):
            raise NotPossible(
                f"link {component}: of a running mesh containers can be cut off, cut=both, and nothing else; run it "
                "with --processes or simulated"
            )
        try:
            self._containers.cut(container, is_cut=faults != HEALTHY)
        except MeshError as error:
            raise NotPossible(str(error)) from None

    def has_machine(self, node: str) -> bool:
        """Return whether the node is one of the scenario's own."""
        return any(each["name"] == node for each in self._hosted)

    async def put_file(self, node: str, name: str, data: bytes | None) -> None:
        """Give a file to one of the scenario's own nodes. Raises: NotPossible for a node of the mesh."""
        if not self.has_machine(node):
            raise NotPossible(f"the files of node {node} are with a kubelet that something else runs")
        path = self._data / "host" / path_of(node, name)
        if data is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

    async def reboot(self, component: str, down_s: float) -> None:
        """Refuse the fault. Raises: NotPossible, always."""
        raise NotPossible(f"reboot {component}: {ELSEWHERE}")

    async def corrupt(self, component: str, how: str, what: str) -> None:
        """Refuse the fault. Raises: NotPossible, always."""
        raise NotPossible(f"corrupt {component}: {ELSEWHERE}")

    def set_clock(self, component: str, offset_s: float) -> None:
        """Refuse the fault. Raises: NotPossible, always."""
        raise NotPossible(f"clock {component}: {ELSEWHERE}")

    def set_disk(self, component: str, error: str, slow_s: float) -> None:
        """Refuse the fault. Raises: NotPossible, always."""
        raise NotPossible(f"disk {component}: {ELSEWHERE}")

    def exit_codes(self, component: str) -> Sequence[int]:
        """Return the exit codes of the scenario's own kubelet host. Raises: NotPossible for a container."""
        if self._container_of(component) is not None:
            raise NotPossible(f"ended {component}: {ELSEWHERE}")
        return self._exits

    async def command_plugin(self, node: str, resource: str, act: str, devices: tuple[str, ...]) -> None:
        """Refuse the command. Raises: NotPossible, always."""
        raise NotPossible(f"device-plugin {node}: {ELSEWHERE}")

    async def command_driver(self, node: str, driver: str, act: str, words: tuple[str, ...]) -> None:
        """Refuse the command. Raises: NotPossible, always."""
        raise NotPossible(f"dra-driver {node}: {ELSEWHERE}")


ELSEWHERE = "a running mesh cannot do that; run it with --processes or simulated"


def _without_site(site: Site | None) -> None:
    if site is not None:
        raise NotPossible(
            f"at={site.name}: the event log of a running mesh is not here; run it with --processes or simulated"
        )


def _labels(node: dict[str, object]) -> dict[str, object]:
    found = node.get("labels")
    return dict(found) if isinstance(found, dict) else {}


async def _remove_object(client: Client, resource: str, document: Document) -> None:
    meta = document["metadata"]
    grace_s = 0 if resource == "pods" else None
    try:
        await client.delete(resource, Key(meta.get("namespace", ""), meta["name"]), grace_period_s=grace_s)
    except NotFound:
        return


class _MarkingApi:
    """An API that marks the objects it creates."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        if request.verb == "create" and not request.subresource and request.body:
            document: Document = msgspec.json.decode(request.body)
            meta = document.setdefault("metadata", {})
            meta["annotations"] = {**(meta.get("annotations") or {}), MARK: "true"}
            request = msgspec.structs.replace(request, body=msgspec.json.encode(document))
        return await self._api.call(request)

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches."""
        return self._api.watch(request)
