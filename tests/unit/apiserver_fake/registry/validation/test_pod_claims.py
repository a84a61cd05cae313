"""What pods say of claims for devices: in their containers, and in their status (dra-core 1.5)."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.strategy import strategy_for
from services.api.identity import ADMIN
from services.api.wire import Request

CLAIMS = [{"name": "gpus", "resourceClaimName": "g"}, {"name": "nics", "resourceClaimTemplateName": "n"}]
AT = "spec.containers[0].resources.claims"


def spec(*used, **more):
    resources = {"claims": [*used], "requests": {"example.com/fpga": "1"}, "limits": {"example.com/fpga": "1"}}
    container = {"name": "c", "image": "i:1", "resources": resources}
    return {"containers": [container], "resourceClaims": CLAIMS, **more}


def causes_of(world, spec):
    causes, _ = world.try_create("pods", {"metadata": {"name": "p"}, "spec": spec})
    return [(cause.path, cause.message) for cause in causes]


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ([{"name": "gpus"}, {"name": "nics", "request": "a"}, {"name": "nics", "request": "b"}], []),
        ([{}], [(f"{AT}[0]", "Required value")]),
        ([{"name": "gpus"}] * 2, [(f"{AT}[1]", 'Duplicate value: "gpus"')]),
        ([{"name": "gpus", "request": "a"}] * 2, [(f"{AT}[1]", 'Duplicate value: "gpus/a"')]),
        ([{"name": "cpus"}],
         [(f"{AT}[0]",
           'Not found: "cpus": must be one of the names in pod.spec.resourceClaims: gpus, nics')]),
    ],
)  # fmt: skip
def test_a_container_uses_claims_of_its_pod_each_request_once(world, used, found):
    assert causes_of(world, spec(*used)) == found


def test_a_request_is_named_as_requests_are(world):
    assert [at for at, _ in causes_of(world, spec({"name": "gpus", "request": "A b"}))] == [f"{AT}[0].request"]


def test_without_claims_of_the_pod_there_is_none_to_use(world):
    text = 'Not found: "gpus": must be one of the names in pod.spec.resourceClaims which is empty'

    assert causes_of(world, spec({"name": "gpus"}, resourceClaims=[])) == [(f"{AT}[0]", text)]


def test_claims_are_used_by_containers_and_not_by_the_pod_as_such(world):
    found = causes_of(world, spec(resources={"claims": [{"name": "gpus"}]}))

    assert found == [("spec.resources.claims", "Forbidden: claims may not be set for Resources at pod-level")]


def status_causes(world, **status):
    pod = world.create(
        "pods", {"metadata": {"name": "p"}, "spec": spec({"name": "gpus"}, {"name": "nics", "request": "a"})}
    )
    new = {**pod, "status": {**pod["status"], **status}}
    call = Request(verb="update", resource="pods", namespace="default", name="p", subresource="status")
    causes = strategy_for("pods").validate_status(pod, new, world.ctx(ADMIN, call))
    return [(cause.path.removeprefix("status."), cause.message) for cause in causes]


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        ([{"name": "nics", "resourceClaimName": "p-nics-x"}, {"name": "gpus"}], []),
        ([{"name": "x"}],
         [("resourceClaimStatuses[0].name",
           'Invalid value: "x": must match the name of an entry in `spec.resourceClaims`')]),
        ([{"name": "nics"}] * 2, [("resourceClaimStatuses[1].name", 'Duplicate value: "nics"')]),
    ],
)  # fmt: skip
def test_the_status_says_which_claims_were_made_for_those_of_the_pod(world, statuses, found):
    assert status_causes(world, resourceClaimStatuses=statuses) == found


MAPPING = {"containerName": "c", "resourceName": "example.com/fpga", "requestName": "r-0"}
EXTENDED = "extendedResourceClaimStatus"


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"resourceClaimName": "p-x", "requestMappings": [MAPPING]}, []),
        ({"requestMappings": [MAPPING]}, [("resourceClaimName", "Required value")]),
        ({"resourceClaimName": "p-x"},
         [("requestMappings", "Required value: at least one request mapping is required")]),
        ({"resourceClaimName": "p-x", "requestMappings": [{**MAPPING, "containerName": "d"}]},
         [("requestMappings[0].containerName", ('Invalid value: "d": must match the name of an entry in '
           "spec.initContainers.name or spec.containers.name"))]),
        ({"resourceClaimName": "p-x", "requestMappings": [{**MAPPING, "resourceName": "example.com/gpu"}]},
         [("requestMappings[0].resourceName", ('Invalid value: "example.com/gpu": must match the extended resource name '
           "of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))]),
        ({"resourceClaimName": "p-x", "requestMappings": [MAPPING] * 2},
         [("requestMappings[1].containerName", 'Duplicate value: "c"'),
          ("requestMappings[1].resourceName", 'Duplicate value: "example.com/fpga"'),
          ("requestMappings[1].requestName", 'Duplicate value: "r-0"')]),
    ],
)  # fmt: skip
def test_the_claim_for_extended_resources_says_what_became_of_which(world, status, found):
    assert status_causes(world, **{EXTENDED: status}) == [(f"{EXTENDED}.{path}", text) for path, text in found]


def health(name, *resources):
    return [{"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": [*resources]}]}]


ITEM = "containerStatuses[0].allocatedResourcesStatus[0]"


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        (health("claim:gpus", {"resourceID": "a", "health": "Healthy"}), []),
        (health("claim:nics/a", {"resourceID": "a", "health": "Unknown"}), []),
        (health("example.com/fpga", {"resourceID": "a", "health": "Unhealthy"}), []),
        (health("claim:nics"),
         [(".name", ("Invalid value: \"claim:nics\": must match one of the container's resource claims in a format "
           "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"))]),
        (health("example.com/gpu"),
         [(".name", "Invalid value: \"example.com/gpu\": must match one of the container's resource requests")]),
        (health("claim:gpus", {"resourceID": "a", "health": "Ill"}),
         [(".resources[0].health",
           'Unsupported value: "Ill": supported values: "Healthy", "Unhealthy", "Unknown"')]),
        (health("claim:gpus", *[{"resourceID": "a", "health": "Healthy"}] * 2),
         [(".resources[1].resourceID", 'Duplicate value: "a"')]),
    ],
)  # fmt: skip
def test_the_health_of_devices_is_said_of_what_the_container_uses(world, statuses, found):
    assert status_causes(world, containerStatuses=statuses) == [(ITEM + path, text) for path, text in found]
