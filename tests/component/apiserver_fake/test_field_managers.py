"""Server-side apply and `managedFields` through the real server: who has which fields (KEP-555)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN, SCHEDULER, controller_identity, node_identity
from tests.component.apiserver_fake.test_rules_in_the_server import POD, a_mesh

OUTSIDE = {"field_validation": "Warn"}
LABELS = {"app": "web"}


def a_deployment(*ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i:1", "ports": [*ports], "env": [{"name": "A", "value": "1"}]}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": LABELS},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def a_service(*ports: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": LABELS, "ports": [*ports]},
    }


class Client:
    """kubectl's side of the server."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def try_apply(self, resource: str, document: Any, manager: str = "kubectl", **more: Any) -> Any:
        name = document["metadata"]["name"]
        return await self.call.try_call(
            ADMIN, "patch", resource, name, document, patch_type="apply", field_manager=manager, **OUTSIDE, **more
        )

    async def apply(self, *args: Any, **more: Any) -> Any:
        return msgspec.json.decode((await self.try_apply(*args, **more)).unwrap().body)

    async def write(self, verb: str, resource: str, name: str, body: Any, manager: str = "kubectl", **more: Any) -> Any:
        return await self.call(ADMIN, verb, resource, name, body, field_manager=manager, **{**OUTSIDE, **more})


def fields(document: Any, manager: str, subresource: str = "") -> Any:
    for each in document["metadata"]["managedFields"]:
        if (each["manager"], each.get("subresource", "")) == (manager, subresource):
            return each["fieldsV1"]
    return None


def managers(document: Any) -> list[tuple[str, str, str]]:
    entries = document["metadata"].get("managedFields", [])
    return [(each["manager"], each["operation"], each.get("subresource", "")) for each in entries]


@pytest.mark.parametrize(
    ("resource", "document"),
    [
        ("deployments.apps", a_deployment({"name": "http", "containerPort": 80}, {"name": "m", "containerPort": 81})),
        ("deployments.apps", a_deployment({"containerPort": 80}, {"containerPort": 81})),
        ("deployments.apps", a_deployment({"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"})),
        ("services", a_service({"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "http"})),
        ("services", a_service({"port": 80})),
    ],
)
def test_applying_the_same_twice_changes_nothing(resource: str, document: Any) -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            first = await client.try_apply(resource, document)
            again = await client.try_apply(resource, document)
            assert (first.code, again.code) == (201, 200)
            assert (again.rv, again.body) == (first.rv, first.body)

    simloop.run(scenario())


def test_a_creation_from_outside_owns_what_was_sent_and_what_its_type_defaults() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            made = await client.write("create", "pods", "", POD, "kubectl-run")
            [entry] = made["metadata"]["managedFields"]
            assert (entry["operation"], entry["apiVersion"], entry["time"]) == (
                "Update", "v1", made["metadata"]["creationTimestamp"],
            )  # fmt: skip
            # What admission adds (service account, tolerations, priority) has no manager.
            assert entry["fieldsV1"] == {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            **{f"f:{name}": {} for name in (
                                "image", "imagePullPolicy", "name", "resources", "terminationMessagePath",
                                "terminationMessagePolicy",
                            )},
                        }
                    },
                    **{f"f:{name}": {} for name in (
                        "dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext",
                        "terminationGracePeriodSeconds",
                    )},
                },
            }  # fmt: skip

    simloop.run(scenario())


def test_writers_of_subresources_have_entries_of_their_own_and_components_go_by_upstreams_names() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            await client.write("create", "pods", "", POD, "kubectl-run")
            await call(SCHEDULER, "create", "pods", "p", {"target": {"name": "n1"}}, subresource="binding")
            status = {"status": {"phase": "Running", "observedGeneration": 2}}
            node = node_identity("n1")
            seen = await call(node, "patch", "pods", "p", status, subresource="status", patch_type="strategic")
            assert managers(seen) == [("kubectl-run", "Update", ""), ("kubelet", "Update", "status")]
            assert fields(seen, "kubelet", "status") == {"f:status": {"f:observedGeneration": {}, "f:phase": {}}}
            await client.write("create", "deployments.apps", "", a_deployment(), "kubectl-create")
            who = controller_identity("deployment")
            counted = {"status": {"observedGeneration": 1, "replicas": 1}}
            seen = await call(
                who, "patch", "deployments.apps", "web", counted, subresource="status", patch_type="merge"
            )
            assert ("kube-controller-manager", "Update", "status") in managers(seen)

    simloop.run(scenario())


def test_what_components_make_has_no_managers_until_its_first_apply() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            made = await call(ADMIN, "create", "pods", body=POD)
            assert "managedFields" not in made["metadata"]
            patch = {"metadata": {"labels": {"x": "y"}}}
            seen = await client.write("patch", "pods", "p", patch, patch_type="merge")
            assert "managedFields" not in seen["metadata"]
            config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"mine": "1"}}}
            seen = await client.apply("pods", config, "me")
            assert managers(seen) == [("me", "Apply", ""), ("before-first-apply", "Update", "")]

    simloop.run(scenario())


