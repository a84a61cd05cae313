"""Pods that refer to objects: what is said while one is missing, when it is looked for again, and what ends the wait."""

import asyncio
import base64

import pytest

from lab.scenarios.simulation.network import LinkFaults
from services.api.meta import Key

RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"
MOUNT = 'MountVolume.SetUp failed for volume "v" : '
CLAIM = (
    "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: "
)
NO_CLAIM = f"{CLAIM}error processing PVC default/none: failed to fetch PVC from API server: "
NO_DRIVER = (
    "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: "
    "driver name disk.example.com not found in the list of registered CSI drivers"
)


async def keep(w, resource, name, **content):
    kind = {"configmaps": "ConfigMap", "secrets": "Secret"}[resource]
    document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}
    await w.admin.create(resource, document, namespace="default")


def mounting(**source):
    """A pod with one volume, which its container mounts."""
    mounts = [{"name": "v", "mountPath": "/v"}]
    volume = {"name": "v", **source}
    return {"containers": [{"name": "main", "image": "app:1", "volumeMounts": mounts}], "volumes": [volume]}


def projecting(*sources):
    return mounting(projected={"sources": list(sources)})


def reading(*env, **container):
    """A pod whose container has these variables."""
    return {"containers": [{"name": "main", "image": "app:1", "env": list(env), **container}]}


def variable(name="A", **source):
    return {"name": name, "valueFrom": source}


def waiting(pod):
    shown = pod["status"].get("containerStatuses") or [{"state": {}}]
    return shown[0]["state"].get("waiting") or {}


def is_running(pod):
    return pod["status"].get("phase") == "Running"


async def event_texts(w, reason):
    """What was said for that reason, each text with how often."""
    events, _ = await w.admin.list("events", namespace="default")
    return {each["message"]: each.get("count", 1) for each in events if each["reason"] == reason}


async def objects(w):
    await keep(w, "configmaps", "settings", data={"colour": "blue"}, binaryData={"blob": "AAA="})
    await keep(w, "secrets", "login", data={"password": base64.b64encode(b"hunter2").decode()})


def key(name, key, **more):
    return {"name": name, "key": key, **more}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (reading(variable(configMapKeyRef=key("none", "x"))), 'configmap "none" not found'),
        (reading(variable(secretKeyRef=key("none", "x"))), 'secret "none" not found'),
        (
            reading(variable(configMapKeyRef=key("settings", "size"))),
            "couldn't find key size in ConfigMap default/settings",
        ),
        (
            reading(variable(configMapKeyRef=key("settings", "blob"))),
            "couldn't find key blob in ConfigMap default/settings",
        ),
        (reading(variable(secretKeyRef=key("login", "user"))), "couldn't find key user in Secret default/login"),
        (reading(envFrom=[{"configMapRef": {"name": "none"}}]), 'configmap "none" not found'),
        (reading(envFrom=[{"secretRef": {"name": "none"}}]), 'secret "none" not found'),
        (
            reading(variable(secretKeyRef=key("one", "x")), envFrom=[{"configMapRef": {"name": "two"}}]),
            'configmap "two" not found',
        ),
        (
            reading(variable(resourceFieldRef={"containerName": "none", "resource": "limits.cpu"})),
            "container none not found",
        ),
    ],
)
def test_a_container_whose_variables_cannot_be_had_waits_and_says_which(simulate, spec, text):
    async def scenario(w):
        await objects(w)
        await w.create("p", spec=spec)
        pod = await w.until_pod("p", lambda p: waiting(p).get("message"))
        await asyncio.sleep(0.1)
        return waiting(pod), await event_texts(w, "Failed")

    state, events = simulate(scenario)

    assert state == {"reason": "CreateContainerConfigError", "message": text}
    assert events == {f"Error: {text}": 1}


