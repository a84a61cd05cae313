"""Mirrored EndpointSlices: which Endpoints become slices, which slices those are, and when they go."""

import pytest

from services.controllers.endpointslice_mirroring.controller import ADDRESSES_MAX, CONTROLLER, LEADER, NAME, SKIP
from services.reconcile.actions import Create, Delete, Patch, RecordEvent

LABELS = {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": NAME}
PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]


@pytest.fixture
def world(world_of):
    return world_of(CONTROLLER)


def a_service(**spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": PORTS, **spec}}


def endpoints(*subsets, **metadata):
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", **metadata}, "subsets": [*subsets]}


def a_subset(*ips, unready=(), ports=PORTS):
    some = {"addresses": ips, "notReadyAddresses": unready}
    return {"ports": ports, **{member: [{"ip": ip} for ip in found] for member, found in some.items() if found}}


def kept(world, *made):
    """Store what was created as the server would, and return the keys that this leads to."""
    keys = []
    for number, each in enumerate(made):
        meta = {**each.document["metadata"], "name": f"web-{number}"}
        keys += world.put({**each.document, "metadata": meta})
    return keys


def addresses(document):
    return [(*each["addresses"], each["conditions"]["ready"]) for each in document["endpoints"]]


def mirrored(world, *subsets, **metadata):
    world.put(a_service())
    world.put(endpoints(*subsets, **metadata))
    made = world.reconcile("web").actions
    kept(world, *made)
    return made


def test_endpoints_of_a_service_without_a_selector_become_a_slice(world):
    subset = a_subset("10.0.0.1", unready=["10.0.0.2"])
    subset["addresses"][0].update(hostname="a", nodeName="n1", targetRef={"kind": "Pod", "name": "p"})
    notes = {"mine": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    (made,) = mirrored(world, subset, labels={"app": "x"}, annotations=notes)
    assert isinstance(made, Create)
    meta = made.document["metadata"]
    assert (meta["generateName"], meta["labels"], meta["annotations"]) == (
        "web-",
        {"app": "x", **LABELS},
        {"mine": "1"},
    )
    assert meta["ownerReferences"][0]["kind"] == "Endpoints"
    assert (made.document["addressType"], made.document["ports"]) == ("IPv4", PORTS)
    assert addresses(made.document) == [("10.0.0.1", True), ("10.0.0.2", False)]
    first = made.document["endpoints"][0]
    assert (first["hostname"], first["nodeName"], first["targetRef"]["name"]) == ("a", "n1", "p")
    assert world.reconcile("web").actions == ()


def test_each_set_of_ports_and_each_family_has_its_slice(world):
    other = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    made = mirrored(world, a_subset("10.0.0.1", "fd00::1"), a_subset("10.0.0.2", ports=other), a_subset("10.0.0.3"))
    assert [(each.document["addressType"], each.document["ports"][0]["name"], addresses(each.document)) for each in made] == [
        ("IPv4", "http", [("10.0.0.1", True), ("10.0.0.3", True)]),
        ("IPv6", "http", [("fd00::1", True)]),
        ("IPv4", "dns", [("10.0.0.2", True)]),
    ]  # fmt: skip


def test_a_change_is_patched_and_a_slice_of_ports_that_are_gone_serves_the_new_ones(world):
    mirrored(world, a_subset("10.0.0.1"))
    world.put(endpoints(a_subset("10.0.0.2", ports=[{"port": 81, "protocol": "TCP"}]), labels={"app": "y"}))
    (patch,) = world.reconcile("web").actions
    assert isinstance(patch, Patch)
    assert addresses(patch.patch) == [("10.0.0.2", True)]
    assert patch.patch["ports"] == [{"name": "", "port": 81, "protocol": "TCP"}]
    assert patch.patch["metadata"]["labels"]["app"] == "y"


def test_a_creation_is_not_asked_for_twice_before_it_is_seen(world):
    world.put(a_service())
    world.put(endpoints(a_subset("10.0.0.1")))
    made = world.reconcile("web").actions
    assert world.reconcile("web").actions == ()
    assert [key.name for key in kept(world, *made)] == ["web"]
    assert world.reconcile("web").actions == ()


@pytest.mark.parametrize("metadata", [{"labels": {SKIP: "true"}}, {"annotations": {LEADER: "{}"}}])
def test_what_is_not_to_be_mirrored_is_passed_over_and_its_slices_go(world, metadata):
    mirrored(world, a_subset("10.0.0.1"))
    assert [key.name for key in world.put(endpoints(a_subset("10.0.0.1"), **metadata))] == ["web"]
    (gone,) = world.reconcile("web").actions
    assert isinstance(gone, Delete)
    assert list(world.put(endpoints(a_subset("10.0.0.2"), **metadata))) == []


def test_slices_go_with_their_endpoints_or_service_and_when_a_selector_comes(world):
    mirrored(world, a_subset("10.0.0.1"))
    assert [key.name for key in world.put(a_service(selector={"app": "web"}))] == ["web"]
    assert [type(each) for each in world.reconcile("web").actions] == [Delete]
    assert list(world.put(a_service(selector={"app": "other"}))) == []
    world.put(a_service())
    assert world.reconcile("web").actions == ()
    world.drop("Service", "web")
    assert [type(each) for each in world.reconcile("web").actions] == [Delete]
    world.put(a_service())
    assert [key.name for key in world.drop("Endpoints", "web")] == ["web"]
    assert [type(each) for each in world.reconcile("web").actions] == [Delete]


def test_slices_of_others_are_left_alone(world):
    (made,) = mirrored(world, a_subset("10.0.0.1"))
    meta = {
        **made.document["metadata"],
        "name": "web-0",
        "labels": {**LABELS, "endpointslice.kubernetes.io/managed-by": "me"},
    }
    assert [key.name for key in world.put({**made.document, "metadata": meta})] == ["web"]
    (again,) = world.reconcile("web").actions
    assert isinstance(again, Create)


def test_a_thousand_addresses_of_a_subset_are_the_most_and_an_event_says_so(world):
    ips = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(ADDRESSES_MAX + 1)]
    world.put(a_service())
    world.put(endpoints(a_subset(*ips, unready=["10.9.0.1"])))
    warning, made = world.reconcile("web").actions
    assert isinstance(warning, RecordEvent)
    assert (warning.reason, warning.type) == ("TooManyAddressesToMirror", "Warning")
    assert warning.message == (
        "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 2 addresses were skipped"
    )
    assert len(made.document["endpoints"]) == ADDRESSES_MAX
