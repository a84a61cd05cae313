"""A DRA driver that knows nothing of this project registers, is called, reports health and is missed when it goes.

The driver is `foreign_dra_driver.py`, a process of its own; here are the mesh, the pod and the claim.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from services.api.errors import NotFound
from services.api.kinds.deviceclass import RESOURCE as CLASS
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key
from services.client.client import Client
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.supervisor import Supervisor

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DRIVER = "fpga.vendor.example"
CLAIM = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fpga"}}]}},
}  # fmt: skip
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
    "spec": {
        "resourceClaims": [{"name": "fpga", "resourceClaimName": "c"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "busybox", "resources": {"claims": [{"name": "fpga"}]}}],
    },
}  # fmt: skip


class Foreign:
    """The process, and what it has said so far."""

    def __init__(self, process):
        self.process, self.said = process, []

    async def says(self, key):
        async with asyncio.timeout(30):
            while True:
                if (found := next((each for each in self.said if key in each), None)) is not None:
                    return found
                line = await self.process.stdout.readline()
                assert line, f"the driver ended: {self.said}"
                self.said.append(json.loads(line))


async def start_driver(supervisor, version):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "foreign_dra_driver.py"), str(ROOT / "protos"), str(supervisor.sockets_dir / "n1"),
        str(supervisor.kubeconfig), "n1", version,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd="/",
    )  # fmt: skip
    return Foreign(process)


async def until(look, condition, most_s=20.0):
    async with asyncio.timeout(most_s):
        while True:
            found = await look()
            if condition(found):
                return found
            await asyncio.sleep(0.05)


async def scenario(data_dir, version):
    options = MeshOptions(
        data_dir=data_dir, engine="memory", log_level="warning",
        switches=("ResourceHealthStatus=true", "kubelet.dra_wipe_delay_s=2"),
        definitions={"h0": [{"name": "n1", "cpu": "8", "deviceSocket": True}]},
    )  # fmt: skip
    supervisor = Supervisor(options)
    await supervisor.start()
    transport = supervisor.client_transport()
    driver = None
    try:
        client = Client(transport.api(), RealClock(), seeded_random(1))

        async def pod():
            try:
                return await client.get("pods", Key("default", "p"))
            except NotFound:
                return None

        async def health():
            shown = (await pod())["status"]["containerStatuses"][0].get("allocatedResourcesStatus")
            return shown and (shown[0]["name"], shown[0]["resources"][0])

        async def slices():
            return (await client.list(SLICES))[0]

        await until(lambda: asyncio.to_thread((supervisor.sockets_dir / "n1/plugins_registry").is_dir), bool)
        driver = await start_driver(supervisor, version)
        registered = await driver.says("registered")
        if not registered["registered"]:
            return registered, driver.said
        await driver.says("published")
        await client.create(CLASS.name, {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "fpga"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        })  # fmt: skip
        await client.create(CLAIMS, CLAIM, namespace="default")
        await client.create("pods", POD, namespace="default")
        await until(pod, lambda p: p["status"].get("phase") == "Running")
        seen = []
        for state in ("HEALTHY", "UNHEALTHY"):
            driver.process.stdin.write(f"HEALTH {state}\n".encode())
            seen.append(await until(health, lambda h, s=state: h is not None and h[1]["health"].upper() == s))
        await client.delete("pods", Key("default", "p"))
        await until(pod, lambda p: p is None)
        await driver.says("unprepared")
        driver.process.kill()
        await until(slices, lambda found: not found)
        return registered, driver.said, seen
    finally:
        if driver is not None and driver.process.returncode is None:
            driver.process.kill()
            await driver.process.wait()
        await transport.close()
        await supervisor.stop()


@pytest.mark.parametrize("version", ["v1.DRAPlugin"])
def test_a_driver_written_from_the_protocol_alone_prepares_reports_health_and_is_missed(version, tmp_path):
    registered, said, seen = asyncio.run(scenario(tmp_path / "mesh", version))

    assert registered == {"registered": True, "error": ""}
    assert {"prepared": ["f0"], "claim": "c"} in said
    assert {"unprepared": "c"} in said
    identity = {"resourceID": "vendor.example/fpga=f0"}
    assert seen == [("claim:fpga", identity | {"health": state}) for state in ("Healthy", "Unhealthy")]


def test_a_driver_of_another_version_is_refused_in_kubernetes_words(tmp_path):
    registered, _ = asyncio.run(scenario(tmp_path / "mesh", "v9.DRAPlugin"))

    assert not registered["registered"]
    assert registered["error"].startswith(
        "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver "
        f"plugin {DRIVER} at endpoint "
    )
    assert registered["error"].endswith(
        'none of services supported by the plugin (["v9.DRAPlugin" "v1alpha1.DRAResourceHealth"]) are supported by the '
        'kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
    )
