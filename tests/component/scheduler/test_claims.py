"""Claims end to end: a real API server and the scheduler, which writes them (dra-core 6)."""

from __future__ import annotations

import msgspec

from services.api.errors import Invalid
from services.api.wire import Response

CLAIMS = "resourceclaims.resource.k8s.io"
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [{"name": "gpu-0"}],
    },
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": "example.com/gpu"},
}


def test_kep_5004_the_claim_of_a_binding_that_failed_is_deleted_and_the_next_attempt_makes_another(play):
    refused = []

    async def refuse_the_first_bind(request, call):
        if request.subresource == "binding" and not refused:
            refused.append(request.name)
            error = Invalid("not now")
            return Response(code=error.code, body=msgspec.json.encode(error.status()))
        return await call(request)

    async def scenario(world):
        await world.node("n1")
        await world.admin.create("deviceclasses.resource.k8s.io", CLASS)
        await world.admin.create("resourceslices.resource.k8s.io", SLICE)
        world.hook = refuse_the_first_bind
        amounts = {"example.com/gpu": "1"}
        await world.pod(
            "p", containers=[{"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}]
        )
        await world.until(world.bound("p"))
        claims, _ = await world.admin.list(CLAIMS, namespace="default")
        made = [
            line for line in world.said("store.commit")
            if line.obj["kind"] == "ResourceClaim" and line.data["type"] == "ADDED"
        ]  # fmt: skip
        metrics = world.scheduler.metrics()
        return await world.get("p"), claims, made, metrics

    pod, claims, made, metrics = play(scenario)

    assert refused == ["p"]
    assert len(made) == 2
    (left,) = claims
    assert left["status"]["reservedFor"][0]["name"] == "p"
    named = pod["status"]["extendedResourceClaimStatus"]
    assert named["resourceClaimName"] == left["metadata"]["name"]
    assert named["requestMappings"][0]["requestName"] == "container-0-request-0"
    created = {name: value for name, value in metrics.items() if name.startswith("scheduler_resourceclaim_creates")}
    assert list(created.values()) == [2]
