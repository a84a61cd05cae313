"""Upstream's end-to-end catalogue of resizes (kep-1287 16): sizes before and after, and what restarts."""

import pytest

from services.api.meta import Key

RESTART_CPU, RESTART_MEMORY = "cpu", "memory"
GiB = 1 << 30


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def settled(wishes):
    """Whether every container runs with what is wished and nothing is left to do."""

    def check(pod):
        found = {each["name"]: each for each in pod["status"]["containerStatuses"]}
        return not any(c["type"].startswith("PodResize") for c in pod["status"]["conditions"]) and all(
            found[name]["resources"] == size and found[name]["allocatedResources"] == size["requests"]
            for name, size in wishes.items()
        )

    return check


def guaranteed(cpu, memory):
    return size(cpu, memory, cpu, memory)


def size(cpu=None, memory=None, cpu_limit=None, memory_limit=None):
    requests = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {})}
    limits = {**({"cpu": cpu_limit} if cpu_limit else {}), **({"memory": memory_limit} if memory_limit else {})}
    return {**({"limits": limits} if limits else {}), "requests": requests}


def container(name, has, restarts=()):
    policies = [{"resourceName": each, "restartPolicy": "RestartContainer"} for each in restarts]
    return {"name": name, "image": "i", "resources": has, "resizePolicy": policies}


async def resized(w, before, after, restarts=None):
    """Run containers of the sizes `before`, resize them all at once; return the pod when that is done."""
    containers = [container(name, has, (restarts or {}).get(name, ())) for name, has in before.items()]
    await w.create("p", run="forever", spec={"containers": containers})
    await w.until_pod("p", running)
    body = {"spec": {"containers": [{"name": name, "resources": wish} for name, wish in after.items()]}}
    await w.admin.patch("pods", Key("default", "p"), body, subresource="resize", patch_type="strategic")
    return await w.until_pod("p", settled(after))


G, B = guaranteed("500m", "512Mi"), size("250m", "256Mi", "500m", "512Mi")

CASES = {
    "guaranteed, one container, cpu up": ({"a": G}, {"a": guaranteed("700m", "512Mi")}),
    "guaranteed, one container, cpu down": ({"a": G}, {"a": guaranteed("300m", "512Mi")}),
    "guaranteed, one container, memory up": ({"a": G}, {"a": guaranteed("500m", "1Gi")}),
    "guaranteed, one container, memory down": ({"a": G}, {"a": guaranteed("500m", "256Mi")}),
    "guaranteed, one container, both up": ({"a": G}, {"a": guaranteed("700m", "1Gi")}),
    "guaranteed, one container, both down": ({"a": G}, {"a": guaranteed("300m", "256Mi")}),
    "guaranteed, one container, cpu up and memory down": ({"a": G}, {"a": guaranteed("700m", "256Mi")}),
    "guaranteed, one container, cpu down and memory up": ({"a": G}, {"a": guaranteed("300m", "1Gi")}),
    "guaranteed, three containers, net increase": (
        {"a": G, "b": G, "c": G},
        {"a": guaranteed("800m", "512Mi"), "b": guaranteed("300m", "1Gi"), "c": guaranteed("600m", "256Mi")},
    ),
    "guaranteed, three containers, net decrease": (
        {"a": G, "b": G, "c": G},
        {"a": guaranteed("200m", "512Mi"), "b": guaranteed("600m", "256Mi"), "c": guaranteed("400m", "256Mi")},
    ),
    "burstable, requests up": ({"a": B}, {"a": size("400m", "384Mi", "500m", "512Mi")}),
    "burstable, requests down": ({"a": B}, {"a": size("100m", "128Mi", "500m", "512Mi")}),
    "burstable, limits up": ({"a": B}, {"a": size("250m", "256Mi", "800m", "1Gi")}),
    "burstable, limits down": ({"a": B}, {"a": size("250m", "256Mi", "300m", "300Mi")}),
    "burstable, requests up and limits down": ({"a": B}, {"a": size("300m", "300Mi", "400m", "400Mi")}),
    "burstable, requests down and limits up": ({"a": B}, {"a": size("100m", "128Mi", "800m", "1Gi")}),
    "burstable, requests only": ({"a": size("200m")}, {"a": size("400m")}),
    "burstable, equivalents of a rounding kernel": ({"a": size("2m")}, {"a": size("1m")}),
    "burstable, a request where there was none": ({"a": size(None, "256Mi")}, {"a": size("100m", "256Mi")}),
    "burstable, six containers, limits added": (
        {f"c{i}": size("100m", "64Mi") for i in range(6)},
        {f"c{i}": size("100m", "64Mi", "200m", "128Mi") for i in range(6)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_kep_1287_catalogue_all_of_it_is_allocated_and_actual_and_nothing_restarts(simulate, case):
    before, after = CASES[case]

    async def scenario(w):
        return await resized(w, before, after), dict(w.agent().kubelet.ledger.used)

    pod, used = simulate(scenario, nodes=({"name": "n1", "cpu": "8", "memory": f"{32 * GiB}"},))

    assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0] * len(before)
    cpus = [size["requests"].get("cpu", "0m") for size in after.values()]
    assert used.get("cpu", 0) == sum(int(text.removesuffix("m")) for text in cpus)


@pytest.mark.parametrize(("restarts", "after", "counts"), [
    ({"a": [RESTART_CPU]}, {"a": guaranteed("700m", "512Mi")}, [1]),
    ({"a": [RESTART_CPU]}, {"a": guaranteed("500m", "1Gi")}, [0]),
    ({"a": [RESTART_MEMORY]}, {"a": guaranteed("300m", "256Mi")}, [1]),
    ({"a": [RESTART_CPU, RESTART_MEMORY]}, {"a": guaranteed("700m", "1Gi")}, [1]),
    ({"a": [RESTART_MEMORY], "b": [RESTART_CPU]}, {"a": guaranteed("700m", "512Mi"), "b": guaranteed("300m", "1Gi")},
     [0, 1]),
])  # fmt: skip
def test_kep_1287_catalogue_only_containers_restart_that_ask_for_it(simulate, restarts, after, counts):
    async def scenario(w):
        return await resized(w, dict.fromkeys(after, G), after, restarts)

    pod = simulate(scenario)

    assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == counts


def test_kep_1287_catalogue_put_and_get_of_the_whole_pod_are_as_good_as_a_patch(simulate):
    async def scenario(w):
        await w.create("p", run="forever", spec={"containers": [container("a", G)]})
        pod = await w.until_pod("p", running)
        pod["spec"]["containers"][0]["resources"] = guaranteed("700m", "1Gi")
        await w.admin.update("pods", Key("default", "p"), pod, subresource="resize")
        return await w.until_pod("p", settled({"a": guaranteed("700m", "1Gi")}))

    assert simulate(scenario)["status"]["containerStatuses"][0]["restartCount"] == 0
