"""The claim controller: claims from templates, and claims that no pod uses any more (dra-core 4, guarantees 5.3)."""

import pytest

from claim_controller.resourceclaim.claims_from_templates import generate_name
from lab.scenarios.simulation import simloop
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, POD_CLAIM_NAME
from services.api.meta import Key
from tests.component.claim_controller.conftest import World

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu", "namespace": "default"},
    "spec": {"metadata": {"labels": {"made": "yes"}},
             "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}},
}  # fmt: skip
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d.x", "pool": "n1", "device": "a"}]}}


def run(act, **world):
    async def main():
        async with World(**world) as here:
            await act(here)

    simloop.run(main())


async def pod(world, name="p", **spec):
    spec = {"containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "dev", "resourceClaimTemplateName": "gpu"}], **spec}  # fmt: skip
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return await world.admin.create("pods", document)


async def claims(world):
    return (await world.admin.list(CLAIMS, namespace="default"))[0]


async def generated(world, name="p"):
    """Wait until the pod's status names its claim; return that claim."""

    async def named():
        stored = await world.admin.get("pods", Key("default", name))
        statuses = stored.get("status", {}).get("resourceClaimStatuses")
        return statuses and statuses[0]["resourceClaimName"]

    return await world.admin.get(CLAIMS, Key("default", await world.until(named)))


async def grant(world, claim, *pods):
    """Do what the scheduler does: the finalizer, then the allocation with who may use it."""
    key = Key("default", claim["metadata"]["name"])
    await world.scheduler.patch(CLAIMS, key, {"metadata": {"finalizers": [FINALIZER]}})
    consumers = [{"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods]
    status = {"status": {"allocation": ALLOCATION, "reservedFor": consumers}}
    return await world.scheduler.patch(CLAIMS, key, status, subresource="status")


def test_a_pods_claim_is_made_from_its_template_and_named_in_its_status():
    async def act(world):
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        made = await pod(world)

        claim = await generated(world)

        meta = claim["metadata"]
        assert meta["name"].startswith("p-dev-")
        assert (meta["annotations"], meta["labels"]) == ({POD_CLAIM_NAME: "dev"}, {"made": "yes"})
        assert meta["ownerReferences"][0] == {
            "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True,
            "blockOwnerDeletion": True,
        }  # fmt: skip
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        assert claim["spec"]["devices"]["requests"] == [{"name": "r", "exactly": exactly}]

    run(act)


def test_a_template_that_comes_late_is_waited_for_and_missed_aloud():
    async def act(world):
        await pod(world)

        async def missed():
            events = (await world.admin.list("events", namespace="default"))[0]
            return [e["message"] for e in events if e["reason"] == "FailedResourceClaimCreation"]

        assert await world.until(missed) == [
            'PodResourceClaim dev: resource claim template "gpu": resourceclaimtemplate.resource.k8s.io "gpu" not found'
        ]
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        assert await generated(world)

    run(act)


def test_guarantees_d1_a_controller_that_died_after_the_create_makes_no_second_claim():
    async def act(world):
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        world.kill()
        made = await pod(world)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
        early = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": TEMPLATE["spec"]["spec"],
                 "metadata": {"name": "p-dev-early", "namespace": "default", "ownerReferences": [owner],
                              "annotations": {POD_CLAIM_NAME: "dev"}}}  # fmt: skip
        await world.admin.create(CLAIMS, early)
        await world.start()

        claim = await generated(world)

        assert claim["metadata"]["name"] == "p-dev-early"
        assert len(await claims(world)) == 1

    run(act)


@pytest.mark.parametrize("how", ["ended", "deleted"])
def test_a_claim_is_freed_with_its_last_pod_and_then_goes(how):
    async def act(world):
        await world.admin.create("resourceclaimtemplates.resource.k8s.io", TEMPLATE)
        made = await pod(world)
        await grant(world, await generated(world), made)

        if how == "deleted":
            await world.admin.delete("pods", Key("default", "p"), grace_period_s=0)
        else:
            status = {"status": {"phase": "Succeeded"}}
            await world.admin.patch("pods", Key("default", "p"), status, subresource="status")

        async def none():
            return not await claims(world)

        await world.until(none)
        commits = [
            (line.data["type"], line.data.get("subresource", ""))
            for line in world.events.lines
            if line.ev == "store.commit" and line.obj["kind"] == "ResourceClaim"
        ]
        # Made, finalizer, granted; freed in one write. The garbage collector may mark a dead pod's claim meanwhile.
        assert commits[:3] == [("ADDED", ""), ("MODIFIED", ""), ("MODIFIED", "status")]
        assert commits.count(("MODIFIED", "status")) == 2
        if how == "ended":
            assert commits[3:] == [("MODIFIED", "status"), ("MODIFIED", ""), ("DELETED", "")]

    run(act)


def test_guarantees_d2_a_shared_claim_keeps_its_devices_until_the_last_one_left():
    async def act(world):
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": TEMPLATE["spec"]["spec"],
                 "metadata": {"name": "shared", "namespace": "default"}}  # fmt: skip
        stored = await world.admin.create(CLAIMS, claim)
        uses = {"resourceClaims": [{"name": "dev", "resourceClaimName": "shared"}]}
        one, two = await pod(world, "one", **uses), await pod(world, "two", **uses)
        await grant(world, stored, one, two)
        key = Key("default", "shared")

        await world.admin.delete("pods", Key("default", "one"), grace_period_s=0)

        async def left():
            return len((await world.admin.get(CLAIMS, key))["status"].get("reservedFor", ())) == 1

        await world.until(left)
        assert (await world.admin.get(CLAIMS, key))["status"]["allocation"]
        await world.admin.delete("pods", Key("default", "two"), grace_period_s=0)

        async def free():
            found = await world.admin.get(CLAIMS, key)
            return not found["status"] and "finalizers" not in found["metadata"]

        await world.until(free)

    run(act)


def test_guarantees_d4_a_claim_deleted_while_unused_gives_its_devices_back():
    async def act(world):
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": TEMPLATE["spec"]["spec"],
                 "metadata": {"name": "idle", "namespace": "default"}}  # fmt: skip
        await grant(world, await world.admin.create(CLAIMS, claim))

        await world.admin.delete(CLAIMS, Key("default", "idle"))

        async def none():
            return not await claims(world)

        await world.until(none)
        assert not await claims(world)

    run(act)


def test_generated_names_are_cut_so_that_the_suffix_of_the_server_fits():
    assert generate_name("p", "dev") == "p-dev-"
    long = generate_name("a" * 200, "b" * 63)
    assert len(long) <= 57
    assert long.startswith("a")
    assert "-b" in long
    assert generate_name("a" * 26 + ".x", "b" * 29) == "a" * 26 + "-" + "b" * 28
