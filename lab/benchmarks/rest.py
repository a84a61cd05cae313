"""Cost of REST: writes of a realistic pod and Deployment, and lists of many pods in the forms clients ask
for.

All requests go over TLS on one connection to an API server that serves clients as `keplab up` does,
memory engine. Operations run in rounds, one kind after the other, so that other work on the machine
affects them all. The median round of each operation counts.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import LOAD, RunningMesh, cpu_s, many, quiet_arguments, running_mesh
from services.api.meta import Document

ROUNDS: Final = 5
LISTED: Final = 7
"""Number of times each list is read."""
CREATORS: Final = 32
NAMESPACE: Final = "bench"
PODS, DEPLOYMENTS = f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
JSON, APPLY = "application/json", "application/apply-patch+yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
META = "g=meta.k8s.io;v=v1"
FORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "JSON": {"Accept": JSON},
    "JSON, gzip": {"Accept": JSON, "Accept-Encoding": "gzip"},
    "Table": {"Accept": f"{JSON};as=Table;{META}"},
    "PartialObjectMetadata": {"Accept": f"{JSON};as=PartialObjectMetadataList;{META}"},
    "protobuf": {"Accept": "application/vnd.kubernetes.protobuf"},
}
"""Request headers for each form of a list, by name."""


def pod(name: str) -> Document:
    """Return a typical pod: two containers with probes, volumes, limits and placement; 2.5 KB."""
    meta = {"name": name, "labels": {"app": "web", "tier": "front"}, "annotations": {"example.com/owner": "team-a"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _spec()}


def deployment(name: str) -> Document:
    """Return a Deployment of such pods."""
    labels = {"app": "web", "tier": "front"}
    template = {"metadata": {"labels": labels}, "spec": _spec()}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _spec() -> Document:
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    term = {"weight": 100, "podAffinityTerm": {**selector, "topologyKey": "kubernetes.io/hostname"}}
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    return {
        "containers": [_container("web", 8080), _container("proxy", 9090)],
        "volumes": [
            {"name": "config", "configMap": {"name": "web"}},
            {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [{**spread, **selector}],
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
    }


def _container(name: str, port: int) -> Document:
    return {
        "name": name,
        "image": f"registry.example/{name}:1.2.0",
        "args": ["--verbose", f"--port={port}"],
        "ports": [{"name": "http" if name == "web" else "metrics", "containerPort": port}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "LEVEL", "value": "info"},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": port}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/live", "port": port}, "initialDelaySeconds": 10},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


@dataclass
class Cost:
    """Cost of one operation in µs: CPU of the API server, CPU of the client, and the wall time of a call.

    `of_get`: ratio of the API server's CPU to that of a get of the same kind.
    """

    cpu_us: float
    load_cpu_us: float
    p50_us: float
    of_get: float = 0.0


@dataclass
class ListCost:
    """Cost of one list: p50 milliseconds to the last byte, CPU of the API server in ms, and bytes as sent.

    `of_json`: ratio of the API server's CPU to that of the list as JSON.
    """

    p50_ms: float
    cpu_ms: float
    bytes: int
    of_json: float = 0.0


@dataclass
class RestResult(Result):
    """Figures of REST. `operations`: by kind and operation. `lists`: of `pods` pods, by form. `calls`: number of
    calls of each.
    """

    pods: int
    calls: int
    operations: dict[str, dict[str, Cost]]
    lists: dict[str, ListCost]
    rss_mib: float


def cpu_us(pid: int) -> float:
    """Return the CPU time of a process in microseconds, as finely as the kernel counts it."""
    try:
        spent_ns = [int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()]
    except (OSError, IndexError, ValueError):
        return 1e6 * cpu_s(pid)
    return sum(spent_ns) / 1000


class Client:
    """A client of the API server, with the administrator's credentials."""

    def __init__(self, mesh: RunningMesh, session: aiohttp.ClientSession) -> None:
        self._base, self._session = mesh.supervisor.rest_url, session
        self._pids = {"apiserver": mesh.pids["apiserver"], LOAD: os.getpid()}

    async def call(self, method: str, path: str, body: Any = None, content_type: str = JSON, **headers: str) -> bytes:
        """Make a request and return the raw body of the response. Raises: RuntimeError for a status of 400 or above."""
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": content_type, "Accept": JSON, "Accept-Encoding": "identity", **headers}
        async with self._session.request(method, f"{self._base}{path}", data=data, headers=sent) as answer:
            read = await answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {read[:500].decode(errors='replace')}")
            return read

    def spent_us(self) -> dict[str, float]:
        """Return the CPU microseconds that server and client have used so far."""
        return {name: cpu_us(pid) for name, pid in self._pids.items()}