@pytest.mark.parametrize(
    "spec",
    [
        reading(
            variable(configMapKeyRef=key("none", "x", optional=True)),
            variable("B", secretKeyRef=key("login", "none", optional=True)),
            variable("C", configMapKeyRef=key("settings", "colour")),
            envFrom=[{"configMapRef": {"name": "none", "optional": True}}, {"secretRef": {"name": "login"}}],
        ),
        mounting(secret={"secretName": "none", "optional": True}),
        mounting(configMap={"name": "settings", "optional": True, "items": [{"key": "none", "path": "p"}]}),
        mounting(configMap={"name": "settings", "items": [{"key": "blob", "path": "p"}]}),
        projecting({"secret": {"name": "none", "optional": True}}, {"configMap": {"name": "settings"}}),
        projecting({"configMap": {"name": "kube-root-ca.crt"}}, {"serviceAccountToken": {"path": "token"}}),
        {
            "containers": [{"name": "main", "image": "a:1"}],
            "volumes": [{"name": "v", "secret": {"secretName": "none"}}],
        },
    ],
)
def test_what_is_optional_there_or_not_mounted_holds_nothing_up(simulate, spec):
    async def scenario(w):
        await objects(w)
        await w.create("p", spec=spec)
        await w.until_pod("p", is_running, 5.0)
        return await event_texts(w, "FailedMount")

    assert simulate(scenario) == {}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (mounting(secret={"secretName": "none"}), f'{MOUNT}secret "none" not found'),
        (mounting(configMap={"name": "none"}), f'{MOUNT}configmap "none" not found'),
        (
            mounting(configMap={"name": "settings", "items": [{"key": "size", "path": "s"}]}),
            f"{MOUNT}references non-existent config key: size",
        ),
        (
            mounting(secret={"secretName": "login", "items": [{"key": "user", "path": "u"}]}),
            f"{MOUNT}references non-existent secret key: user",
        ),
        (projecting({"secret": {"name": "none"}}), f'{MOUNT}secret "none" not found'),
        (
            projecting({"secret": {"name": "one"}}, {"configMap": {"name": "two"}}),
            f'{MOUNT}[secret "one" not found, configmap "two" not found]',
        ),
        (mounting(csi={"driver": "disk.example.com"}), MOUNT + NO_DRIVER),
        (mounting(persistentVolumeClaim={"claimName": "none"}), f'{NO_CLAIM}persistentvolumeclaims "none" not found'),
        (
            mounting(
                downwardAPI={
                    "items": [{"path": "cpu", "resourceFieldRef": {"containerName": "none", "resource": "limits.cpu"}}]
                }
            ),
            f"{MOUNT}container none not found",
        ),
    ],
)
def test_a_volume_whose_source_cannot_be_had_is_named_with_what_is_missing(simulate, spec, text):
    async def scenario(w):
        await objects(w)
        await w.create("p", spec=spec)
        await asyncio.sleep(0.3)
        return waiting(await w.pod("p")), await event_texts(w, "FailedMount")

    state, events = simulate(scenario)

    assert state == {"reason": "ContainerCreating"}
    assert events == {text: 1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"phase": "Pending"}, "PVC is not bound"),
        ({"phase": "Lost"}, "PVC is not bound"),
        ({"deleted": True}, "PVC is being deleted"),
        ({"phase": "Bound"}, "failed to fetch PV pv from API server: node may only act on objects it owns"),
    ],
)
def test_a_claim_without_a_volume_that_could_be_mounted_says_why(simulate, change, text):
    async def scenario(w):
        metadata = {"name": "db", "finalizers": ["kubernetes.io/pvc-protection"]}
        spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        await w.admin.create("persistentvolumeclaims", claim, namespace="default")
        name, status = Key("default", "db"), {"status": {"phase": change.get("phase", "Bound")}}
        await w.admin.patch("persistentvolumeclaims", name, status, subresource="status")
        if change.get("deleted"):
            await w.admin.delete("persistentvolumeclaims", name)
        await w.create("p", spec=mounting(persistentVolumeClaim={"claimName": "db"}))
        await asyncio.sleep(0.3)
        return await event_texts(w, "FailedMount")

    assert simulate(scenario) == {f"{CLAIM}error processing PVC default/db: {text}": 1}


def test_a_volume_is_tried_after_half_a_second_and_then_after_twice_as_long_each_time(simulate):
    async def scenario(w):
        await w.create("p", spec=mounting(secret={"secretName": "login"}))
        seen = []
        for at in (0.3, 1.0, 2.5, 6.0, 14.0, 60.0):
            await asyncio.sleep(at - sum(seen and [seen[-1][0]]))
            seen.append((at, sum((await event_texts(w, "FailedMount")).values())))
        await objects(w)
        pod = await w.until_pod("p", is_running, 10.0)
        return [count for _, count in seen], pod

    counts, _ = simulate(scenario)

    assert counts == [1, 2, 3, 4, 5, 7]  # tries at 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5 s


