"""Operations on a mesh of processes: API server and scheduler, over gRPC. Nodes have no kubelets, as in upstream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import aiohttp
import msgspec

from lab.benchmarks.running_mesh import RunningMesh, follow, many, rss_mib
from lab.benchmarks.scheduler_perf.cluster import MB_OF_MIB, PRIORITY_CLASS, Failed, first_of, kind_of
from lab.benchmarks.scheduler_perf.pods import Pods, PodState, SeenPod
from lab.benchmarks.scheduler_perf.typed_values import with_text_amounts
from services.api.errors import AlreadyExists, ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Random
from services.api.wire import Request, Response, WatchEvent, encode
from services.client.client import Client, delete_request, request_of
from services.runtime.real import RealClock, seeded_random

RETRY_S: Final = 20.0
RETRY_EVERY_S: Final = 1.0
METRICS_TIMEOUT_S: Final = 10.0
DEFINITIONS: Final = "CustomResourceDefinition"
DEFINITE: Final = frozenset((400, 403, 409, 422))
"""Status codes of refusals that a retry does not resolve (upstream retries for 20 s)."""
T = TypeVar("T")


class MeshCluster:
    """A mesh of processes as a cluster. Call `begin` and `end` once each; tasks started by `every` run in `group`."""

    form = "mesh"

    def __init__(self, mesh: RunningMesh, token: str, group: asyncio.TaskGroup) -> None:
        self.pods = Pods()
        self.random: Random = seeded_random(0)
        self._mesh, self._token, self._group = mesh, token, group
        self._client = Client(mesh.api, RealClock(), seeded_random(None), field_manager="scheduler-perf")
        self._changed = asyncio.Event()
        self._decode = msgspec.json.Decoder(SeenPod).decode
        self._priorities: set[str] = set()
        self._defined: dict[tuple[str, str], tuple[str, bool]] = {}
        """Kinds that the workload defines: name and whether they are namespaced, by group and kind."""
        self._conditional: set[str] = set()
        """Kinds whose objects are not replaced unless the version is named."""
        self._tasks: list[asyncio.Task[None]] = []
        self._scheduler_pid = mesh.pids["scheduler"]

    def begin(self) -> None:
        """Watch the pods from now on."""
        self._start(follow(self._mesh.api, "pods", self._note, self._changed.set))

    def stop_background(self) -> None:
        """Stop the tasks started by `every`; pods are still watched."""
        for task in self._tasks[1:]:
            task.cancel()

    def end(self) -> None:
        """Stop all tasks."""
        for task in self._tasks:
            task.cancel()

    def _start(self, doing: Awaitable[None]) -> None:
        async def task() -> None:
            await doing

        self._tasks.append(self._group.create_task(task()))

    def _note(self, event: WatchEvent, _now: float) -> None:
        key = Key(event.namespace, event.name)
        if event.type == "DELETED":
            self.pods.drop(key)
        elif event.type in ("ADDED", "MODIFIED"):
            seen = self._decode(event.body)
            if (refusal := seen.refusal) is not None:
                self.pods.note_refusal(key, lambda: refusal.message)
            self.pods.put(key, PodState(seen.metadata.labels, seen.spec.node_name, seen.is_attempted))

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def create(self, document: Document, namespace: str, *, is_strict: bool = False) -> str:
        """Create an object and return its name. Raises: Failed, after 20 s of retries for a temporary refusal."""
        document = await self._with_priority_class(with_text_amounts(document))
        return await self._create(document, namespace, is_strict=is_strict)

    async def _create(self, document: Document, namespace: str, *, is_strict: bool = False) -> str:
        name, version, own = self._kind(document, namespace)
        request = Request(
            verb="create",
            resource=name,
            namespace=own,
            api_version=version,
            body=encode(document),
            # Nodes that clients make are tainted until a kubelet answers; upstream turns that plugin off.
            field_validation="Strict" if is_strict and document.get("kind") != "Node" else "",
        )
        what = f"{document.get('kind')} {_name_of(document)}"
        try:
            answer = await self._call_with_retries(request, what)
        except AlreadyExists:
            if document.get("kind") in ("Namespace", "PriorityClass"):
                return str(document["metadata"]["name"])
            raise Failed(f"{what} exists already") from None
        if document.get("kind") == DEFINITIONS:
            self._define(document)
        return str(msgspec.json.decode(answer.body)["metadata"]["name"])

    async def create_all(
        self, count: int, document: Callable[[int], Document], namespace: Callable[[int], str]
    ) -> list[str]:
        """Create many objects at once, after the first one, which is checked strictly; return their names."""
        names = [""] * count
        if not count:
            return names
        names[0] = await self.create(document(0), namespace(0), is_strict=True)

        async def one(index: int) -> None:
            names[index] = await self.create(document(index), namespace(index))

        try:
            await many(range(1, count), one)
        except ExceptionGroup as group:
            raise first_of(group) from None
        return names

    async def update(self, document: Document, namespace: str, subresource: str) -> None:
        """Replace an object or a subresource. Raises: Failed."""
        name, version, own = self._kind(document, namespace)
        key = Key(own, str(document["metadata"].get("name", "")))
        if not key.name:
            raise Failed(f"{document.get('kind')}: metadata.name must be set to update it")
        what = f"{document.get('kind')} {_name_of(document)}"
        document = await self._with_priority_class(with_text_amounts(document))

        def request(sent: Document) -> Request:
            return Request(
                verb="update",
                resource=name,
                namespace=key.namespace,
                name=key.name,
                subresource=subresource,
                api_version=version,
                body=encode(sent),
                field_validation="Strict",
            )

        if name not in self._conditional:
            try:
                await self._call_with_retries(request(document), what)
            except Failed:
                if document["metadata"].get("resourceVersion"):
                    raise
                # Of some kinds the server wants to know which version is replaced; upstream's tests name none.
                self._conditional.add(name)
            else:
                return
        ends = self.now() + RETRY_S
        while True:
            version_now = (await self._read_object(name, key, what))["metadata"]["resourceVersion"]
            metadata = {**document["metadata"], "resourceVersion": version_now}
            try:
                await self._call_with_retries(request({**document, "metadata": metadata}), what)
            except Failed:
                if (await self._read_object(name, key, what))["metadata"]["resourceVersion"] == version_now:
                    raise
                if self.now() > ends:
                    raise
            else:
                return

    async def _read_object(self, kind: str, key: Key, what: str) -> Document:
        try:
            return await self._client.get(kind, key)
        except (ApiError, UnknownOutcome) as error:
            raise Failed(f"{what}: {error}") from None

    async def patch_status(self, kind: str, key: Key, status: Document) -> None:
        """Set fields of an object's status. Raises: Failed."""
        request = request_of("patch", kind, key, encode({"status": status}), subresource="status", patch_type="merge")
        await self._call_with_retries(request, f"{kind} {key}")

    async def delete(self, kind: str, key: Key, grace_s: int | None = None) -> bool:
        """Delete an object; return whether it was there. Raises: Failed."""
        try:
            (await self._client.call(delete_request(kind, key, grace_period_s=grace_s))).unwrap()
        except NotFound:
            return False
        except (ApiError, UnknownOutcome) as error:
            raise Failed(f"{kind} {key}: {error}") from None
        return True

    async def documents(self, kind: str, namespace: str = "") -> Sequence[Document]:
        """Return the objects of a kind."""
        return (await self._client.list(kind, namespace=namespace))[0]

    async def wait(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `is_done` returns true; return whether it did within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                while not is_done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return is_done()
        return True

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""
        await asyncio.sleep(seconds)

    def every(self, interval_s: float, do: Callable[[], Awaitable[bool]]) -> None:
        """Call `do` in every interval from now on, until it returns False."""

        async def repeat() -> None:
            began, turn = self.now(), 1
            await asyncio.sleep(interval_s)
            while await do():
                # As a ticker does: turns that were missed are not made up for.
                turn = max(turn + 1, int((self.now() - began) / interval_s))
                await asyncio.sleep(max(0.0, began + turn * interval_s - self.now()))

        self._start(repeat())

    async def metrics(self) -> str:
        """Return the scheduler's metrics in Prometheus' text format. Raises: Failed."""
        ports = {each["name"]: each["ports"].get("health", 0) for each in self._mesh.supervisor.status()["processes"]}
        limit = aiohttp.ClientTimeout(total=METRICS_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, headers={"Authorization": f"Bearer {self._token}"}) as session,
                session.get(f"http://127.0.0.1:{ports['scheduler']}/metrics") as answer,
            ):
                answer.raise_for_status()
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Failed(f"the scheduler's metrics: {error}") from None

    def memory_mb(self) -> float:
        """Return the scheduler's resident memory in MB."""
        return rss_mib(self._scheduler_pid) * MB_OF_MIB

    def _kind(self, document: Document, namespace: str) -> tuple[str, str, str]:
        """Return the wire name of the document's kind, its version unless it is the stored one, and the namespace."""
        version, kind = str(document.get("apiVersion") or ""), str(document.get("kind") or "")
        resource = kind_of(document)
        if resource is not None:
            name, is_namespaced = resource.name, resource.namespaced
            other = version if version != resource.api_version else ""
        elif (defined := self._defined.get((version.rpartition("/")[0], kind))) is not None:
            (name, is_namespaced), other = defined, version
        else:
            raise Failed(f"keplab has no kind {kind or '(none given)'} in {version or '(no apiVersion)'}")
        own = namespace or str(document.get("metadata", {}).get("namespace") or "")
        if is_namespaced and not own:
            raise Failed(f"{kind} {_name_of(document)}: namespace must be set")
        if namespace and not is_namespaced:
            raise Failed(f"{kind} {_name_of(document)}: namespace {namespace} is set, but the kind is cluster-scoped")
        return name, other, own if is_namespaced else ""

    def _define(self, definition: Document) -> None:
        spec = definition["spec"]
        name = f"{spec['names']['plural']}.{spec['group']}"
        self._defined[spec["group"], spec["names"]["kind"]] = (name, spec.get("scope") == "Namespaced")

    async def _call_with_retries(self, request: Request, what: str) -> Response:
        ends = self.now() + RETRY_S
        while True:
            try:
                return (await self._client.call(request)).unwrap()
            except AlreadyExists:
                raise
            except ApiError as error:
                if error.code in DEFINITE or self.now() + RETRY_EVERY_S > ends:
                    raise Failed(f"{what}: {error}") from None
            except UnknownOutcome as error:
                raise Failed(f"{what}: {error}") from None
            await asyncio.sleep(RETRY_EVERY_S)

    async def _with_priority_class(self, document: Document) -> Document:
        """Return the document with a priority class beside a number, which admission wants to be a class's."""
        spec = document.get("spec")
        if not isinstance(spec, dict) or "priority" not in spec or spec.get("priorityClassName"):
            return document
        if document.get("kind") not in ("Pod", "PodGroup"):
            return document
        value, policy = int(spec["priority"]), str(spec.get("preemptionPolicy") or "")
        name = PRIORITY_CLASS.format(value) + (f"-{policy.lower()}" if policy else "")
        if name not in self._priorities:
            priority_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            more = {"preemptionPolicy": policy} if policy else {}
            await self._create({**priority_class, "value": value, **more}, "")
            self._priorities.add(name)
        return {**document, "spec": {**spec, "priorityClassName": name}}


def _name_of(document: Mapping[str, object]) -> str:
    metadata = document.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("name") or found.get("generateName") or "")