@asynccontextmanager
async def _client() -> AsyncIterator[tuple[RunningMesh, Client]]:
    without = frozenset(("scheduler", "controllers", "claim-controller"))
    async with running_mesh(engine="memory", arguments=quiet_arguments(), without=without, serves_clients=True) as mesh:
        [user] = yaml.safe_load(mesh.supervisor.kubeconfig.read_text())["users"]
        context = ssl.create_default_context(cafile=str(mesh.supervisor.authority))
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=CREATORS),
            headers={"Authorization": f"Bearer {user['user']['token']}", "User-Agent": "bench/1"},
            timeout=aiohttp.ClientTimeout(total=300),
            auto_decompress=False,
        ) as session:
            client = Client(mesh, session)
            await client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            account = {"metadata": {"name": "default"}}
            await client.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
            yield mesh, client


Operation = Callable[[str, int], tuple[str, str, Any, str]]
"""Function from `(name, number of the call)` to method, path, body and content type."""


def _operations(collection: str, make: Callable[[str], Document], at: str) -> dict[str, Operation]:
    """Return what is done to objects of one kind, in that order; `at`: where a pod's spec stands in them."""

    def updated_object(name: str, number: int) -> Document:
        found = make(name)
        found["metadata"]["labels"] = {**found["metadata"]["labels"], "round": f"r{number}"}
        return found

    def image(number: int) -> Document:
        patch: Document = {"containers": [{"name": "web", "image": f"registry.example/web:1.3.{number}"}]}
        for name in reversed(at.strip("/").split("/")):
            patch = {name: patch}
        return patch

    def label(number: int) -> Any:
        return [{"op": "add", "path": "/metadata/labels/round", "value": f"p{number}"}]

    return {
        "create": lambda name, number: ("POST", collection, make(name), JSON),
        "get": lambda name, number: ("GET", f"{collection}/{name}", None, JSON),
        "JSON patch": lambda name, number: ("PATCH", f"{collection}/{name}", label(number), JSON_PATCH),
        "merge patch": lambda name, number: (
            "PATCH",
            f"{collection}/{name}",
            {"metadata": {"annotations": {"a": f"{number}"}}},
            MERGE,
        ),
        "strategic patch": lambda name, number: ("PATCH", f"{collection}/{name}", image(number), STRATEGIC),
        "apply, new": lambda name, number: (
            "PATCH",
            f"{collection}/{name}-a?fieldManager=bench",
            make(f"{name}-a"),
            APPLY,
        ),
        "apply, changed": lambda name, number: (
            "PATCH",
            f"{collection}/{name}-a?fieldManager=bench",
            updated_object(f"{name}-a", number),
            APPLY,
        ),
        "apply, same": lambda name, number: (
            "PATCH",
            f"{collection}/{name}-a?fieldManager=bench",
            updated_object(f"{name}-a", number),
            APPLY,
        ),
    }


