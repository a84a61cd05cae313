"""Bodies and patches whose fields are of the wrong type, through the real server: codes and words are upstream's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN
from tests.component.apiserver_fake.test_field_managers import OUTSIDE, a_deployment
from tests.component.apiserver_fake.test_rules_in_the_server import a_mesh

RESOURCE = "deployments.apps"
TOO_WIDE = "json: cannot unmarshal number 10000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
A_TEXT = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
UNREADABLE = 'Deployment in version "v1" cannot be handled as a Deployment: '


def run(scenario: Any) -> None:
    async def inside() -> None:
        async with a_mesh() as call:
            await scenario(call)

    simloop.run(inside())


async def status_of(call: Any, verb: str, name: str, body: Any, **more: Any) -> dict[str, Any]:
    answer = await call.try_call(ADMIN, verb, RESOURCE, name, body, **OUTSIDE, **more)
    return {"code": answer.code, **msgspec.json.decode(answer.body)}


@pytest.mark.parametrize(
    ("replicas", "why"), [(10_000_000_000, TOO_WIDE), ("3", A_TEXT), (-(1 << 31) - 1, TOO_WIDE.replace("10000000000", "-2147483649"))]
)  # fmt: skip
def test_a_body_that_does_not_fit_its_type_is_a_bad_request(replicas: Any, why: str) -> None:
    async def scenario(call: Any) -> None:
        refused = await status_of(call, "create", "", a_deployment(replicas=replicas))
        assert refused == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": UNREADABLE + why,
            "reason": "BadRequest", "code": 400,
        }  # fmt: skip
        await call(ADMIN, "create", RESOURCE, "", a_deployment(), **OUTSIDE)
        refused = await status_of(call, "update", "web", a_deployment(replicas=replicas))
        assert (refused["code"], refused["message"]) == (400, UNREADABLE + why)

    run(scenario)


@pytest.mark.parametrize(("patch_type", "patch"), [
    ("merge", {"spec": {"replicas": 10_000_000_000}}),
    ("json", [{"op": "replace", "path": "/spec/replicas", "value": 10_000_000_000}]),
])  # fmt: skip
def test_a_patch_that_makes_what_cannot_be_decoded_is_invalid(patch_type: str, patch: Any) -> None:
    async def scenario(call: Any) -> None:
        await call(ADMIN, "create", RESOURCE, "", a_deployment(), **OUTSIDE)
        refused = await status_of(call, "patch", "web", patch, patch_type=patch_type)
        [cause] = refused["details"].pop("causes")
        assert (refused["code"], refused["reason"], refused["details"]) == (422, "Invalid", {})
        assert refused["message"] == f' "" is invalid: patch: {cause["message"]}'
        assert (cause["field"], cause["reason"]) == ("patch", "FieldValueInvalid")
        assert cause["message"].startswith('Invalid value: "{\\"apiVersion\\":\\"apps/v1\\"')
        assert cause["message"].endswith(f": {TOO_WIDE}")

    run(scenario)


def test_a_strategic_patch_and_an_apply_cut_integers_to_their_width() -> None:
    async def scenario(call: Any) -> None:
        await call(ADMIN, "create", RESOURCE, "", a_deployment(), **OUTSIDE)
        patch = {"spec": {"replicas": 10_000_000_000}}
        made = await call(ADMIN, "patch", RESOURCE, "web", patch, patch_type="strategic", **OUTSIDE)
        assert made["spec"]["replicas"] == 1_410_065_408
        config = a_deployment(replicas=(7 << 32) + 4)
        more = {"patch_type": "apply", "field_manager": "a", "force": True}
        made = await call(ADMIN, "patch", RESOURCE, "web", config, **more, **OUTSIDE)
        assert made["spec"]["replicas"] == 4

    run(scenario)


def test_a_strategic_patch_of_a_wrong_type_shows_itself_as_go_prints_it() -> None:
    async def scenario(call: Any) -> None:
        await call(ADMIN, "create", RESOURCE, "", a_deployment(), **OUTSIDE)
        patch = {"spec": {"replicas": "x", "paused": True}}
        refused = await status_of(call, "patch", "web", patch, patch_type="strategic")
        text = 'patch: Invalid value: "map[spec:map[paused:true replicas:x]]": unrecognized type: int32'
        assert (refused["code"], refused["message"]) == (422, f' "" is invalid: {text}')

    run(scenario)


TYPED = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): "
CONVERTED = (
    "failed to convert new object (default/web; apps/v1, Kind=Deployment) to proper version: unable to convert "
    "unstructured object to apps/v1, Kind=Deployment: "
)


@pytest.mark.parametrize(("spec", "why"), [
    ({"replicas": "3"}, TYPED + ".spec.replicas: expected numeric (int or float), got string"),
    ({"paused": "x"}, TYPED + ".spec.paused: expected boolean, got &{x}"),
    ({"strategy": {"rollingUpdate": {"maxSurge": 10_000_000_000}}},
     CONVERTED + "json: cannot unmarshal number 10000000000 into Go value of type int32"),
])  # fmt: skip
def test_an_apply_of_wrong_types_is_refused_with_what_the_converter_says(spec: Any, why: str) -> None:
    async def scenario(call: Any) -> None:
        more = {"patch_type": "apply", "field_manager": "a"}
        config = a_deployment(**spec)
        config["metadata"]["namespace"] = "default"
        refused = await status_of(call, "patch", "web", config, **more)
        assert (refused["code"], refused["message"]) == (400, why)

    run(scenario)


def test_a_patch_of_the_uid_is_invalid_and_an_unknown_operation_cannot_be_processed() -> None:
    async def scenario(call: Any) -> None:
        await call(ADMIN, "create", RESOURCE, "", a_deployment(), **OUTSIDE)
        refused = await status_of(call, "patch", "web", {"metadata": {"uid": "u"}}, patch_type="merge")
        assert (refused["code"], refused["message"]) == (
            422, 'Deployment.apps "web" is invalid: metadata.uid: Invalid value: "u": field is immutable'
        )  # fmt: skip
        assert refused["details"] == {
            "name": "web", "group": "apps", "kind": "Deployment", "causes": [{
                "reason": "FieldValueInvalid", "message": 'Invalid value: "u": field is immutable',
                "field": "metadata.uid",
            }],
        }  # fmt: skip
        refused = await status_of(call, "patch", "web", [{"op": "jump", "path": "/a"}], patch_type="json")
        assert (refused["code"], refused["reason"]) == (422, "Invalid")

    run(scenario)


def test_all_that_is_wrong_with_a_service_is_one_status() -> None:
    async def scenario(call: Any) -> None:
        body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 0}], "externalIPs": ["zz"]}}
        answer = await call.try_call(ADMIN, "create", "services", "", body, **OUTSIDE)
        port = "Invalid value: 0: must be between 1 and 65535, inclusive"
        address = 'Invalid value: "zz": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
        assert (answer.code, msgspec.json.decode(answer.body)) == (422, {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": f'Service "a" is invalid: [spec.ports[0].port: {port}, spec.ports[0].targetPort: {port}, '
                       f"spec.externalIPs[0]: {address}]",
            "details": {"name": "a", "kind": "Service", "causes": [
                {"reason": "FieldValueInvalid", "message": port, "field": "spec.ports[0].port"},
                {"reason": "FieldValueInvalid", "message": port, "field": "spec.ports[0].targetPort"},
                {"reason": "FieldValueInvalid", "message": address, "field": "spec.externalIPs[0]"},
            ]},
        })  # fmt: skip

    run(scenario)