def test_a_wait_for_volumes_is_given_up_after_two_minutes_and_goes_on_with_the_next_sync(simulate):
    async def scenario(w):
        await w.create("p", spec=mounting(secret={"secretName": "login"}))
        began = w.clock.now()
        await asyncio.sleep(125.0)
        await objects(w)
        await w.until_pod("p", is_running, 30.0)
        return w.clock.now() - began, await event_texts(w, "FailedMount")

    took_s, events = simulate(scenario)

    assert 133.0 < took_s < 139.0
    assert list(events) == [f'{MOUNT}secret "login" not found']


def test_variables_are_looked_for_again_with_each_sync_of_the_pod(simulate):
    async def scenario(w):
        await w.create("p", spec=reading(envFrom=[{"secretRef": {"name": "login"}}]))
        await w.until_pod("p", lambda p: waiting(p).get("reason") == "CreateContainerConfigError")
        began = w.clock.now()
        await objects(w)
        pod = await w.until_pod("p", is_running, 20.0)
        return w.clock.now() - began, pod

    took_s, pod = simulate(scenario)

    assert 9.9 < took_s < 15.1
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_container_that_is_restarted_after_its_object_was_deleted_waits(simulate):
    async def scenario(w):
        await objects(w)
        await w.create("p", spec=reading(variable(configMapKeyRef=key("settings", "colour"))), run="crash after 5s")
        await w.until_pod("p", is_running)
        await w.admin.delete("configmaps", Key("default", "settings"))
        pod = await w.until_pod("p", waiting, 30.0)
        await keep(w, "configmaps", "settings", data={"colour": "red"})
        again = await w.until_pod("p", lambda p: not waiting(p), 30.0)
        return pod, again

    pod, again = simulate(scenario)

    assert waiting(pod) == {"reason": "CreateContainerConfigError", "message": 'configmap "settings" not found'}
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert again["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_kubelet_that_is_cut_off_starts_a_container_again_with_what_it_knew(simulate):
    async def scenario(w):
        await objects(w)
        spec = reading(variable(configMapKeyRef=key("settings", "colour")))
        await w.create("p", spec=spec, run="exit 1 after 30s")
        await w.until_pod("p", is_running)
        w.network.profile("kubelet/h0").faults = LinkFaults(cut="requests")
        await w.until(lambda: next(iter(w.agent().machines())).containers[0].restarts == 1, 120.0)
        return next(iter(w.agent().machines())).containers[0].is_running

    assert simulate(scenario)


def test_a_kubelet_that_is_cut_off_says_that_it_never_saw_the_object(simulate):
    async def scenario(w):
        await objects(w)
        await w.create("p", spec=reading(envFrom=[{"secretRef": {"name": "login"}}]), run="pull 20s")
        await asyncio.sleep(5.0)
        w.network.profile("kubelet/h0").faults = LinkFaults(cut="requests")
        container = next(iter(w.agent().machines())).containers[0]
        await w.until(lambda: bool(container.waiting_reason), 120.0)
        said = container.waiting_reason, container.waiting_message
        w.network.profile("kubelet/h0").faults = LinkFaults()
        await w.until_pod("p", is_running, 60.0)
        return said

    text = "failed to sync secret cache: timed out waiting for the condition"
    assert simulate(scenario) == ("CreateContainerConfigError", text)


@pytest.mark.parametrize(
    "spec", [mounting(secret={"secretName": "x"}), reading(envFrom=[{"secretRef": {"name": "x"}}])]
)
def test_a_pod_that_waits_ends_at_once_when_it_is_deleted(simulate, spec):
    async def scenario(w):
        await w.create("p", spec=spec)
        await asyncio.sleep(3.0)
        await w.delete("p")
        began = w.clock.now()
        await w.until(lambda: not list(w.agent().machines()))
        await w.until_pod("p", lambda pod: pod is None)
        return w.clock.now() - began

    assert simulate(scenario) < 1.0


def test_a_restarted_kubelet_goes_on_waiting(simulate):
    async def scenario(w):
        await w.create("p", spec=mounting(secret={"secretName": "login"}))
        await asyncio.sleep(5.0)
        w.kill_kubelet()
        await w.start_kubelet()
        await objects(w)
        await w.until_pod("p", is_running, 20.0)
        return await event_texts(w, "FailedMount")

    assert list(simulate(scenario)) == [f'{MOUNT}secret "login" not found']


def test_a_pod_that_waits_in_vain_for_its_volumes_is_unbound_where_that_is_configured(simulate):
    async def scenario(w):
        await w.create("p", spec=mounting(secret={"secretName": "login"}))
        pod = await w.until_pod("p", lambda p: not p["spec"].get("nodeName"), 400.0)
        return pod["status"]["unbindHistory"][0]["reason"]

    on = ("PodUnbinding=true", "unbind.reasons=FailedMount", "kubelet.on_reject=unbind")
    assert simulate(scenario, switches=on) == "FailedMount"


def test_pull_secrets_that_are_missing_are_a_warning_and_no_more(simulate):
    async def scenario(w):
        await objects(w)
        names = [{"name": name} for name in ("one", "login", "two")]
        await w.create("p", spec={"imagePullSecrets": names})
        await w.until_pod("p", is_running, 5.0)
        await asyncio.sleep(0.1)
        return await event_texts(w, "FailedToRetrieveImagePullSecret")

    text = "Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed."
    assert simulate(scenario) == {text: 1}


def test_a_pod_whose_runtime_class_is_gone_gets_no_sandbox_until_it_is_back(simulate):
    async def scenario(w):
        fast = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "fast"}, "handler": "fast"}
        await w.admin.create(RUNTIME_CLASSES, fast)
        uid = await w.create("p", spec={"runtimeClassName": "fast"}, bind=False)
        await w.admin.delete(RUNTIME_CLASSES, Key("", "fast"))
        await w.scheduler.bind(Key("default", "p"), uid, "n1")
        await asyncio.sleep(1.0)
        said = await event_texts(w, "FailedCreatePodSandBox")
        await w.admin.create(RUNTIME_CLASSES, fast)
        await w.until_pod("p", is_running, 20.0)
        return said

    assert simulate(scenario) == {'Failed to create pod sandbox: runtimeclass.node.k8s.io "fast" not found': 1}


