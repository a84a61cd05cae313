"""What every cluster has is there from the first start, once, and is valid by the server's own rules."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress

import msgspec

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.cluster_objects import standing_objects
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import MemorySpans, Tracer


@asynccontextmanager
async def a_server(folder, **settings):
    clock = RealClock()
    rng = random.Random(5)
    tracer = Tracer("apiserver", clock=clock, random=rng, sinks=(MemorySpans(),))
    seams = Seams(
        component="apiserver",
        clock=clock,
        random=rng,
        disk=MemoryDisk(),
        transport=NoTransport(),
        events=NullEventLog(),
        tracer=tracer,
        switches=Switches(),
    )
    config = ApiServerConfig(name="apiserver", data_dir=str(folder), grpc_port=None, rest_port=0, **settings)
    component = build(config, seams)
    running = asyncio.create_task(component.run())
    while not component.is_ready:
        await asyncio.sleep(0)
        if running.done():
            running.result()
    try:
        yield component
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def names(component, resource):
    response = await component.server.api_for(ADMIN).call(Request(verb="list", resource=resource))
    return {item["metadata"]["name"]: item for item in msgspec.json.decode(response.unwrap().body)["items"]}


def test_a_cluster_has_its_objects_once_and_its_service_leads_to_where_it_listens(tmp_path):
    async def scenario():
        for _ in range(2):
            async with a_server(tmp_path, cluster_objects=True) as component:
                port = component.rest_port
                service, endpoints = [await names(component, each) for each in ("services", "endpoints")]
                schemas = await names(component, "flowschemas.flowcontrol.apiserver.k8s.io")
                classes = await names(component, "storageclasses.storage.k8s.io")
                slices = await names(component, "endpointslices.discovery.k8s.io")
            assert [*service] == ["kubernetes"]
            assert service["kubernetes"]["spec"]["clusterIP"] == "10.96.0.1"
            assert service["kubernetes"]["spec"]["ports"][0]["targetPort"] == port
            assert endpoints["kubernetes"]["subsets"][0]["ports"][0]["port"] == port
            assert slices["kubernetes"]["ports"][0]["port"] == port
            assert classes["standard"]["volumeBindingMode"] == "WaitForFirstConsumer"
            assert len(schemas) == 13
            assert {each["status"]["conditions"][0]["status"] for each in schemas.values()} == {"False"}

    asyncio.run(scenario())


def test_a_server_without_the_setting_has_none_of_them(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as component:
            assert await names(component, "services") == {}
            assert await names(component, "flowschemas.flowcontrol.apiserver.k8s.io") == {}

    asyncio.run(scenario())


def test_each_flow_schema_leads_to_a_level_that_there_is():
    flows = [each for each in standing_objects() if each["kind"] == "FlowSchema"]
    levels = {each["metadata"]["name"] for each in standing_objects() if each["kind"] == "PriorityLevelConfiguration"}
    assert {each["spec"]["priorityLevelConfiguration"]["name"] for each in flows} == levels
