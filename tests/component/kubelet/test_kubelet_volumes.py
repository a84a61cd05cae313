"""A kubelet that leaves attaching to the attach/detach controller: what it reports, what it waits for, what it says."""

import asyncio

import pytest

from services.api.meta import Key

NODES = ({"name": "n1", "cpu": "4"},)
ON = ("kubelet.enable_controller_attach_detach=true",)
UNIQUE = "kubernetes.io/csi/disk.example.com^h-pv"
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]}


async def storage(w, *, attach_required=True, bound=True):
    """Create driver, volume and claim."""
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
              "spec": {"attachRequired": attach_required}}  # fmt: skip
    await w.admin.create("csidrivers.storage.k8s.io", driver)
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "disk",
            "csi": {"driver": "disk.example.com", "volumeHandle": "h-pv"},
            "claimRef": {"namespace": "default", "name": "db"}}  # fmt: skip
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}
    await w.admin.create("persistentvolumes", volume)
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "volumeName": "pv",
            "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "db"}, "spec": spec}
    await w.admin.create("persistentvolumeclaims", claim, namespace="default")
    if bound:
        await patch_status(w, "persistentvolumeclaims", Key("default", "db"), {"phase": "Bound"})


async def patch_status(w, resource, key, status):
    await w.admin.patch(resource, key, {"status": status}, subresource="status")


async def node(w):
    return await w.admin.get("nodes", Key("", "n1"))


async def until_node(w, condition):
    for _ in range(1200):
        if condition(found := await node(w)):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(found["status"])


async def attach(w):
    await patch_status(w, "nodes", Key("", "n1"), {"volumesAttached": [{"name": UNIQUE, "devicePath": ""}]})


def is_running(pod):
    return pod["status"].get("phase") == "Running"


def test_a_volume_is_reported_in_use_before_it_is_attached_until_its_last_pod_is_over(simulate):
    async def scenario(w):
        await storage(w)
        await w.create("first", spec=CLAIM)
        reported = await until_node(w, lambda n: n["status"].get("volumesInUse"))
        pod = await w.admin.get("pods", Key("default", "first"))
        await attach(w)
        await w.until_pod("first", is_running)
        await w.create("second", spec=CLAIM)
        await w.until_pod("second", is_running)
        await w.admin.delete("pods", Key("default", "first"), grace_period_s=0)
        await asyncio.sleep(20.0)
        kept = await node(w)
        await w.admin.delete("pods", Key("default", "second"), grace_period_s=0)
        return reported, pod, kept, await until_node(w, lambda n: not n["status"].get("volumesInUse"))

    reported, pod, kept, cleared = simulate(scenario, nodes=NODES, switches=ON)

    annotation = "volumes.kubernetes.io/controller-managed-attach-detach"
    assert reported["metadata"]["annotations"][annotation] == "true"
    assert reported["status"]["volumesInUse"] == [UNIQUE]
    assert not reported["status"].get("volumesAttached")
    assert not is_running(pod)
    assert kept["status"]["volumesInUse"] == [UNIQUE], "the second pod mounts it still"
    assert cleared["status"]["volumesAttached"] == [{"name": UNIQUE, "devicePath": ""}], "that is the controller's"


@pytest.mark.parametrize("switches", [ON, ()])
def test_a_driver_that_attaches_nothing_and_a_kubelet_that_attaches_itself_wait_for_no_controller(simulate, switches):
    async def scenario(w):
        await storage(w, attach_required=not switches)
        await w.create("db", spec=CLAIM)
        await w.until_pod("db", is_running)
        return await node(w)

    assert not simulate(scenario, nodes=NODES, switches=switches)["status"].get("volumesInUse")


def test_a_claim_without_a_volume_is_named_at_once(simulate):
    async def scenario(w):
        await storage(w, bound=False)
        await w.create("db", spec=CLAIM)
        await asyncio.sleep(2.0)
        events, _ = await w.admin.list("events", namespace="default")
        return [each["message"] for each in events if each["reason"] == "FailedMount"]

    assert simulate(scenario, nodes=NODES, switches=ON) == [
        (
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
            "failed to process volumes=[data]: error processing PVC default/db: PVC is not bound"
        )
    ]
