"""A node's own life with real processes: a directory of manifests, and a shutdown with a boot after it."""

import asyncio

from lab.scenarios.run import load_scenario, run_as_processes
from services.api.errors import NotFound
from services.api.meta import Key
from services.client.client import Client
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import RealClock, seeded_random
from services.runtime.supervisor import Supervisor

MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main, image: img}]}\n"
SCENARIO = """# Off and on
limit 60s
nodes n1 cpu=4 shutdown=10s/5s
pod p cpu=1 restart=Always
expect within 10s each pods status.phase == Running
shutdown n1
expect within 10s each pods status.reason == Terminated
wait 2s
boot n1
expect within 15s count events reason=Rebooted == 1
pod q cpu=1
expect within 15s each pods name=q status.phase == Running
"""


async def until_running(client, name, limit_s=20.0):
    async with asyncio.timeout(limit_s):
        while True:
            try:
                if (await client.get("pods", Key("default", name)))["status"].get("phase") == "Running":
                    return
            except NotFound:
                pass
            await asyncio.sleep(0.1)


def test_every_node_runs_what_is_in_the_directory_and_one_what_is_in_its_folder(tmp_path):
    manifests = tmp_path / "manifests"
    (manifests / "node-1").mkdir(parents=True)
    (manifests / "all.yaml").write_text(MANIFEST % "all")
    (manifests / "node-1" / "one.yaml").write_text(MANIFEST % "one")

    async def main():
        options = MeshOptions(
            data_dir=tmp_path / "mesh", nodes=2, hosts=1, engine="memory", log_level="warning",
            arguments={"kubelet": ["--static-pods", str(manifests)]},
        )  # fmt: skip
        supervisor = Supervisor(options)
        await supervisor.start()
        transport = supervisor.client_transport()
        try:
            client = Client(transport.api(), RealClock(), seeded_random(1))
            for name in ("all-node-0", "all-node-1", "one-node-1"):
                await until_running(client, name)
            (manifests / "all.yaml").unlink()
            async with asyncio.timeout(20):
                while len(left := (await client.list("pods"))[0]) != 1:  # noqa: ASYNC110  another process changes it
                    await asyncio.sleep(0.1)
        finally:
            await transport.close()
            await supervisor.stop()
        return [each["metadata"]["name"] for each in left]

    assert asyncio.run(main()) == ["one-node-1"]


def test_a_node_is_shut_down_and_booted_as_a_process(tmp_path):
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO)

    result = run_as_processes(load_scenario(scenario), engine="memory", data_dir=tmp_path / "mesh")

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    assert (result.error, result.violations) == ("", [])
