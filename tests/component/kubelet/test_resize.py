"""Pods resized in place: an API server and a kubelet in virtual time (acceptance scenarios of kep-1287)."""

import asyncio

import msgspec
import pytest

from scheduler.cache.node_info import requests_of
from services.api.errors import ApiError
from services.api.kinds.pod import Pod
from services.api.meta import Key

ONE_CPU = ({"name": "n1", "cpu": "1", "memory": "4Gi"},)
TWO_CPUS = ({"name": "n1", "cpu": "2", "memory": "4Gi"},)
POLICY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def conditions(pod):
    return {c["type"]: c for c in pod["status"].get("conditions", ()) if c["type"].startswith("PodResize")}


def status(pod, index=0):
    return pod["status"]["containerStatuses"][index]


def allocated(pod, resource="cpu"):
    return status(pod)["allocatedResources"][resource]


def actual(pod, resource="cpu"):
    return status(pod)["resources"]["requests"][resource]


def pending(reason):
    return lambda pod: conditions(pod).get("PodResizePending", {}).get("reason") == reason


def done(value, resource="cpu"):
    return lambda pod: actual(pod, resource) == value and not conditions(pod)


async def make(w, name, requests, limits=None, *, count=1, run="forever", wait=True, **parts):
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    extra = parts.pop("container", {})
    names = ["main", *(f"c{i}" for i in range(1, count))]
    containers = [{"name": n, "image": "i", "resources": resources, **extra} for n in names]
    await w.create(name, run=run, spec={"containers": containers, **parts.pop("spec", {})}, **parts)
    if wait:
        await w.until_pod(name, running)


async def resize(w, name, requests=None, limits=None, container="main"):
    resources = {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}
    body = {"spec": {"containers": [{"name": container, "resources": resources}]}}
    return await w.admin.patch("pods", Key("default", name), body, subresource="resize", patch_type="strategic")


async def annotate(w, name, **values):
    annotations = {f"keplab.dev/{key.replace('_', '-')}": value for key, value in values.items()}
    await w.admin.patch("pods", Key("default", name), {"metadata": {"annotations": annotations}})


async def events(w, name, prefix="Resize"):
    await asyncio.sleep(2)
    items, _ = await w.admin.list_raw("events", namespace="default")
    found = [msgspec.json.decode(bytes(item)) for item in items]
    return [e["reason"] for e in found if e["involvedObject"]["name"] == name and e["reason"].startswith(prefix)]


def counted(w, name):
    return w.process.metrics().get(name, 0)


def scheduler_counts(pod):
    return requests_of(msgspec.convert(pod, Pod)).amounts["cpu"]


