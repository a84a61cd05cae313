"""Objects that the benchmark creates on a plane, and their deletion. Nothing else is changed or deleted."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from lab.benchmarks import rest
from lab.benchmarks.rest import CREATORS
from lab.benchmarks.running_mesh import many
from lab.benchmarks.side_by_side.client import PlaneClient, lines
from lab.benchmarks.workloads import templates
from lab.exchange.stream import Refused
from services.api.errors import AlreadyExists, Conflict, NotFound
from services.api.meta import Document

LABEL: Final = "keplab.dev/side-by-side"
PREFIX: Final = "keplab-bench"
PLACES: Final = ("load", "calls", "list")
"""The namespaces, by their last word."""
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
NO_SCHEDULER: Final = "keplab-bench-none"
"""Scheduler of pods that shall stay as they are created."""
REMAINS: Final = ("pods", "events", "serviceaccounts", "configmaps")
"""Kinds of which a namespace is emptied when no namespace controller does."""
CONTROLLER_MAX_S = 10.0
"""Seconds for which a namespace controller may take before a namespace is emptied and finalized here."""
_NAME: Final = b"@name@"


class Objects:
    """Nodes, namespaces and pods on one plane, all with the mark of this benchmark. `mark`: a word like no other.

    `are_beside_nodes`: the plane has nodes of its own, so pods select those of the benchmark.
    """

    def __init__(self, client: PlaneClient, mark: str) -> None:
        self.are_beside_nodes = False
        self._client, self._mark = client, mark

    def namespace(self, place: str) -> str:
        """Return the name of a namespace."""
        return f"{PREFIX}-{self._mark}-{place}"

    def pods_path(self, place: str) -> str:
        """Return the path of a namespace's pods."""
        return f"{NAMESPACES}/{self.namespace(place)}/pods"

    def basic_pod(self, *, is_scheduled: bool) -> Callable[[str], bytes]:
        """Return a function from a name to the pod of upstream's SchedulingBasic, 100m and 500Mi.

        It tolerates every taint: a node without a kubelet is tainted when it is created, and once its controller
        has waited for its heartbeat.
        """
        document = templates.pod("pod", tolerations=[{"operator": "Exists"}])
        if self.are_beside_nodes:
            document["spec"]["nodeSelector"] = {LABEL: self._mark}
        return _template(document, is_scheduled=is_scheduled)

    def realistic_pod(self) -> Callable[[str], bytes]:
        """Return a function from a name to a pod as users have them (`lab.benchmarks.rest.pod`), for no scheduler."""
        return _template(rest.pod(_NAME.decode()), is_scheduled=False)

    async def create_namespaces(self) -> None:
        """Create all namespaces, each with the service account of its pods. Raises: ApiError."""
        for place in PLACES:
            name, labels = self.namespace(place), {LABEL: self._mark}
            await self._client.document("POST", NAMESPACES, {"metadata": {"name": name, "labels": labels}})
            with suppress(AlreadyExists):  # a controller may have been first
                account = {"metadata": {"name": "default"}}
                await self._client.document("POST", f"{NAMESPACES}/{name}/serviceaccounts", account)

    async def create_nodes(self, count: int) -> None:
        """Create nodes of 4 CPUs and 32 GiB that no kubelet serves. Raises: ApiError."""
        document = templates.node()
        name = _NAME.decode()
        document["metadata"] = {"name": name, "labels": {templates.HOSTNAME: name, LABEL: self._mark}}
        body = msgspec.json.encode(document)

        async def create(number: int) -> None:
            named = body.replace(_NAME, f"{PREFIX}-{self._mark}-{number:05d}".encode())
            await self._client.call("POST", NODES, named)

        await many(range(count), create, CREATORS)

    async def delete_nodes(self, expected: int = 0) -> None:
        """Delete the nodes. Raises: ApiError; Refused, when fewer than expected were still there."""
        names = await self._client.names(NODES, labelSelector=self.selector)
        await self._delete(f"{NODES}/{name}" for name in names)
        if len(names) < expected:
            raise Refused(
                f"{self._client.server}: a controller deleted {expected - len(names):,} of the {expected:,} nodes that "
                "the benchmark had created; stop the one that removes nodes without a machine"
            )

    async def delete_pods(self, place: str) -> None:
        """Delete all pods of a namespace at once. Raises: ApiError."""
        path = self.pods_path(place)
        await self._delete(f"{path}/{name}" for name in await self._client.names(path))

    async def clear(self) -> None:
        """Delete everything that was created. Raises: ApiError.

        It looks until nothing is left: a request that was under way when the client was interrupted may come later.
        """
        while True:
            nodes = await self._client.names(NODES, labelSelector=self.selector)
            namespaces = await self._client.names(NAMESPACES, labelSelector=self.selector)
            if not nodes and not namespaces:
                return
            await self._delete(f"{NODES}/{name}" for name in nodes)
            for place in PLACES:
                await self.delete_pods(place)
            async with asyncio.TaskGroup() as group:
                for name in namespaces:
                    group.create_task(self._delete_namespace(name))

    @property
    def remedy(self) -> str:
        """Return the command that deletes everything that was created."""
        return f"kubectl delete namespaces,nodes -l {self.selector}"

    @property
    def selector(self) -> str:
        """Return the label selector of the nodes and namespaces."""
        return f"{LABEL}={self._mark}"

    async def _delete(self, paths: Iterable[str]) -> None:
        async def delete(path: str) -> None:
            with suppress(NotFound):
                await self._client.call("DELETE", path, query={"gracePeriodSeconds": "0"})

        await many(paths, delete, CREATORS)

    async def _delete_namespace(self, name: str) -> None:
        path = f"{NAMESPACES}/{name}"
        with suppress(NotFound):
            with suppress(Conflict):  # it is being deleted
                await self._client.call("DELETE", path)
            try:
                async with asyncio.timeout(CONTROLLER_MAX_S):
                    await self._wait_until_gone(name)
            except TimeoutError:
                await self._finalize(path)

    async def _wait_until_gone(self, name: str) -> None:
        """Return when a namespace is gone. Raises: ApiError."""
        namespace = await self._client.document("GET", f"{NAMESPACES}/{name}")
        version, selector = namespace["metadata"]["resourceVersion"], f"metadata.name={name}"
        async with self._client.watch(NAMESPACES, version, fieldSelector=selector) as blocks:
            async for line in lines(blocks):
                if line.startswith(b'{"type":"DELETED"'):
                    return

    async def _finalize(self, path: str) -> None:
        """Do what a namespace controller would. Raises: ApiError."""
        for plural in REMAINS:
            names = await self._client.names(f"{path}/{plural}")
            await self._delete(f"{path}/{plural}/{name}" for name in names)
        namespace: Any = await self._client.document("GET", path)
        namespace["spec"]["finalizers"] = []
        await self._client.document("PUT", f"{path}/finalize", namespace)


def _template(document: Document, *, is_scheduled: bool) -> Callable[[str], bytes]:
    document["metadata"] = {**document["metadata"], "name": _NAME.decode()}
    document["metadata"].pop("generateName", None)
    if not is_scheduled:
        document["spec"]["schedulerName"] = NO_SCHEDULER
    body = msgspec.json.encode(document)
    return lambda name: body.replace(_NAME, name.encode())
