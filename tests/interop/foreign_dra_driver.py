"""A DRA driver that knows nothing of this project: it makes its stubs from the protocol files and speaks plain gRPC.

It reads ResourceClaims and writes its ResourceSlice with another project's Kubernetes client (lightkube), as any
driver's author would. One line of JSON on standard output for each thing that happens; a line `HEALTH STATE` on
standard input is streamed to the kubelet, the end of standard input ends it.

    python foreign_dra_driver.py PROTOS NODE_FOLDER KUBECONFIG NODE VERSION
"""

import json
import os
import pathlib
import queue
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
import lightkube
from grpc_tools import protoc
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

protos, folder, kubeconfig, node, version = sys.argv[1:]
made = tempfile.mkdtemp()
FILES = ("dra/v1/api.proto", "pluginregistration/v1/api.proto", "drahealth/v1alpha1/api.proto")
assert protoc.main(["protoc", f"-I{protos}", f"--python_out={made}", f"--grpc_python_out={made}", *FILES]) == 0
sys.path.insert(0, made)

from dra.v1 import api_pb2 as dra  # noqa: E402
from dra.v1 import api_pb2_grpc as dra_grpc  # noqa: E402
from drahealth.v1alpha1 import api_pb2 as health  # noqa: E402
from drahealth.v1alpha1 import api_pb2_grpc as health_grpc  # noqa: E402
from pluginregistration.v1 import api_pb2 as registration  # noqa: E402
from pluginregistration.v1 import api_pb2_grpc as registration_grpc  # noqa: E402

os.chdir(folder)  # the kernel takes no long paths of sockets
NAME = "fpga.vendor.example"
ENDPOINT = f"plugins/{NAME}.sock"
Claim = create_namespaced_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
Slice = create_global_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
client = lightkube.Client(config=lightkube.KubeConfig.from_file(kubeconfig), trust_env=False)
states = queue.Queue()


def said(**what):
    sys.stdout.write(json.dumps(what) + "\n")  # at once: two threads say something
    sys.stdout.flush()


class Registration(registration_grpc.RegistrationServicer):
    def GetInfo(self, request, context):  # noqa: N802
        services = [version, "v1alpha1.DRAResourceHealth"]
        return registration.PluginInfo(
            type="DRAPlugin", name=NAME, endpoint=f"{folder}/{ENDPOINT}", supported_versions=services
        )

    def NotifyRegistrationStatus(self, request, context):  # noqa: N802
        said(registered=request.plugin_registered, error=request.error)
        return registration.RegistrationStatusResponse()


class Driver(dra_grpc.DRAPluginServicer):
    def NodePrepareResources(self, request, context):  # noqa: N802
        answer = dra.NodePrepareResourcesResponse()
        for asked in request.claims:
            claim = client.get(Claim, name=asked.name, namespace=asked.namespace)
            entry = answer.claims[asked.uid]
            if claim.metadata.uid != asked.uid:
                entry.error = "another claim"
                continue
            devices = claim.status["allocation"]["devices"]["results"]
            for each in devices:
                entry.devices.add(
                    request_names=[each["request"]],
                    pool_name=each["pool"],
                    device_name=each["device"],
                    cdi_device_ids=[f"vendor.example/fpga={each['device']}"],
                )
            said(prepared=[each["device"] for each in devices], claim=asked.name)
        return answer

    def NodeUnprepareResources(self, request, context):  # noqa: N802
        answer = dra.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            answer.claims[asked.uid].SetInParent()
            said(unprepared=asked.name)
        return answer


class Health(health_grpc.DRAResourceHealthServicer):
    def NodeWatchResources(self, request, context):  # noqa: N802
        while True:
            state = states.get()
            device = health.DeviceIdentifier(pool_name=node, device_name="f0")
            yield health.NodeWatchResourcesResponse(
                devices=[health.DeviceHealth(device=device, health=state, last_updated_time=int(time.time()))]
            )


def publish():
    devices = [{"name": f"f{number}"} for number in range(2)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NAME, "nodeName": node, "pool": pool, "devices": devices}
    client.create(Slice(metadata={"name": f"{node}-{NAME}"}, spec=spec))
    said(published=len(devices))


def serve(path, *adds):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    for add, servicer in adds:
        add(servicer, server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def listen():
    for line in sys.stdin:
        states.put(health.HealthStatus.Value(line.split()[1]))
    said(over=True)


servers = [
    serve(
        ENDPOINT,
        (dra_grpc.add_DRAPluginServicer_to_server, Driver()),
        (health_grpc.add_DRAResourceHealthServicer_to_server, Health()),
    ),
    serve(f"plugins_registry/{NAME}-reg.sock", (registration_grpc.add_RegistrationServicer_to_server, Registration())),
]
publish()
reader = threading.Thread(target=listen)
reader.start()
reader.join()
for server in servers:
    server.stop(None).wait()
