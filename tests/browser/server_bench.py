"""What the page's server itself takes: `keplab ui` as a process of its own, over a real API server that holds a large
cluster and takes a stream of changes, with one page connected; and what one open page costs a mesh that starts pods.
CPU and memory are the kernel's figures of processes.

python -m tests.browser.server_bench --nodes 5000 --pods 100000 --events 1000 --seconds 30
python -m tests.browser.server_bench --cost
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from lab.benchmarks.mesh import Stopwatch, wait_for_nodes
from lab.benchmarks.running_mesh import cpu_s, many, rss_mib, running_mesh
from lab.recordings import frames
from services.api.meta import Key
from services.api.wire import Request
from services.client.client import request_of
from services.telemetry import kernel

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES, SETS = 4, 40
WRITERS = 64
SETTLED_S = 3.0
READY_MAX_S = 240.0
LOOKS_S = 20
"""So often a second it is looked at whether a process is busy."""
STEPS = 10
COST_NODES, COST_PODS, COST_ROUNDS = 100, 500, 10


@dataclass
class Figures:
    """Of the server's process: MiB before a page, with one page, at the most, and at the end; cores it used; how many
    changes a second there were."""

    alone_mib: float
    page_mib: float
    most_mib: float
    end_mib: float
    cores: float
    events_s: float


@dataclass
class Cost:
    """Of a mesh that starts pods without a page and with one: pods a second, and CPU milliseconds of the mesh's
    processes a pod; medians of rounds that take turns."""

    pods_s: tuple[float, float]
    cpu_ms: tuple[float, float]


def node(number):
    name = f"node-{number:05d}"
    sizes = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod_names(pods):
    """Namespace and name of each pod."""
    return [(f"ns-{i % NAMESPACES}", f"app-{i % SETS:02d}-7f9c4d5b{i % SETS:02d}-{i:06x}") for i in range(pods)]


def pod(number, key, owners, nodes):
    namespace, name = key
    owner = owners[number % SETS]
    container = {
        "name": "app",
        "image": "registry.example/app:1.4.2",
        "env": [{"name": "MODE", "value": "production"}, {"name": "ZONE", "value": "a"}],
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": f"app-{number % SETS:02d}", "pod-template-hash": f"7f9c4d5b{number % SETS:02d}"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, **owner}],
        },
        "spec": {"nodeName": f"node-{number % nodes:05d}", "containers": [container]},
    }


class Load:
    """Fills an API server, and then changes statuses of pods at an even rate."""

    def __init__(self, api, nodes, pods):
        self._api, self._nodes, self.keys = api, nodes, pod_names(pods)
        self.changed = 0

    async def _create(self, resource, document):
        metadata = document["metadata"]
        body = msgspec.json.encode(document)
        request = Request(verb="create", resource=resource, namespace=metadata.get("namespace", ""), body=body)
        return msgspec.json.decode((await self._api.call(request)).unwrap().body)

    async def fill(self):
        for number in range(NAMESPACES):
            head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns-{number}"}}
            await self._create("namespaces", head)
        await many(range(self._nodes), lambda number: self._create("nodes", node(number)))
        owners = []
        for number in range(SETS):
            labels = {"app": f"app-{number:02d}"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
            head = {"name": f"app-{number:02d}-7f9c4d5b{number:02d}", "namespace": f"ns-{number % NAMESPACES}"}
            spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
            made = await self._create(
                "replicasets.apps", {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": head, "spec": spec}
            )
            owners.append({"name": head["name"], "uid": made["metadata"]["uid"]})

        async def create(each):
            await self._create("pods", pod(each[0], each[1], owners, self._nodes))

        await many(enumerate(self.keys), create)

    async def change(self, per_s):
        """Change pods until cancelled, so many a second, whether or not the answers keep up."""
        began, dice = time.perf_counter(), random.Random(1)
        numbers = itertools.count()

        async def writer():
            for number in numbers:
                await asyncio.sleep(max(0.0, began + number / per_s - time.perf_counter()))
                namespace, name = dice.choice(self.keys)
                status = {"phase": "Running", "reason": f"Step{number % STEPS}", "message": f"step {number}"}
                body = msgspec.json.encode({"status": status})
                key = Key(namespace, name)
                request = request_of("patch", "pods", key, body, subresource="status", patch_type="merge")
                (await self._api.call(request)).unwrap()
                self.changed += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(writer())


class Reader:
    """One page: it subscribes, and reads what it is sent."""

    def __init__(self, base, token):
        self._base, self._token = base, token
        self.frames = dict.fromkeys(range(11), 0)
        self.rows = 0

    async def run(self):
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.post(f"{self._base}/ui/v1/session", json={"token": self._token}) as answer:
                answer.raise_for_status()
            for what in ("meta", "history"):
                async with http.get(f"{self._base}/ui/v1/{what}") as answer:
                    await answer.read()
            async with http.ws_connect(f"{self._base}/ui/v1/socket", max_msg_size=0) as socket:
                await socket.send_json({"t": "sub", "run": "live", "view": "cluster", "rate": 20})
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.BINARY:
                        head = frames.HEAD.unpack_from(message.data)
                        self.frames[head[0]] += 1
                        if head[0] == frames.PODS:
                            self.rows = head[3]


@contextlib.asynccontextmanager
async def page_server(data, *words):
    """Start `keplab ui`; yields its process, its address and its token."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.cli", "ui", "--data", str(data), *words),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    try:
        address = (await process.stdout.readline()).decode().strip()
        base, _, token = address.partition("/ui/#t=")
        yield process, base, token
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def measure(nodes, pods, events, seconds, note=lambda text: None):
    """Return the figures of a server that follows a cluster of this size and this many changes a second."""
    without = frozenset(("controllers", "claim-controller", "scheduler"))
    async with running_mesh(engine="memory", without=without) as mesh:
        load = Load(mesh.api, nodes, pods)
        began = time.perf_counter()
        await load.fill()
        note(f"{nodes:,} nodes and {pods:,} pods after {time.perf_counter() - began:.0f} s")
        async with page_server(mesh.supervisor._data) as (process, base, token):
            most = 0.0

            async def sample():
                nonlocal most
                while True:
                    most = max(most, rss_mib(process.pid))
                    await asyncio.sleep(0.1)

            sampling = asyncio.create_task(sample())
            await idle(process.pid)
            alone = rss_mib(process.pid)
            note(f"alone {alone:.0f} MiB, at the most {most:.0f}")
            reader = Reader(base, token)
            reading = asyncio.create_task(reader.run())
            await idle(process.pid)
            assert reader.rows >= pods, f"the page has {reader.rows} pods of {pods}"
            page = rss_mib(process.pid)
            note(f"with a page {page:.0f} MiB, at the most {most:.0f}")
            changing = asyncio.create_task(load.change(events))
            await asyncio.sleep(SETTLED_S)
            before, spent, at = load.changed, cpu_s(process.pid), time.perf_counter()
            for _ in range(max(1, seconds // 10)):
                await asyncio.sleep(min(10, seconds))
                note(f"{rss_mib(process.pid):.0f} MiB")
            took = time.perf_counter() - at
            cores, rate = (cpu_s(process.pid) - spent) / took, (load.changed - before) / took
            end = rss_mib(process.pid)
            for task in (changing, reading, sampling):
                task.cancel()
            for ended in await asyncio.gather(changing, reading, sampling, return_exceptions=True):
                if not isinstance(ended, asyncio.CancelledError):
                    raise ended
            note(json.dumps(reader.frames))
            return Figures(alone, page, most, end, cores, rate)


@contextlib.asynccontextmanager
async def open_page(data):
    """Have one page open, whose server has done what it begins with."""
    async with page_server(data) as (process, base, token):
        # In a process of its own, as a browser is: this one makes the load.
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.browser.server_bench", "--read", base, token), cwd=ROOT
        )
        try:
            await idle(process.pid)
            yield
        finally:
            reader.kill()
            await reader.wait()


async def none_left(api):
    """Delete all pods, and return when they are gone."""
    every = {"resource": "pods", "namespace": "default"}
    (await api.call(Request(verb="deletecollection", **every, body=b'{"gracePeriodSeconds":0}'))).unwrap()
    async with asyncio.timeout(READY_MAX_S):
        while True:
            answer = await api.call(Request(verb="list", **every))
            if not msgspec.json.decode(answer.unwrap().body)["items"]:
                return
            await asyncio.sleep(0.2)


async def cost(pods, rounds, note=lambda text: None):
    """Return what one open page costs: so many pods are started in each round, and without a page in as many."""
    found = {False: [], True: []}
    async with running_mesh(engine="memory", nodes=COST_NODES, hosts=2) as mesh:
        await wait_for_nodes(mesh.api, COST_NODES)
        # A first one is not counted: caches are filled.
        order = [False, *itertools.islice(itertools.cycle((False, True, True, False)), 2 * rounds)]
        for number, is_open in enumerate(order):
            async with open_page(mesh.supervisor._data) if is_open else contextlib.nullcontext():
                watch = Stopwatch(mesh.api, pods, first=number * pods)
                meter, began = mesh.meter(), time.perf_counter()
                async with watch.watching():
                    await watch.create_all()
                rate, spent = pods / (time.perf_counter() - began), sum(meter.spent_s().values())
            await none_left(mesh.api)
            note(f"{'with' if is_open else 'without'} a page {rate:.0f} pods/s, {1000 * spent / pods:.2f} ms a pod")
            if number:
                found[is_open].append((rate, 1000 * spent / pods))
    without, with_page = ([statistics.median(each) for each in zip(*found[key], strict=True)] for key in (False, True))
    return Cost((without[0], with_page[0]), (without[1], with_page[1]))


async def idle(pid):
    """Wait until the process has done what it began with: until it takes less than a tenth of a core for a second, and
    waits for no CPU either, of which others may leave it none."""
    async with asyncio.timeout(READY_MAX_S):
        while True:
            before, runnable = cpu_s(pid), 0
            for _ in range(LOOKS_S):
                await asyncio.sleep(1 / LOOKS_S)
                runnable += kernel.state_and_parent(pid)[0] == "R"
            if cpu_s(pid) - before < 0.1 and runnable < LOOKS_S / 4:
                return


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.browser.server_bench")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=1_000, help="changes of pods a second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--cost", action="store_true", help="what one open page costs a mesh that starts pods")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.read:
        asyncio.run(Reader(*words.read).run())
        return

    def note(text):
        sys.stderr.write(f"{text}\n")

    made = asyncio.run(
        cost(COST_PODS, COST_ROUNDS, note)
        if words.cost
        else measure(words.nodes, words.pods, words.events, words.seconds, note)
    )
    sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    main()