def test_kep_555_a_scale_by_another_manager_is_a_conflict_over_the_replicas() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            await client.apply("deployments.apps", a_deployment(replicas=1), "me")
            scale = {"spec": {"replicas": 2}}
            await client.write(
                "patch", "deployments.apps", "web", scale, "hpa", subresource="scale", patch_type="merge"
            )
            seen = await call(ADMIN, "get", "deployments.apps", "web")
            assert fields(seen, "hpa", "scale") == {"f:spec": {"f:replicas": {}}}
            assert "f:replicas" not in fields(seen, "me")["f:spec"]
            refused = await client.try_apply("deployments.apps", a_deployment(replicas=0), "me")
            who = '"hpa" with subresource "scale" using apps/v1'
            text = f"Apply failed with 1 conflict: conflict with {who}: .spec.replicas"
            assert (refused.code, refused.error().message) == (409, text)
            taken = await client.apply("deployments.apps", a_deployment(replicas=0), "me", force=True)
            assert managers(taken) == [("me", "Apply", "")]
            form = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "web"},
                "spec": {"replicas": 5},
            }
            refused = await client.try_apply("deployments.apps", form, "hpa", subresource="scale")
            assert 'conflict with "me": .spec.replicas' in refused.error().message
            await client.apply("deployments.apps", form, "hpa", subresource="scale", force=True)
            seen = await call(ADMIN, "get", "deployments.apps", "web")
            assert seen["spec"]["replicas"] == 5
            assert managers(seen) == [("hpa", "Apply", "scale"), ("me", "Apply", "")]

    simloop.run(scenario())


def test_kep_555_managers_can_be_reset_or_replaced_and_a_put_without_them_keeps_them() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
            made = await client.write("create", "configmaps", "", config, "one")
            seen = await client.write("update", "configmaps", "c", {**config, "data": {"a": "2"}}, "two")
            assert managers(seen) == [("one", "Update", ""), ("two", "Update", "")]
            seen = await client.write("update", "configmaps", "c", {**config, "data": {"a": "2"}}, "two")
            assert managers(seen) == [("one", "Update", ""), ("two", "Update", "")]
            patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
            seen = await client.write("patch", "configmaps", "c", patch, patch_type="json")
            assert "managedFields" not in seen["metadata"]
            entries = made["metadata"]["managedFields"]
            patch = [{"op": "add", "path": "/metadata/managedFields", "value": entries}]
            seen = await client.write("patch", "configmaps", "c", patch, patch_type="json")
            assert managers(seen) == [("one", "Update", "")]

    simloop.run(scenario())


def test_an_apply_names_its_kind_and_the_object_of_the_path() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
            wrong = await client.try_apply("configmaps", {**config, "kind": "Secret"})
            assert (wrong.code, wrong.error().message) == (400, "invalid object type: /v1, Kind=Secret")
            unknown = await client.try_apply("configmaps", {**config, "bogus": 1})
            assert (unknown.code, unknown.error().message) == (
                400, "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .bogus: field not declared in schema"
            )  # fmt: skip
            assert (await call.try_call(ADMIN, "get", "configmaps", "c")).code == 404

    simloop.run(scenario())


def test_an_apply_in_another_version_is_tracked_in_that_version() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
            config = {
                "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
                "spec": {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
            }  # fmt: skip
            kind = "horizontalpodautoscalers.autoscaling"
            made = await client.try_apply(kind, config, "me", api_version="autoscaling/v1")
            again = await client.try_apply(kind, config, "me", api_version="autoscaling/v1")
            assert (made.code, again.code, again.rv) == (201, 200, made.rv)
            stored = msgspec.json.decode(made.body)
            assert stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
            [entry] = stored["metadata"]["managedFields"]
            assert entry["apiVersion"] == "autoscaling/v1"
            assert "f:targetCPUUtilizationPercentage" in entry["fieldsV1"]["f:spec"]
            # A change in the stored version takes the older version's field from its manager.
            patch = [{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 70}]
            seen = await client.write("patch", kind, "h", patch, "other", patch_type="json")
            assert "f:targetCPUUtilizationPercentage" not in fields(seen, "me")["f:spec"]
            assert fields(seen, "other") == {"f:spec": {"f:metrics": {}}}

    simloop.run(scenario())


def test_a_put_that_repeats_the_spec_keeps_it_as_it_is_and_one_with_another_type_is_refused() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            made = await client.write(
                "create", "deployments.apps", "", a_deployment({"containerPort": 80}, paused=True)
            )
            spec = dict(reversed(made["spec"].items()))
            meta = {**made["metadata"], "labels": {"app": "other"}}
            put = await client.write("update", "deployments.apps", "web", {**made, "metadata": meta, "spec": spec})
            assert put["spec"] == made["spec"]
            assert put["metadata"]["labels"] == {"app": "other"}
            assert put["metadata"]["generation"] == made["metadata"]["generation"]
            wrong = {**made, "metadata": {**put["metadata"]}, "spec": {**made["spec"], "paused": 1}}
            answer = await call.try_call(ADMIN, "update", "deployments.apps", "web", wrong, **OUTSIDE)
            assert answer.code == 400
            assert "into Go struct field DeploymentSpec.spec.paused of type bool" in answer.error().message

    simloop.run(scenario())


def test_what_is_applied_with_empty_objects_keeps_them_and_gives_up_what_it_no_longer_names() -> None:
    async def scenario() -> None:
        async with a_mesh() as call:
            client = Client(call)
            config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                      "spec": {"containers": [{"name": "c", "image": "i"}], "securityContext": {}}}  # fmt: skip
            made = await client.apply("pods", config)
            again = await client.apply("pods", config)
            assert again == made
            other = {**config, "metadata": {"name": "p", "labels": {"a": "b"}}}
            await client.apply("pods", other)
            assert "labels" not in (await client.apply("pods", config))["metadata"]

    simloop.run(scenario())
