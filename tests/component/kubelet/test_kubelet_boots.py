"""A kubelet whose machine was booted: what ran is gone, and restart policies decide what runs again."""

import pytest

from kubelet.runtime.boots import BOOT_FILE
from lab.scenarios.simulation.disk import DiskFile
from services.api.meta import Key


async def booted(world, boot_id=b"another"):
    """Let the machine crash and boot."""
    world.kill_kubelet()
    world.disk_image.files[BOOT_FILE] = DiskFile(boot_id)
    await world.start_kubelet()


def restarts(pod):
    return pod["status"]["containerStatuses"][0]["restartCount"]


def is_running(pod):
    return pod["status"]["phase"] == "Running" and "running" in pod["status"]["containerStatuses"][0]["state"]


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_fm_k3_a_pod_that_may_restart_runs_again_from_the_sandbox_on(simulate, policy):
    async def scenario(world):
        uid = await world.create("web", spec={"restartPolicy": policy})
        await world.until_pod("web", is_running)
        await booted(world)
        pod = await world.until_pod("web", lambda p: is_running(p) and restarts(p) == 1, 10.0)
        order = [line.ev for line in world.events.lines if line.ev in ("kubelet.start", "node.boot")]
        return pod, order, len(world.lines("kubelet.start", uid))

    pod, order, starts = simulate(scenario)

    ended = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
    assert order == ["kubelet.start", "node.boot", "kubelet.start"]
    assert starts == 2


def test_fm_k3_a_pod_that_must_not_restart_has_failed(simulate):
    async def scenario(world):
        await world.create("once", spec={"restartPolicy": "Never"})
        await world.until_pod("once", is_running)
        await booted(world)
        pod = await world.until_pod("once", lambda p: p["status"]["phase"] == "Failed", 10.0)
        await world.create("next", cpu="4")
        await world.until_pod("next", is_running)  # its capacity is free
        return pod

    pod = simulate(scenario)

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 255


def test_fm_k3_a_kubelet_killed_again_before_it_had_restarted_everything_goes_on(simulate):
    async def scenario(world):
        for name in ("a", "b", "c"):
            await world.create(name)
            await world.until_pod(name, is_running)
        world.kill_kubelet()
        world.disk_image.files[BOOT_FILE] = DiskFile(b"another")
        await world.start_kubelet(wait=False)
        await world.until(lambda: len(world.lines("kubelet.start")) == 4, 10.0)
        world.kill_kubelet()
        await world.start_kubelet()
        found = [await world.until_pod(n, lambda p: is_running(p) and restarts(p) == 1, 10.0) for n in ("a", "b", "c")]
        return len(found), len(world.lines("node.boot"))

    assert simulate(scenario, latency=("all=constant:0.2", "sandbox=uniform:0.1,3")) == (3, 1)


def test_the_boot_id_outlives_kubelets_and_changes_with_the_machine(simulate):
    async def scenario(world):
        async def boot_id():
            return (await world.admin.get("nodes", Key("", "n1")))["status"]["nodeInfo"]["bootID"]

        first = await boot_id()
        world.kill_kubelet()
        await world.start_kubelet()
        second = await boot_id()
        await booted(world)
        return first, second, await boot_id()

    first, second, third = simulate(scenario)

    assert first == second
    assert first != third