def test_kep_1287_01_more_cpu_is_allocated_then_actual_and_nothing_restarts(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m"})
        before = await w.pod("p")
        at = w.clock.now()
        asked = await resize(w, "p", {"cpu": "700m"})
        given = await w.until_pod("p", lambda p: allocated(p) == "700m")
        after = await w.until_pod("p", done("700m"))
        return before, asked, given, after, w.clock.now() - at, await events(w, "p")

    before, asked, given, after, took_s, reported = simulate(
        scenario, nodes=TWO_CPUS, latency=("all=constant:0", "resize=constant:0.2")
    )

    assert took_s <= 1.0
    assert asked["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert actual(given) == "500m"
    assert conditions(given)["PodResizeInProgress"]["observedGeneration"] == asked["metadata"]["generation"]
    assert after["status"]["observedGeneration"] == asked["metadata"]["generation"]
    assert status(after)["restartCount"] == 0
    assert reported == ["ResizeStarted", "ResizeCompleted"]


def test_kep_1287_02_a_resource_that_asks_for_it_restarts_the_container(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m", "memory": "256Mi"}, container={"resizePolicy": POLICY})
        counts, at = [], w.clock.now()
        for desired in ({"memory": "512Mi"}, {"cpu": "600m"}, {"cpu": "700m", "memory": "256Mi"}):
            await resize(w, "p", desired)
            for resource, value in desired.items():
                pod = await w.until_pod("p", done(value, resource))
            counts.append(status(pod)["restartCount"])
        return counts, pod, w.clock.now() - at

    counts, pod, took_s = simulate(scenario, nodes=TWO_CPUS)

    assert counts == [1, 1, 2]
    assert took_s < 5  # it is no crash: nothing backs off
    assert "running" in status(pod)["state"]


def test_kep_1287_03_without_capacity_it_waits_and_the_scheduler_counts_what_is_desired(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await make(w, "q", {"cpu": "500m"})
        await resize(w, "p", {"cpu": "600m"})
        return await w.until_pod("p", pending("Deferred")), await w.pod("q")

    waiting, other = simulate(scenario, nodes=ONE_CPU)

    message = conditions(waiting)["PodResizePending"]["message"]
    assert message == "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
    assert allocated(waiting) == "400m"
    assert scheduler_counts(waiting) + scheduler_counts(other) == 1100


def test_kep_1287_04_capacity_that_comes_is_used_within_a_second(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await make(w, "q", {"cpu": "500m"}, run="forever")
        await resize(w, "p", {"cpu": "600m"})
        await w.until_pod("p", pending("Deferred"))
        await w.delete("q", 0)
        workers = w.agent().kubelet.table.pods
        await w.until(lambda: not any(worker.pod.metadata.name == "q" for worker in workers.values()))
        at = w.clock.now()
        after = await w.until_pod("p", lambda p: allocated(p) == "600m")
        name = 'kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pods_removed"}'
        return after, w.clock.now() - at, counted(w, name)

    _, took_s, accepted = simulate(scenario, nodes=ONE_CPU)

    assert took_s < 1.0
    assert accepted == 1


def test_kep_1287_06_a_resize_that_is_taken_back_waits_no_longer(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await make(w, "q", {"cpu": "500m"})
        await resize(w, "p", {"cpu": "600m"})
        await w.until_pod("p", pending("Deferred"))
        await resize(w, "p", {"cpu": "400m"})
        return await w.until_pod("p", lambda p: not conditions(p)), await events(w, "p")

    reverted, reported = simulate(scenario, nodes=ONE_CPU)

    assert allocated(reverted) == "400m"
    assert reported == ["ResizeDeferred"]


def test_kep_1287_05_what_can_never_fit_is_not_tried_again_until_it_changes(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await resize(w, "p", {"cpu": "1200m"})
        refused = await w.until_pod("p", pending("Infeasible"))
        name = 'kubelet_pod_infeasible_resizes_total{reason_detail="insufficient_node_allocatable"}'
        await asyncio.sleep(600)
        tries = counted(w, name), counted(w, 'kubelet_pod_pending_resizes{reason="infeasible"}')
        await resize(w, "p", {"cpu": "600m"})
        return refused, tries, await w.until_pod("p", done("600m"))

    refused, tries, after = simulate(scenario, nodes=ONE_CPU, switches=("resize.feasibility=node",))

    message = conditions(refused)["PodResizePending"]["message"]
    assert message == "Node didn't have enough capacity: cpu, requested: 1200, capacity: 1000"
    assert scheduler_counts(refused) == 400
    assert tries == (1, 1)
    assert allocated(after) == "600m"


def test_kep_1287_07_priority_decides_who_gets_the_capacity(simulate):
    async def scenario(w):
        for name, value in (("one", 100), ("two", 200)):
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            await w.admin.create("priorityclasses.scheduling.k8s.io", {**body, "value": value})
        await make(w, "q", {"cpu": "300m"})
        await make(w, "d1", {"cpu": "200m"}, spec={"priorityClassName": "one"})
        await make(w, "d2", {"cpu": "200m"}, spec={"priorityClassName": "two"})
        await make(w, "d3", {"cpu": "300m"}, {"cpu": "400m"})
        for name in ("d1", "d2"):
            await resize(w, name, {"cpu": "500m"})
            await w.until_pod(name, pending("Deferred"))
        await w.delete("q", 0)
        await w.until_pod("d2", done("500m"))
        await resize(w, "d3", limits={"cpu": "500m"})
        await w.until_pod("d3", lambda p: status(p)["resources"]["limits"] == {"cpu": "500m"} and not conditions(p))
        await asyncio.sleep(5)
        return await w.pod("d1")

    assert pending("Deferred")(simulate(scenario, nodes=ONE_CPU))


def test_kep_1287_08_a_resize_that_does_not_fit_holds_up_no_other(simulate):
    async def scenario(w):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "two"}}
        await w.admin.create("priorityclasses.scheduling.k8s.io", {**body, "value": 200})
        await make(w, "q", {"cpu": "100m"})
        await make(w, "d1", {"cpu": "100m"}, spec={"priorityClassName": "two"})
        await make(w, "d2", {"cpu": "800m"})
        await resize(w, "d1", {"cpu": "1"})
        await resize(w, "d2", {"cpu": "900m"})
        await w.until_pod("d2", pending("Deferred"))
        await w.delete("q", 0)
        await w.until_pod("d2", done("900m"))
        return await w.pod("d1")

    assert pending("Deferred")(simulate(scenario, nodes=ONE_CPU))


def test_kep_1287_10_one_frees_capacity_for_the_next_three_times_over(simulate):
    async def scenario(w):
        await make(w, "p1", {"cpu": "100m", "memory": "1Gi"})
        await make(w, "p2", {"cpu": "400m", "memory": "2Gi"})
        await make(w, "p3", {"cpu": "300m", "memory": "512Mi"})
        await make(w, "p4", {"cpu": "200m", "memory": "512Mi"})
        # Each waits for what the one before it will give back; the longest waiting is asked first.
        await resize(w, "p4", {"cpu": "400m"})
        await w.until_pod("p4", pending("Deferred"))
        await asyncio.sleep(2)
        await resize(w, "p3", {"cpu": "100m", "memory": "2Gi"})
        await w.until_pod("p3", pending("Deferred"))
        await asyncio.sleep(2)
        await resize(w, "p2", {"cpu": "500m", "memory": "512Mi"})
        await w.until_pod("p2", pending("Deferred"))
        await w.delete("p1", 0)
        for name, value in (("p2", "500m"), ("p3", "100m"), ("p4", "400m")):
            await w.until_pod(name, done(value))
        return [
            counted(w, f'kubelet_pod_deferred_accepted_resizes_total{{retry_trigger="{trigger}"}}')
            for trigger in ("pods_removed", "pod_resized")
        ]

    assert simulate(scenario, nodes=ONE_CPU) == [1, 2]


def test_kep_1287_13_memory_in_use_is_not_taken_away(simulate):
    async def scenario(w):
        await make(w, "p", {"memory": "256Mi"}, {"memory": "512Mi"})
        await annotate(w, "p", memory="400Mi")
        await resize(w, "p", {"memory": "128Mi"}, {"memory": "256Mi"})
        stuck = await w.until_pod("p", lambda p: conditions(p).get("PodResizeInProgress", {}).get("reason") == "Error")
        await asyncio.sleep(60)
        still = await w.pod("p")
        await annotate(w, "p", memory="100Mi")
        after = await w.until_pod("p", done("128Mi", "memory"))
        return stuck, still, after, await events(w, "p")

    stuck, still, after, reported = simulate(scenario)

    assert conditions(stuck)["PodResizeInProgress"]["message"] == (
        "cannot decrease memory limits: [attempting to set pod memory limit (268435456) below current usage "
        '(419430400), attempting to set container "main" memory limit (268435456) below current usage (419430400)]'
    )
    assert allocated(still, "memory") == "128Mi"
    assert actual(still, "memory") == "256Mi"
    assert status(after)["resources"]["limits"] == {"memory": "256Mi"}
    assert reported == ["ResizeStarted", "ResizeError", "ResizeCompleted"]


def test_kep_1287_13_memory_in_use_by_its_curve_is_not_taken_away_until_the_curve_falls(simulate):
    async def scenario(w):
        reported = {"keplab.dev/usage": "memory 400Mi; memory 100Mi at 60s"}
        await make(w, "p", {"memory": "256Mi"}, {"memory": "512Mi"}, annotations=reported)
        at = w.clock.now()
        await resize(w, "p", {"memory": "128Mi"}, {"memory": "256Mi"})
        stuck = await w.until_pod("p", lambda p: conditions(p).get("PodResizeInProgress", {}).get("reason") == "Error")
        after = await w.until_pod("p", done("128Mi", "memory"), limit_s=100)
        name = "kubelet_pod_resize_duration_milliseconds_count"
        attempts = [counted(w, f'{name}{{success="{word}"}}') for word in ("false", "true")]
        return stuck, after, w.clock.now() - at, attempts

    stuck, after, took_s, attempts = simulate(scenario)

    assert "below current usage (419430400)" in conditions(stuck)["PodResizeInProgress"]["message"]
    assert 50 < took_s < 75
    assert status(after)["restartCount"] == 0
    assert attempts[0] >= 5
    assert attempts[1] == 1


def test_kep_1287_14_a_call_that_fails_is_reported_and_made_again(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m"})
        await annotate(w, "p", resize_fails="1")
        await resize(w, "p", {"cpu": "700m"})
        failed = await w.until_pod("p", lambda p: conditions(p).get("PodResizeInProgress", {}).get("reason") == "Error")
        at = w.clock.now()
        await w.until_pod("p", done("700m"))
        return failed, w.clock.now() - at, await events(w, "p")

    failed, took_s, reported = simulate(scenario)

    assert "the runtime refused" in conditions(failed)["PodResizeInProgress"]["message"]
    assert took_s < 12
    assert reported == ["ResizeStarted", "ResizeError", "ResizeCompleted"]


def test_kep_1287_15_a_deferred_resize_keeps_its_time_over_a_restart(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await make(w, "q", {"cpu": "500m"})
        await resize(w, "p", {"cpu": "600m"})
        before = await w.until_pod("p", pending("Deferred"))
        await asyncio.sleep(5)
        w.kill_kubelet()
        await asyncio.sleep(10)
        await w.start_kubelet()
        await asyncio.sleep(5)
        after = await w.pod("p")
        used = w.agent().kubelet.ledger.used["cpu"]
        await w.delete("q", 0)
        return before, after, used, await w.until_pod("p", done("600m"))

    before, after, used, _ = simulate(scenario, nodes=ONE_CPU)

    assert conditions(after) == conditions(before)
    assert used == 900


def test_kep_1287_15_what_was_allocated_and_not_actuated_is_done_after_a_restart(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m"})
        await resize(w, "p", {"cpu": "700m"})
        await w.until_pod("p", lambda p: "PodResizeInProgress" in conditions(p))
        w.kill_kubelet()
        await resize(w, "p", {"cpu": "3"})
        await w.start_kubelet()
        waiting = await w.until_pod("p", lambda p: actual(p) == "700m" and pending("Infeasible")(p))
        return waiting, w.agent().kubelet.ledger.used["cpu"]

    waiting, used = simulate(
        scenario,
        nodes=TWO_CPUS,
        switches=("resize.feasibility=node",),
        latency=("all=constant:0", "resize=constant:30"),
    )

    assert allocated(waiting) == "700m"
    assert status(waiting)["restartCount"] == 0
    assert used == 700


def test_kep_1287_16_a_pod_bound_by_an_old_picture_loses_to_a_resize(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "300m"})
        w.network.profile("kubelet/h0").latency_min_s = w.network.profile("kubelet/h0").latency_max_s = 2.0
        await resize(w, "p", {"cpu": "700m"})
        await asyncio.sleep(0.5)
        seen = await w.pod("p")
        await make(w, "n", {"cpu": "500m"}, wait=False)
        return seen, await w.until_pod("n", lambda p: p["status"]["phase"] == "Failed")

    seen, lost = simulate(scenario, nodes=ONE_CPU)

    assert allocated(seen) == "300m"
    assert lost["status"]["reason"] == "OutOfcpu"


def test_kep_1287_18_every_three_minutes_what_waits_is_tried_again(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await make(w, "q", {"cpu": "500m"})
        await resize(w, "p", {"cpu": "600m"})
        await w.until_pod("p", pending("Deferred"))
        at = w.clock.now()
        # Capacity that no pod event reports.
        w.agent().kubelet.ledger.allocatable["cpu"] = 1100
        await w.until_pod("p", done("600m"), limit_s=200)
        name = 'kubelet_pod_deferred_accepted_resizes_total{retry_trigger="periodic_retry"}'
        return w.clock.now() - at, counted(w, name)

    took_s, accepted = simulate(scenario, nodes=ONE_CPU)

    assert 175 < took_s < 185
    assert accepted == 1


def test_kep_1287_19_a_pods_own_limit_concerns_the_containers_without_one(simulate):
    async def scenario(w):
        level = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}}
        own = {"limits": {"memory": "256Mi"}}
        containers = [
            {"name": "main", "image": "i", "resizePolicy": POLICY},
            {"name": "c1", "image": "i", "resizePolicy": POLICY, "resources": own},
        ]
        await w.create("p", run="forever", spec={"containers": containers, "resources": level})
        await w.until_pod("p", running)
        body = {"spec": {"resources": {"limits": {"memory": "2Gi"}}}}
        await w.admin.patch("pods", Key("default", "p"), body, subresource="resize", patch_type="strategic")
        return await w.until_pod(
            "p", lambda p: p["status"]["resources"]["limits"]["memory"] == "2Gi" and not conditions(p)
        )

    pod = simulate(scenario)

    assert [c["restartCount"] for c in pod["status"]["containerStatuses"]] == [1, 0]
    assert pod["status"]["allocatedResources"] == {"cpu": "1", "memory": "256Mi"}  # the memory its containers ask for


def test_kep_1287_20_static_cpus_refuse_a_guaranteed_pods_cpu(simulate):
    async def scenario(w):
        size = {"cpu": "1", "memory": "256Mi"}
        await make(w, "p", size, size)
        await resize(w, "p", {"cpu": "2"}, {"cpu": "2"})
        refused = await w.until_pod("p", pending("Infeasible"))
        smaller = {"cpu": "1", "memory": "512Mi"}
        await resize(w, "p", smaller, smaller)
        await w.until_pod("p", done("512Mi", "memory"))
        name = 'kubelet_pod_infeasible_resizes_total{reason_detail="guaranteed_pod_cpu_manager_static_policy"}'
        return refused, counted(w, name)

    refused, count = simulate(scenario, nodes=({"name": "n1", "cpu": "4", "cpuPolicy": "static"},))

    assert "CPU Manager policy" in conditions(refused)["PodResizePending"]["message"]
    assert count == 1


def test_kep_1287_section_5_a_container_that_may_swap_keeps_its_memory_request(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "1", "memory": "256Mi"})
        await resize(w, "p", {"memory": "512Mi"})
        refused = await w.until_pod("p", pending("Infeasible"))
        await resize(w, "p", {"cpu": "2", "memory": "256Mi"})
        await w.until_pod("p", done("2"))
        return refused, counted(w, 'kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"}')

    refused, count = simulate(scenario, nodes=({"name": "n1", "cpu": "4", "swapBehavior": "LimitedSwap"},))

    message = "In-place resize of containers with swap is not supported."
    assert conditions(refused)["PodResizePending"]["message"] == message
    assert count == 1


def test_a_resize_during_a_resize_is_carried_out_last(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m"})
        for cpu in ("600m", "700m", "800m"):
            await resize(w, "p", {"cpu": cpu})
            await asyncio.sleep(0.5)
        return await w.until_pod("p", done("800m"))

    pod = simulate(scenario, nodes=TWO_CPUS, latency=("all=constant:0", "resize=constant:1"))

    assert allocated(pod) == "800m"


def test_a_pod_resized_before_it_runs_starts_with_its_new_size(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "500m"}, wait=False)
        await asyncio.sleep(1)
        await resize(w, "p", {"cpu": "700m"})
        return await w.until_pod("p", running), await w.until_pod("p", done("700m"))

    running_pod, pod = simulate(scenario, nodes=TWO_CPUS, latency=("all=constant:0", "mount=constant:5"))

    assert actual(running_pod) == "700m"
    assert status(pod)["restartCount"] == 0


def test_a_container_that_crashes_comes_back_with_what_was_allocated(simulate):
    async def scenario(w):
        await make(w, "p", {"memory": "256Mi"}, {"memory": "512Mi"}, run="crash after 60s")
        await annotate(w, "p", memory="400Mi")
        await resize(w, "p", {"memory": "128Mi"}, {"memory": "256Mi"})
        return await w.until_pod("p", lambda p: status(p)["restartCount"] == 1 and not conditions(p), limit_s=200)

    pod = simulate(scenario)

    assert status(pod)["resources"]["limits"] == {"memory": "256Mi"}


def test_a_critical_pods_resize_evicts_a_lower_one(simulate):
    async def scenario(w):
        await make(w, "q", {"cpu": "500m"})
        await make(w, "p", {"cpu": "400m"}, spec={"priorityClassName": "system-node-critical"})
        await resize(w, "p", {"cpu": "600m"})
        return await w.until_pod("p", done("600m")), await w.pod("q")

    _, victim = simulate(scenario, nodes=ONE_CPU)

    assert victim["status"]["phase"] == "Failed"
    assert victim["status"]["reason"] == "Preempting"


def test_a_kubelet_may_not_resize_and_may_report_it(simulate):
    from services.api.identity import node_identity

    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        body = msgspec.json.encode(
            {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
        )
        where = {"resource": "pods", "namespace": "default", "name": "p"}
        answer = await w.call(
            node_identity("n1"), verb="patch", subresource="resize", patch_type="strategic", body=body, **where
        )
        with pytest.raises(ApiError):
            raise answer.error()
        return answer.code

    assert simulate(scenario) == 403


def test_what_another_writer_says_of_a_resize_is_taken_back(simulate):
    async def scenario(w):
        await make(w, "p", {"cpu": "400m"})
        await asyncio.sleep(1)
        said = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
        body = {"status": {"conditions": [said]}}
        await w.admin.patch("pods", Key("default", "p"), body, subresource="status", patch_type="strategic")
        return await w.until_pod("p", lambda p: not conditions(p))

    assert allocated(simulate(scenario)) == "400m"


def test_a_sidecar_gives_what_the_main_container_takes(simulate):
    async def scenario(w):
        side = {
            "name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "600m"}},
        }  # fmt: skip
        await make(w, "p", {"cpu": "400m"}, spec={"initContainers": [side]})
        body = {
            "spec": {
                "initContainers": [{"name": "side", "resources": {"requests": {"cpu": "100m"}}}],
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "900m"}}}],
            }
        }
        await w.admin.patch("pods", Key("default", "p"), body, subresource="resize", patch_type="strategic")
        return await w.until_pod("p", done("900m"))

    pod = simulate(scenario, nodes=ONE_CPU)

    [side] = pod["status"]["initContainerStatuses"]
    assert side["resources"] == {"requests": {"cpu": "100m"}}
    assert side["allocatedResources"] == {"cpu": "100m"}
    assert side["restartCount"] == status(pod)["restartCount"] == 0