async def _measure_operations(client: Client, calls: int, say: Callable[[str], None]) -> dict[str, dict[str, Cost]]:
    kinds = {
        "pod": _operations(PODS, pod, "/spec"),
        "deployment": _operations(DEPLOYMENTS, deployment, "/spec/template/spec"),
    }
    rounds: dict[tuple[str, str], list[Cost]] = {}
    size = max(1, calls // ROUNDS)
    for number in range(-1, ROUNDS):  # the first round only warms up
        say(f"round {number + 1} of {ROUNDS}")
        for kind, operations in kinds.items():
            names = [f"{kind}-{number + 1}-{place}" for place in range(size)]
            for title, operation in operations.items():
                cost = await _measure_requests(client, [operation(name, number + 1) for name in names])
                rounds.setdefault((kind, title), []).append(cost)
                if title == "get":
                    rounds.setdefault((kind, "update"), []).append(await _measure_updates(client, operations, names))
    costs_by_kind: dict[str, dict[str, Cost]] = {}
    for (kind, title), costs in rounds.items():
        middle = [
            median(values) for values in zip(*((c.cpu_us, c.load_cpu_us, c.p50_us) for c in costs[1:]), strict=True)
        ]
        costs_by_kind.setdefault(kind, {})[title] = Cost(*(round(value, 1) for value in middle))
    for costs_of_kind in costs_by_kind.values():
        for cost in costs_of_kind.values():
            cost.of_get = round(cost.cpu_us / max(costs_of_kind["get"].cpu_us, 1e-9), 2)
    return costs_by_kind


async def _measure_updates(client: Client, operations: dict[str, Operation], names: list[str]) -> Cost:
    """Put back what is read with another label, as clients do that read, change and write."""
    requests = []
    for name in names:
        method, path, *_ = operations["get"](name, 0)
        document = msgspec.json.decode(await client.call(method, path))
        document["metadata"]["labels"]["round"] = "put"
        requests.append(("PUT", path, document, JSON))
    return await _measure_requests(client, requests)


async def _measure_requests(client: Client, requests: list[tuple[str, str, Any, str]]) -> Cost:
    before, walls = client.spent_us(), []
    for method, path, body, content_type in requests:
        begun = time.perf_counter()
        await client.call(method, path, body, content_type)
        walls.append(1e6 * (time.perf_counter() - begun))
    spent = {name: (after - before[name]) / len(requests) for name, after in client.spent_us().items()}
    return Cost(spent["apiserver"], spent[LOAD], median(walls))


async def _measure_lists(client: Client) -> dict[str, ListCost]:
    walls: dict[str, list[float]] = {name: [] for name in FORMS}
    spent: dict[str, list[float]] = {name: [] for name in FORMS}
    sizes: dict[str, int] = {}
    for number in range(-1, LISTED):  # the first warms up
        for name, headers in FORMS.items():
            before, begun = client.spent_us()["apiserver"], time.perf_counter()
            sizes[name] = len(await client.call("GET", PODS, **headers))
            if number >= 0:
                walls[name].append(1000 * (time.perf_counter() - begun))
                spent[name].append((client.spent_us()["apiserver"] - before) / 1000)
    json_ms = max(median(spent["JSON"]), 1e-9)
    return {
        name: ListCost(
            round(median(walls[name]), 1),
            round(median(spent[name]), 1),
            sizes[name],
            round(median(spent[name]) / json_ms, 2),
        )
        for name in FORMS
    }


async def _bench(pods: int, calls: int, say: Callable[[str], None]) -> RestResult:
    async with _client() as (mesh, client):
        operations = await _measure_operations(client, calls, say)
        say(f"creating {pods:,} pods")
        await client.call("DELETE", f"{PODS}?gracePeriodSeconds=0")

        async def create(number: int) -> None:
            await client.call("POST", PODS, pod(f"listed-{number:06d}"))

        await many(range(pods), create, CREATORS)
        say("listing them")
        lists = await _measure_lists(client)
        size = mesh.rss_mib()["apiserver"]
        return RestResult(pods=pods, calls=calls, operations=operations, lists=lists, rss_mib=size)


def bench_rest(*, pods: int = 5_000, calls: int = 300, say: Callable[[str], None] = lambda text: None) -> RestResult:
    """Measure each operation over `calls` calls, then lists of `pods` pods, over TLS. Raises: RuntimeError."""
    return asyncio.run(_bench(pods, calls, say))


@dataclass(frozen=True, kw_only=True)
class RestOptions:
    """The options of `keplab bench rest`."""

    pods: int = option(5_000, "pods listed", least=1, most=40_000)
    calls: int = option(300, "calls of each operation", least=5, most=10_000)


def _run(options: RestOptions, reporter: Reporter) -> RestResult:
    return bench_rest(pods=options.pods, calls=options.calls, say=reporter.say)


def _table(options: RestOptions, result: RestResult) -> Iterator[str | Table]:
    yield Table(
        ("KIND", "OPERATION", "SERVER CPU µs", "OF A GET", "WALL p50 µs", "CALLER CPU µs"),
        [
            (kind, name, f"{cost.cpu_us:,.0f}", f"{cost.of_get:.2f}", f"{cost.p50_us:,.0f}", f"{cost.load_cpu_us:,.0f}")
            for kind, operations in result.operations.items()
            for name, cost in operations.items()
        ],
        texts=2,
    )
    yield ""
    yield Table(
        (f"LIST OF {options.pods:,} PODS", "TO THE LAST BYTE p50 ms", "SERVER CPU ms", "OF JSON", "KB"),
        [
            (name, f"{cost.p50_ms:,.1f}", f"{cost.cpu_ms:,.1f}", f"{cost.of_json:.2f}", f"{cost.bytes / 1000:,.0f}")
            for name, cost in result.lists.items()
        ],
    )


BENCH: Final = Bench(
    name="rest",
    help="Write a realistic pod and Deployment in every way, and list many pods in every form, over REST and TLS.",
    options=RestOptions,
    run=_run,
    table=_table,
    document=RestResult.document,
)
