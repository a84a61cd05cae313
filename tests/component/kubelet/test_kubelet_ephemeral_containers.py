"""`kubectl debug`: an ephemeral container joins a pod that runs, through the subresource that kubectl uses."""

from services.api.meta import Key


def test_a_debugger_joins_a_running_pod_and_is_reported(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        patch = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox", "stdin": True}]}}
        await w.admin.patch(
            "pods", Key("default", "p"), patch, subresource="ephemeralcontainers", patch_type="strategic"
        )
        await w.until_pod("p", lambda p: p["status"].get("ephemeralContainerStatuses"))
        return await w.until_pod(
            "p", lambda p: "running" in p["status"]["ephemeralContainerStatuses"][0]["state"]
        ), w.agent().run_of("default", "p", "debugger", previous=False)

    pod, its_run = simulate(scenario)

    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
    assert (its_run.lines, its_run.is_over) == ([], False)  # what it writes, the client that attaches sees
