"""Pods with equal specs are judged each by itself: by their names and annotations, and by what is done with them."""

from __future__ import annotations

from typing import Any

import pytest

from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN
from tests.component.apiserver_fake.test_rules_in_the_server import a_mesh

MIRROR = "kubernetes.io/config.mirror"
COST = "controller.kubernetes.io/pod-deletion-cost"
ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
VOLUMES = [
    {"name": "data", "ephemeral": {"volumeClaimTemplate": CLAIM}},
    {"name": "other", "persistentVolumeClaim": {"claimName": "wrong-data"}},
]
PROFILED = {
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"}}
}
FIELD = "metadata.annotations"


def a_pod(name: str, annotations: Any = None, **spec: Any) -> Any:
    containers = [{"name": "c", "image": "i:1"}]
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": containers, **spec}}


async def refused(call: Any, *args: Any, **more: Any) -> list[str]:
    """Return the fields that a call is refused for."""
    response = await call.try_call(ADMIN, *args, **more)
    return [] if response.is_ok else [cause["field"] for cause in response.error().details["causes"]]


@pytest.mark.parametrize("is_wrong_first", [False, True])
@pytest.mark.parametrize(
    ("spec", "right", "wrong", "path"),
    [
        ({"volumes": VOLUMES}, {}, {}, "spec.volumes[1].persistentVolumeClaim.claimName"),
        ({}, {COST: "7"}, {COST: "+7"}, f"{FIELD}[{COST}]"),
        ({}, {}, {MIRROR: "m"}, f"{FIELD}[{MIRROR}]"),
        ({}, {SECCOMP: "unconfined"}, {SECCOMP: "x"}, f"{FIELD}.{SECCOMP}"),
        ({}, {ARMOR: "unconfined"}, {f"{ARMOR}x": "unconfined"}, f"{FIELD}[{ARMOR}x]"),
        (PROFILED, {SECCOMP: "runtime/default"}, {SECCOMP: "unconfined"}, "spec.securityContext.seccompProfile.type"),
        (PROFILED, {ARMOR: "unconfined"}, {ARMOR: "runtime/default"},
         "spec.containers[0].securityContext.appArmorProfile.type"),
    ],
    ids=["name", "cost", "mirror", "seccomp", "armor", "seccomp beside", "armor beside"],
)  # fmt: skip
def test_new_pods_with_equal_specs_are_judged_by_their_names_and_annotations(
    spec: Any, right: Any, wrong: Any, path: str, is_wrong_first: bool
) -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            for turn in range(2):
                for is_wrong in (is_wrong_first, not is_wrong_first):
                    name = "wrong" if is_wrong else f"right-{turn}"
                    body = a_pod(name, wrong if is_wrong else right, **spec)
                    assert await refused(call, "create", "pods", body=body) == ([path] if is_wrong else [])

    simloop.run(scenario())


@pytest.mark.parametrize("verb", ["update", "patch"])
def test_a_pod_whose_annotations_alone_change_is_judged_by_them(verb: str) -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            await call(ADMIN, "create", "pods", body=a_pod("p"))

            async def change(annotations: Any) -> list[str]:
                if verb == "patch":
                    body, more = {"metadata": {"annotations": annotations}}, {"patch_type": "merge"}
                else:
                    stored = await call(ADMIN, "get", "pods", "p")
                    body, more = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}, {}
                return await refused(call, verb, "pods", "p", body, **more)

            for _ in range(2):
                assert await change({COST: "+7"}) == [f"{FIELD}[{COST}]"]
                assert await change({COST: "7"}) == []

    simloop.run(scenario())


@pytest.mark.parametrize("verb", ["update", "patch"])
def test_a_service_whose_annotations_alone_change_is_judged_by_them(verb: str) -> None:
    hints, mode = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"

    async def scenario() -> None:
        async with a_mesh() as call:
            body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
            stored = await call(ADMIN, "create", "services", body=body)
            notes = {hints: "Auto", mode: "Disabled"}
            changed = {**stored, "metadata": {**stored["metadata"], "annotations": notes}}
            patch = {"metadata": {"annotations": notes}}
            more = {"patch_type": "merge"} if verb == "patch" else {}
            found = await refused(call, verb, "services", "s", patch if more else changed, **more)
            assert found == [f"{FIELD}[{mode}]"]

    simloop.run(scenario())


def test_what_is_right_in_an_update_is_refused_in_a_new_pod_with_that_spec_and_the_other_way_round() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            await call(ADMIN, "create", "pods", body=a_pod("p"))
            debugged = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i:1"}]}}
            for _ in range(2):
                more = {"patch_type": "merge", "subresource": "ephemeralcontainers"}
                assert await refused(call, "patch", "pods", "p", debugged, **more) == []
                spec = (await call(ADMIN, "get", "pods", "p"))["spec"]
                new = {"metadata": {"name": "q"}, "spec": spec}
                assert await refused(call, "create", "pods", body=new) == ["spec.ephemeralContainers"]
            another = a_pod("r", containers=[{"name": "c", "image": "i:2"}], hostname="h")
            assert await refused(call, "create", "pods", body=another) == []
            renamed = {"spec": {**(await call(ADMIN, "get", "pods", "r"))["spec"]}}
            assert await refused(call, "patch", "pods", "p", renamed, patch_type="merge") == ["spec"]

    simloop.run(scenario())
