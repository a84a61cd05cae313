"""A server in virtual time with the definitions of a test: what tests of custom resources share."""

import asyncio
import copy
import random
from contextlib import asynccontextmanager

import msgspec

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.extensions.register import ALL
from apiserver_fake.rest.versions import versioned_api
from apiserver_fake.storage.writer import refusal
from apiserver_fake.wiring import build
from services.api.errors import ApiError
from services.api.identity import ADMIN
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer

GROUP = "stable.example.com"
CRONTABS = f"crontabs.{GROUP}"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cronSpec": {"type": "string"},
                "image": {"type": "string", "default": "busybox"},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
            },
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    },
}


def a_version(name="v1", *, schema=None, storage=True, **others):
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": copy.deepcopy(schema or SCHEMA)},
        **others,
    }


def a_definition(*versions, plural="crontabs", kind="CronTab", scope="Namespaced", group=GROUP, names=None, **spec):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "versions": list(versions) or [a_version(subresources={"status": {}})],
            **spec,
        },
    }


def a_crontab(name="one", version="v1", **spec):
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "CronTab",
        "metadata": {"name": name},
        "spec": {"cronSpec": "* * * * *", **spec},
    }


class LoopClock:
    """Virtual time."""

    def now(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_700_000_000 + self.now()


class Cluster:
    """One server and the administrator's calls of it."""

    def __init__(self, server):
        self.server, self.api = server, server.api_for(ADMIN)

    async def call(self, verb, resource=CRONTABS, name="", body=None, *, version="", code=None, **fields):
        """Return the answer; with `version` as a caller of REST knows it."""
        kind = self.server.catalogue.resources.get(resource)
        if kind is not None and kind.namespaced and "namespace" not in fields and verb not in ("list",):
            fields["namespace"] = "default"
        api = self.api
        if version:
            group = resource.partition(".")[2]
            served = self.server.catalogue.served_versions[group, version][resource.partition(".")[0]]
            api = versioned_api(api, served)
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            response = await api.call(Request(verb=verb, resource=resource, name=name, body=data, **fields))
        except ApiError as error:
            response = refusal(error)
        assert code is None or response.code == code, (response.code, response.body)
        self.warnings = response.warnings
        return msgspec.json.decode(response.body)

    async def define(self, definition):
        """Create a definition and wait until its kind is served, or its names are refused."""
        made = await self.call("create", DEFINITIONS, body=definition, code=201)
        await asyncio.sleep(1)
        return await self.definition(made["metadata"]["name"])

    async def definition(self, name=CRONTABS):
        return await self.call("get", DEFINITIONS, name, code=200)

    def is_served(self, version="v1", group=GROUP, plural="crontabs"):
        return plural in self.server.catalogue.served_versions.get((group, version), {})

    async def watched(self, resource, seen, **fields):
        """Collect the events of a watch until it ends."""
        async for batch in self.api.watch(WatchRequest(resource=resource, **fields)):
            seen.extend((event.type, msgspec.json.decode(event.body)) for event in batch)
        seen.append(("END", {}))


class Machine:
    """One machine: its disk survives, the server on it comes and goes."""

    def __init__(self):
        self.disk, self.random = MemoryDisk(), random.Random(1)

    @asynccontextmanager
    async def cluster(self, extensions=ALL, **switches):
        """Run a server with these extensions; it is killed without warning at the end."""
        clock = LoopClock()
        seams = Seams(
            component="apiserver",
            clock=clock,
            random=self.random,
            disk=self.disk,
            transport=NoTransport(),
            events=MemoryEventLog("apiserver", clock, "0" * 16, MemoryEvents()),
            tracer=Tracer("apiserver", clock=clock, random=self.random, sinks=(MemorySpans(),)),
            switches=Switches(switches),
        )
        component = build(
            ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, state_hash=True), seams, extensions
        )
        task = asyncio.create_task(component.run())
        ready = asyncio.create_task(component.server.wait_until_ready())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        try:
            yield Cluster(component.server)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def conditions(definition):
    return {each["type"]: (each["status"], each["reason"]) for each in definition["status"].get("conditions") or ()}
