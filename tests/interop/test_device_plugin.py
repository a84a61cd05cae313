"""A device plugin that knows nothing of this project: written against the API's stubs alone, with plain gRPC.

The stubs are the protocol's, which is Kubernetes'; everything else here is what any author of a plugin writes.
"""

import asyncio
import concurrent.futures
import queue

import grpc
import pytest

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from services.api.meta import Key
from services.client.client import Client
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.supervisor import Supervisor

RESOURCE = "vendor.example/fpga"


class Fpgas(api_pb2_grpc.DevicePluginServicer):
    """Three devices on two NUMA nodes; prefers the last ones."""

    def __init__(self, folder):
        self.folder = folder
        self.lists = queue.Queue()
        self.calls = []

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{self.folder}/fpga.sock")
        self.server.start()
        self.command({"f0": "Healthy", "f1": "Healthy", "f2": "Healthy"})

    def register(self, **asked):
        request = {"version": "v1beta1", "endpoint": "fpga.sock", "resource_name": RESOURCE, **asked}
        with grpc.insecure_channel(f"unix:{self.folder}/kubelet.sock") as channel:
            api_pb2_grpc.RegistrationStub(channel).Register(api_pb2.RegisterRequest(**request), timeout=15)

    def command(self, health):
        message = api_pb2.ListAndWatchResponse()
        for place, (name, state) in enumerate(health.items()):
            message.devices.add(ID=name, health=state).topology.nodes.add(ID=place // 2)
        self.lists.put(message)

    def stop(self):
        self.lists.put(None)
        self.server.stop(None).wait()

    def GetDevicePluginOptions(self, request, context):  # noqa: N802
        return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def ListAndWatch(self, request, context):  # noqa: N802
        while (message := self.lists.get()) is not None:
            yield message

    def GetPreferredAllocation(self, request, context):  # noqa: N802
        answer = api_pb2.PreferredAllocationResponse()
        for asked in request.container_requests:
            self.calls.append(("prefer", sorted(asked.available_deviceIDs), asked.allocation_size))
            answer.container_responses.add(deviceIDs=sorted(asked.available_deviceIDs)[-asked.allocation_size :])
        return answer

    def Allocate(self, request, context):  # noqa: N802
        answer = api_pb2.AllocateResponse()
        for asked in request.container_requests:
            self.calls.append(("allocate", sorted(asked.devices_ids)))
            given = answer.container_responses.add(envs={"FPGAS": ",".join(asked.devices_ids)})
            given.devices.add(container_path="/dev/fpga", host_path="/dev/fpga0", permissions="rw")
        return answer

    def PreStartContainer(self, request, context):  # noqa: N802
        self.calls.append(("start", sorted(request.devices_ids)))
        return api_pb2.PreStartContainerResponse()


def pod(name):
    amounts = {"cpu": "1", "memory": "64Mi", RESOURCE: "1"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def until(look, condition, most_s=15.0):
    async with asyncio.timeout(most_s):
        while True:
            found = await look()
            if condition(found):
                return found
            await asyncio.sleep(0.05)


async def scenario(data_dir):
    options = MeshOptions(
        data_dir=data_dir, engine="memory", log_level="warning",
        definitions={"h0": [{"name": "n1", "cpu": "8", "deviceSocket": True}]},
    )  # fmt: skip
    supervisor = Supervisor(options)
    await supervisor.start()
    transport = supervisor.client_transport()
    plugin = Fpgas(supervisor.sockets_dir / "n1")
    try:
        client = Client(transport.api(), RealClock(), seeded_random(1))

        async def offered():
            status = (await client.get("nodes", Key("", "n1")))["status"]
            return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)

        async def phase(name):
            return (await client.get("pods", Key("default", name)))["status"].get("phase")

        plugin.start()
        with pytest.raises(grpc.RpcError) as refused:
            await asyncio.to_thread(plugin.register, version="v2")
        await asyncio.to_thread(plugin.register)
        seen = [await until(offered, lambda o: o == ("3", "3"))]
        await client.create("pods", pod("a"), namespace="default")
        await until(lambda: phase("a"), lambda p: p == "Running")
        plugin.command({"f0": "Healthy", "f1": "Unhealthy", "f2": "Healthy"})
        seen.append(await until(offered, lambda o: o[1] == "2"))
        await asyncio.to_thread(plugin.stop)
        seen.append(await until(offered, lambda o: o[1] == "0", most_s=2.0))
        return seen, plugin.calls, refused.value, await phase("a")
    finally:
        await transport.close()
        await supervisor.stop()


def test_a_plugin_written_against_the_stubs_alone_registers_lists_is_asked_and_is_missed(tmp_path):
    seen, calls, refused, phase = asyncio.run(scenario(tmp_path / "mesh"))

    assert seen == [("3", "3"), ("3", "2"), ("3", "0")]
    assert calls == [("prefer", ["f0", "f1", "f2"], 1), ("allocate", ["f2"]), ("start", ["f2"])]
    assert refused.code() is grpc.StatusCode.UNKNOWN
    assert refused.details() == (
        'requested API version "v2" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    assert phase == "Running"