def test_a_driver_that_is_registered_makes_volumes_of_pods(simulate):
    async def scenario(w):
        driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"}}
        await w.create("p", spec=mounting(csi={"driver": "disk.example.com"}))
        await asyncio.sleep(1.0)
        await w.admin.create("csidrivers.storage.k8s.io", {**driver, "spec": {"volumeLifecycleModes": ["Ephemeral"]}})
        await w.until_pod("p", is_running, 10.0)

    simulate(scenario)


def test_an_object_is_read_once_for_pods_that_start_together_and_forgotten_with_the_last_of_them(simulate):
    async def scenario(w):
        await objects(w)
        for name in "abc":
            await w.create(name, cpu="", spec=mounting(configMap={"name": "settings"}))
            await w.until_pod(name, is_running, 5.0)
        manager = w.agent().kubelet.references
        reads = len(manager._known)
        for name in "abc":
            await w.delete(name, 0)
        await w.until(lambda: not list(w.agent().machines()))
        return reads, dict(manager._known), dict(manager._users)

    assert simulate(scenario) == (1, {}, {})


def test_a_command_prints_the_variables_that_its_container_was_started_with(simulate):
    async def scenario(w):
        await objects(w)
        spec = reading(
            variable("CPU", resourceFieldRef={"resource": "limits.cpu"}),
            variable("MEMORY", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
            variable("NAME", fieldRef={"fieldPath": "metadata.name"}),
            variable("NODE", fieldRef={"fieldPath": "spec.nodeName"}),
            envFrom=[{"secretRef": {"name": "login"}}, {"prefix": "my_", "configMapRef": {"name": "settings"}}],
            command=["env"],
        )
        await w.create("p", cpu="", spec={**spec, "restartPolicy": "Never"})
        await w.until_pod("p", lambda p: p["status"].get("phase") == "Succeeded", 10.0)
        run = w.agent().run_of("default", "p", "main", previous=False)
        return {line.text.strip() for line in run.lines}

    wanted = {"CPU=4", "MEMORY=2048", "NAME=p", "NODE=n1", "password=hunter2", "my_colour=blue"}
    assert wanted <= simulate(scenario, nodes=({"name": "n1", "cpu": "4", "memory": "2Gi"},))
