"""Claims, templates, classes and slices as the API server keeps them (dra-core 1)."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.authorization.authorizer import admit
from apiserver_fake.registry.strategy import strategy_for
from services.api.identity import SCHEDULER, Identity
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER
from services.api.kinds.resourceslice import SLICES
from services.api.wire import Request

TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
RESULT = {"request": "r", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
POD = {"resource": "pods", "name": "p", "uid": "u1"}


def claim(name="c", devices=None, **exactly):
    devices = devices or {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def slice_(name="s", **spec):
    own = {"driver": "gpu.example", "nodeName": "n1", "devices": [{"name": "gpu-0"}],
           "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}  # fmt: skip
    return {"metadata": {"name": name}, "spec": {**own, **spec}}


def causes_of(world, resource, document):
    found, _ = world.try_create(resource, document)
    return [(cause.path, cause.message) for cause in found]


def status(world, stored, wanted, identity=SCHEDULER, **more):
    """Write the status as the server would; `more`: what else the writer sends along."""
    new = {**stored, **more, "status": wanted}
    call = Request(verb="update", resource=CLAIMS, namespace="default", name="c", subresource="status")
    ctx, rules = world.ctx(identity, call), strategy_for(CLAIMS)
    rules.prepare_status(stored, new, ctx)
    admit(identity, call, stored, new, ctx)
    return [cause.path for cause in rules.validate_status(stored, new, ctx)], new


def test_a_claim_gets_mode_and_count_and_never_changes(world):
    stored = world.create(CLAIMS, claim())

    exactly = stored["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    causes, _ = world.try_update(CLAIMS, stored, {**stored, "spec": claim(count=2)["spec"]})
    assert [cause.message.rpartition(": ")[2] for cause in causes] == ["field is immutable"]


@pytest.mark.parametrize(
    ("exactly", "path"),
    [
        ({"deviceClassName": ""}, "exactly.deviceClassName"),
        ({"allocationMode": "Some"}, "exactly.allocationMode"),
        ({"allocationMode": "All", "count": 2}, "exactly.count"),
        ({"count": -1}, "exactly.count"),
        ({"selectors": [{"cel": {"expression": "device.nope"}}]}, "exactly.selectors[0].cel.expression"),
        ({"selectors": [{}]}, "exactly.selectors[0].cel"),
    ],
)
def test_a_wrong_request_is_refused_by_its_field(world, exactly, path):
    assert [at for at, _ in causes_of(world, CLAIMS, claim(**exactly))] == [f"spec.devices.requests[0].{path}"]


TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
DEAR = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, {TEN}.all(f, a + b + c + d + e + f > 0))))))"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (DEAR, "Forbidden: too complex, exceeds cost limit"),
        ("device.driver == '" + "x" * 10240 + "'", "Too long: may not be more than 10240 bytes"),
        (
            "device.attributes[true].someBoolean",
            (
                'Invalid value: "device.attributes[true].someBoolean": compilation failed: ERROR: <input>:1:18: found no '
                "matching overload for '_[_]' applied to '(map(string, map(string, any)), bool)'\n"
                " | device.attributes[true].someBoolean\n | .................^"
            ),
        ),
        ("device.attributes['a'].b.includes(1)", "undeclared reference to 'includes'"),
    ],
    ids=("cost", "length", "type", "gate"),
)
def test_a_selector_is_refused_in_upstreams_words(world, expression, message):
    ((path, text),) = causes_of(world, CLAIMS, claim(selectors=[{"cel": {"expression": expression}}]))

    assert path == "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert message in text


def test_constraints_and_configuration_name_requests_that_exist(world):
    opaque = {"opaque": {"driver": "gpu.example", "parameters": {"a": 1}}}
    devices = {
        **claim()["spec"]["devices"],
        "constraints": [{"requests": ["x"], "matchAttribute": "gpu.example/root"}, {"matchAttribute": "root"}],
        "config": [{"requests": ["x"], **opaque}, {"opaque": {"driver": "gpu.example"}}],
    }

    assert [at for at, _ in causes_of(world, CLAIMS, claim(devices=devices))] == [
        "spec.devices.constraints[0].requests[0]", "spec.devices.constraints[1].matchAttribute",
        "spec.devices.config[0].requests[0]", "spec.devices.config[1].opaque.parameters",
    ]  # fmt: skip


def test_devices_are_granted_once_and_taken_back_only_when_unreserved(world):
    stored = world.create(CLAIMS, claim())
    assert status(world, stored, {"reservedFor": [POD]})[0] == ["status.reservedFor"]
    causes, granted = status(world, stored, {"allocation": ALLOCATION, "reservedFor": [POD]})
    assert causes == []

    other = {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}
    assert status(world, granted, {"allocation": other, "reservedFor": [POD]})[0] == ["status.allocation"]
    assert status(world, granted, {"reservedFor": [POD]})[0] == ["status.reservedFor"]
    assert status(world, granted, {})[0] == []


def test_a_claim_may_be_reserved_for_256_and_each_once(world):
    stored = world.create(CLAIMS, claim())
    many = [{**POD, "uid": f"u{i}"} for i in range(257)]

    assert status(world, stored, {"allocation": ALLOCATION, "reservedFor": many})[0] == ["status.reservedFor"]
    assert status(world, stored, {"allocation": ALLOCATION, "reservedFor": [POD, POD]})[0] == ["status.reservedFor[1]"]
    assert status(world, stored, {"allocation": ALLOCATION, "reservedFor": many[:256]})[0] == []


def test_no_new_pod_may_use_a_claim_that_is_being_deleted(world):
    stored = world.create(CLAIMS, claim())
    stored["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}

    assert status(world, stored, {"allocation": ALLOCATION, "reservedFor": [POD]})[0] == ["status.reservedFor"]


@pytest.mark.parametrize(("guard", "is_refused"), [("none", False), ("apiserver", True)])
def test_dra_core_16_a_device_of_another_claim_is_refused_with_the_guard(world, guard, is_refused):
    world.switch(dra__double_allocation_guard=guard)
    world.put(CLAIMS, {**claim("first"), "status": {"allocation": ALLOCATION}})

    causes, _ = status(world, world.create(CLAIMS, claim("second")), {"allocation": ALLOCATION})

    assert (causes == ["status.allocation.devices.results[0]"]) is is_refused


def test_templates_are_checked_as_claims_and_never_change(world):
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}}
    wrong = {"metadata": {"name": "t"}, "spec": {"spec": claim(count=-1)["spec"]}}

    stored = world.create(TEMPLATES, template)

    assert [at for at, _ in causes_of(world, TEMPLATES, wrong)] == ["spec.spec.devices.requests[0].exactly.count"]
    causes, _ = world.try_update(TEMPLATES, stored, {**stored, "spec": {"spec": claim(count=2)["spec"]}})
    assert [cause.path for cause in causes] == ["spec"]


def test_a_class_may_change(world):
    stored = world.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example"'}}]

    spec = {"selectors": selectors, "extendedResourceName": "example.com/gpu"}

    assert world.try_update(CLASSES, stored, {**stored, "spec": spec})[0] == []


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "requests.example.com/gpu", "example.com/"])
def test_what_is_no_extended_resource_a_class_does_not_offer(world, name):
    found = causes_of(world, CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": name}})

    assert [at for at, _ in found] == ["spec.extendedResourceName"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"driver": "Not A Name"}, "spec.driver"),
        ({"nodeName": None}, "spec"),
        ({"allNodes": True}, "spec"),
        ({"pool": {"name": "n1", "generation": 1, "resourceSliceCount": 0}}, "spec.pool.resourceSliceCount"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "spec.devices[1]"),
        ({"devices": [{"name": "a", "attributes": {"1x": {"int": 1}}}]}, "spec.devices[0].attributes[1x]"),
        ({"devices": [{"name": "a", "attributes": {"x": {}}}]}, "spec.devices[0].attributes[x]"),
        ({"devices": [{"name": "a", "attributes": {"x": {"version": "1"}}}]},
         "spec.devices[0].attributes[x].version"),
        ({"devices": [{"name": "a", "capacity": {"m": {"value": "-1"}}}]}, "spec.devices[0].capacity[m].value"),
        ({"devices": [{"name": f"d{i}"} for i in range(129)]}, "spec.devices"),
    ],
)  # fmt: skip
def test_a_wrong_slice_is_refused_by_its_field(world, spec, path):
    assert [at for at, _ in causes_of(world, SLICES, slice_(**spec))] == [path]


def test_whose_slice_it_is_and_where_never_changes(world):
    stored = world.create(SLICES, slice_())
    moved = slice_(driver="other.example", nodeName="n2", pool={"name": "n2", "resourceSliceCount": 1})

    causes, _ = world.try_update(SLICES, stored, {**stored, "spec": moved["spec"]})

    assert [cause.path for cause in causes] == ["spec.driver", "spec.pool.name", "spec.nodeName"]


def test_the_claim_controller_may_not_write_finalizers_through_the_status(world):
    stored = world.create(CLAIMS, claim())
    controller = Identity("system:serviceaccount:kube-system:resource-claim-controller")
    meta = {**stored["metadata"], "finalizers": [FINALIZER]}

    causes, new = status(world, stored, {}, controller, metadata=meta)

    assert (causes, "finalizers" in new["metadata"]) == ([], False)


@pytest.mark.parametrize(
    ("claims", "used", "paths"),
    [
        ([{"name": "a", "resourceClaimName": "c"}], [{"name": "a"}], []),
        ([{"name": "a"}], [], ["spec.resourceClaims[0]"]),
        ([{"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}], [], ["spec.resourceClaims[0]"]),
        ([{"name": "a", "resourceClaimName": "c"}] * 2, [], ["spec.resourceClaims[1].name"]),
        ([], [{"name": "b"}], ["spec.containers[0].resources.claims[0]"]),
    ],
)
def test_a_pod_names_claims_and_its_containers_name_those(world, claims, used, paths):
    container = {"name": "c", "image": "i", "resources": {"claims": used}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}}

    assert [at for at, _ in causes_of(world, "pods", pod)] == paths
