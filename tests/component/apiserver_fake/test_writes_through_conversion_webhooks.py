"""Writes of a kind whose versions a webhook converts: a real webhook over HTTPS, called by the real API server. Real
time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from apiserver_fake.registry.admission.rehearsals import Rehearsals
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.sessions import Unconverted
from apiserver_fake.rest.versions import versioned_api
from services.api.identity import ADMIN
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.wire import Request, WatchRequest
from tests.component.apiserver_fake.passing import pass_time
from tests.component.apiserver_fake.test_admission_webhooks import GROUP as ADMISSION
from tests.component.apiserver_fake.test_admission_webhooks import allowed, scene

GROUP = "example.com"
CVS = f"cvs.{GROUP}"
FIELDS = {"v1": "size", "v2": "width", "v3": "breadth"}
"""What the one field of the spec is called in each version."""


def a_version(name: str, **others: Any) -> Any:
    spec = {"type": "object", "properties": {FIELDS[name]: {"type": "integer", "maximum": 99}}}
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    scale = {"specReplicasPath": f".spec.{FIELDS[name]}", "statusReplicasPath": ".status.replicas"}
    subresources = {"status": {}, "scale": scale}
    return {"name": name, "served": True, "storage": name == "v1", "subresources": subresources,
            "schema": {"openAPIV3Schema": schema}, **others}  # fmt: skip


def a_cv(version: str = "v2", name: str = "a", size: int = 1, **metadata: Any) -> Any:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Cv", "metadata": {"name": name, **metadata},
            "spec": {FIELDS[version]: size}}  # fmt: skip


def renamed(document: Any, api_version: str) -> Any:
    have, wanted = document["apiVersion"].split("/")[1], api_version.split("/")[1]
    spec = {FIELDS[wanted] if key == FIELDS[have] else key: v for key, v in (document.get("spec") or {}).items()}
    return {**document, "apiVersion": api_version, "spec": spec}


def convert(review: Any) -> Any:
    """Answer as a good webhook does."""
    asked = review["request"]
    objects = [renamed(each, asked["desiredAPIVersion"]) for each in asked["objects"]]
    response = {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


def refuse(review: Any) -> Any:
    result = {"status": "Failed", "message": "no"}
    response = {"uid": review["request"]["uid"], "result": result, "convertedObjects": []}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a state, for ten seconds at most."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that within ten seconds")


async def define(world: Any, handler: Any = convert) -> None:
    """Serve a kind in three versions that the webhook at /convert converts."""
    world.handlers["convert"] = handler
    client = {"url": f"https://localhost:{world.port}/convert", "caBundle": world.bundle}
    names = {"plural": "cvs", "kind": "Cv", "singular": "cv", "listKind": "CvList"}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": CVS},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "conversion": conversion,
                     "versions": [a_version(name) for name in FIELDS]}}  # fmt: skip
    await world("create", DEFINITIONS, body=body, namespace="")
    await until(lambda: (GROUP, "v2") in world.server.catalogue.served_versions)


async def answer(world: Any, verb: str, name: str = "", body: Any = None, version: str = "v2", **more: Any) -> Any:
    """Return the response to a client of REST that knows one version."""
    api = versioned_api(world.server.api_for(ADMIN), world.server.catalogue.served_versions[GROUP, version]["cvs"])
    data = b"" if body is None else msgspec.json.encode(body)
    fields = {"namespace": "default", "field_manager": version, "field_validation": "Warn", **more}
    return await api.call(Request(verb=verb, resource=CVS, name=name, body=data, **fields))


async def call(*args: Any, **more: Any) -> Any:
    return msgspec.json.decode((await answer(*args, **more)).unwrap().body)


def managers(document: Any) -> list[tuple[str, str, str, Any]]:
    found = document["metadata"].get("managedFields") or []
    return [
        (e["manager"], e["operation"], e["apiVersion"], sorted({*e["fieldsV1"].get("f:spec", {})} - {"."}))
        for e in found
    ]


@scene
async def test_every_kind_of_write_through_a_converted_version_is_stored_and_read_back(world):
    await define(world)
    assert (await call(world, "create", body=a_cv(size=1)))["spec"] == {"width": 1}
    changed = await call(world, "get", "a")
    changed["spec"]["width"] = 2
    assert (await call(world, "update", "a", changed))["spec"] == {"width": 2}
    for place, (how, body) in enumerate(
        (
            ("merge", {"spec": {"width": 3}}),
            ("json", [{"op": "replace", "path": "/spec/width", "value": 4}]),
            ("apply", a_cv(size=5)),
        )
    ):
        found = await call(world, "patch", "a", body, patch_type=how, force=how == "apply")
        assert found["spec"] == {"width": 3 + place}
    status = {**await call(world, "get", "a"), "status": {"phase": "Up"}}
    assert (await call(world, "update", "a", status, subresource="status"))["status"] == {"phase": "Up"}
    patch = {"status": {"phase": "Down"}}
    found = await call(world, "patch", "a", patch, subresource="status", patch_type="merge")
    assert (found["status"], found["spec"]) == ({"phase": "Down"}, {"width": 5})
    scale = await call(world, "patch", "a", {"spec": {"replicas": 6}}, subresource="scale", patch_type="merge")
    assert scale["spec"] == {"replicas": 6}
    assert (await call(world, "get", "a", version="v1"))["spec"] == {"size": 6}
    assert [e["spec"] for e in (await call(world, "list", version="v3"))["items"]] == [{"breadth": 6}]
    await call(world, "delete", "a")
    await call(world, "create", body=a_cv(name="b"))
    await call(world, "deletecollection")
    assert (await call(world, "list"))["items"] == []


@scene
async def test_managers_of_every_version_are_kept_in_the_names_of_their_own_version(world):
    await define(world)
    await call(world, "create", body=a_cv("v2", size=1))
    await call(world, "patch", "a", a_cv("v3", size=1), version="v3", patch_type="apply")

    refusal = await answer(world, "patch", "a", a_cv("v1", size=2), version="v1", patch_type="apply")
    shared = managers(await call(world, "get", "a"))
    taken = managers(await call(world, "patch", "a", {"spec": {"size": 2}}, version="v1", patch_type="merge"))

    causes = {(each["field"], each["message"]) for each in refusal.error().details["causes"]}
    assert (refusal.code, causes) == (
        409,
        {(".spec.width", 'conflict with "v2" using example.com/v2'), (".spec.breadth", 'conflict with "v3"')},
    )
    assert shared == [("v3", "Apply", "example.com/v3", ["f:breadth"]), ("v2", "Update", "example.com/v2", ["f:width"])]
    assert ("v1", "Update", "example.com/v1", ["f:size"]) in taken
    assert not [each for each in taken if each[3] in (["f:width"], ["f:breadth"])]


@scene
async def test_an_object_is_converted_before_it_is_written_after_its_stored_version_changed(world):
    await define(world)
    made = await call(world, "create", body=a_cv("v1", size=1), version="v1")
    definition = await world("get", DEFINITIONS, CVS, namespace="")
    for each in definition["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"
    await world("update", DEFINITIONS, CVS, body=definition, namespace="")

    labelled = {"metadata": {"labels": {"a": "b"}}}
    found = [await call(world, "patch", "a", labelled, version=v, patch_type="merge") for v in ("v2", "v1")]
    scaled = await call(world, "patch", "a", {"spec": {"replicas": 4}}, subresource="scale", patch_type="merge")

    assert [(each["spec"], each["metadata"]["generation"]) for each in found] == [
        ({"width": 1}, made["metadata"]["generation"]),
        ({"size": 1}, made["metadata"]["generation"]),
    ]
    assert (scaled["spec"], (await call(world, "get", "a"))["spec"]) == ({"replicas": 4}, {"width": 4})


@scene
async def test_a_watch_through_a_converted_version_has_what_was_written_through_another(world):
    await define(world)
    served = world.server.catalogue.served_versions[GROUP, "v2"]["cvs"]
    api = versioned_api(world.server.api_for(ADMIN), served)
    await call(world, "create", body=a_cv("v3", size=1), version="v3")
    seen: list[Any] = []

    async def watch() -> None:
        async for batch in api.watch(WatchRequest(resource=CVS, namespace="default")):
            seen.extend(msgspec.json.decode(event.body) for event in batch)
            if len(seen) == 2:
                return

    watching = asyncio.create_task(watch())
    await until(lambda: bool(seen))
    await call(world, "patch", "a", {"spec": {"size": 7}}, version="v1", patch_type="merge")
    await asyncio.wait_for(watching, 10)

    assert [(each["apiVersion"], each["spec"]) for each in seen] == [
        (f"{GROUP}/v2", {"width": 1}),
        (f"{GROUP}/v2", {"width": 7}),
    ]


@scene
async def test_a_version_judges_what_is_sent_in_it(world):
    await define(world)
    await call(world, "create", body=a_cv(size=1))

    for refused in (
        await answer(world, "create", body=a_cv(name="b", size=100)),
        await answer(world, "patch", "a", {"spec": {"width": 100}}, patch_type="merge"),
        await answer(world, "patch", "a", a_cv(size=100), patch_type="apply", force=True),
    ):
        assert (refused.code, refused.error().details["causes"][0]["field"]) == (422, "spec.width")
    warned = await answer(world, "patch", "a", {"spec": {"size": 1}}, patch_type="merge")
    assert (warned.code, warned.warnings) == (200, ('unknown field "spec.size"',))


@scene
async def test_a_webhook_that_fails_refuses_what_it_has_to_convert_and_leaves_managers_as_they_are(world):
    await define(world)
    await call(world, "create", body=a_cv(size=1))
    before = managers(await call(world, "get", "a", version="v1"))
    world.handlers["convert"] = refuse

    through_v2 = await answer(world, "patch", "a", {"spec": {"width": 2}}, patch_type="merge")
    through_v1 = await call(world, "patch", "a", {"spec": {"size": 3}}, version="v1", patch_type="merge")
    world.handlers["convert"] = convert

    assert (through_v2.code, through_v2.error().message) == (
        500,
        "conversion webhook for example.com/v1, Kind=Cv failed: no",
    )
    assert (through_v1["spec"], managers(through_v1)) == ({"size": 3}, before)
    assert (await call(world, "get", "a"))["spec"] == {"width": 3}


@scene
async def test_two_writers_at_once_through_two_versions_lose_nothing_to_each_other(world):
    async def slow(review: Any) -> Any:
        await asyncio.sleep(0.01)
        return convert(review)

    await define(world, slow)
    await call(world, "create", body=a_cv(size=1))

    async def annotate(version: str, place: int) -> None:
        body = {"metadata": {"annotations": {f"{version}-{place}": "x"}}}
        await call(world, "patch", "a", body, version=version, patch_type="merge")

    await asyncio.gather(*(annotate(version, place) for version in ("v1", "v2", "v3") for place in range(3)))

    assert len((await call(world, "get", "a"))["metadata"]["annotations"]) == 9


@scene
async def test_a_webhook_that_hangs_holds_up_no_other_object_and_leaves_no_connection(world):
    is_over = asyncio.Event()

    async def hang(review: Any) -> Any:
        await is_over.wait()
        return web.Response(status=503)

    await define(world)
    await call(world, "create", body=a_cv(size=1))
    world.handlers["convert"] = hang
    began = time.monotonic()
    waiting = asyncio.create_task(answer(world, "patch", "a", {"spec": {"size": 2}}, version="v1",
                                         patch_type="merge", deadline_s=2.0))  # fmt: skip
    asked = len(world.requests)
    await until(lambda: len(world.requests) > asked)
    await call(world, "create", body=a_cv("v1", name="b"), version="v1")
    assert time.monotonic() - began < 0.9
    assert not waiting.done()
    pass_time(2)
    found = await waiting
    await until(lambda: all(each.transport is None for each in world.requests))
    world.handlers["convert"] = convert

    assert (found.code, msgspec.json.decode(found.body)["spec"]) == (200, {"size": 2})
    assert (await call(world, "list"))["items"][0]["spec"] == {"width": 2}
    is_over.set()


@scene
async def test_policies_and_admission_webhooks_see_the_version_that_they_name(world):
    await define(world)
    rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": ["CREATE", "UPDATE"], "resources": ["cvs"]}
    await world.hook("validating", "look", allowed, rules=[rule], matchPolicy="Equivalent")
    policy = {"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule], "matchPolicy": "Equivalent"},
        "validations": [{"expression": "object.spec.width < 50", "message": "too wide"}]}}  # fmt: skip
    await world("create", f"validatingadmissionpolicies.{ADMISSION}", body=policy)
    binding = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await world("create", f"validatingadmissionpolicybindings.{ADMISSION}", body=binding)

    await call(world, "create", body=a_cv("v1", size=49), version="v1")
    refused = await answer(world, "create", body=a_cv("v3", name="b", size=50), version="v3")

    [review] = [each for name, each in world.seen if name == "look"]
    assert review["request"]["object"]["spec"] == {"width": 49}
    assert (refused.code, "too wide" in refused.error().message) == (422, True)


@scene
async def test_a_list_whose_conversion_comes_in_many_pieces_is_read_whole(world):
    await define(world)
    long = "x" * 200_000
    for place in range(3):
        await call(world, "create", body=a_cv("v1", f"a{place}", annotations={"long": long}), version="v1")

    found = await call(world, "list")

    assert [each["metadata"]["annotations"]["long"] == long for each in found["items"]] == [True, True, True]


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_time_a_conversion_may_take_is_that_of_the_request(is_answered):
    async def ask(documents: Any) -> Any:
        if not is_answered:
            await asyncio.Event().wait()
        return documents

    found = asyncio.run(Rehearsals._await_conversion(Unconverted(Conversion(question=ask), [{}]), 0.01))

    assert (found == [{}]) is is_answered
