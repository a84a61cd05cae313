"""Endpoint slices at the API server: what is completed, what is refused, and which changes are counted."""

import pytest

SLICES = "endpointslices.discovery.k8s.io"


def a_slice(**more):
    endpoints = [{"addresses": ["10.0.0.1"]}]
    return {"metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": endpoints, **more}


def test_ports_have_a_protocol_and_changes_are_counted(world):
    made = world.create(SLICES, a_slice(ports=[{"port": 80}]))
    same, _ = world.try_update(SLICES, made, {**made, "endpoints": list(made["endpoints"])})
    _, other = world.try_update(SLICES, made, {**made, "endpoints": []})

    assert made["ports"] == [{"name": "", "protocol": "TCP", "port": 80}]
    assert made["metadata"]["generation"] == 1
    assert same == []
    assert other["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"addressType": ""}, "addressType: Required value"),
        ({"addressType": "IPX"}, 'addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"'),
        ({"endpoints": [{"addresses": []}]}, "endpoints[0].addresses: Required value: must contain at least 1 address"),
        ({"endpoints": [{"addresses": ["::1"]}]},
         'endpoints[0].addresses[0]: Invalid value: "::1": must be a valid IPv4 address'),
        ({"endpoints": [{"addresses": ["127.0.0.1"]}]}, "may not be in the loopback range"),
        ({"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}]},
         'endpoints[0].hints.forZones[1].name: Duplicate value: "a"'),
        ({"ports": [{"protocol": "ICMP"}]}, 'ports[0].protocol: Unsupported value: "ICMP"'),
        ({"ports": [{"port": 1}, {"port": 2}]}, 'ports[1].name: Duplicate value: ""'),
    ],
)  # fmt: skip
def test_what_a_slice_may_not_say_is_refused_by_its_field(world, more, said):
    causes, _ = world.try_create(SLICES, a_slice(**more))
    found = [f"{cause.path}: {cause.message}" for cause in causes]

    assert any(said in text for text in found), found


def test_the_type_of_addresses_stays(world):
    made = world.create(SLICES, a_slice())
    causes, _ = world.try_update(SLICES, made, {**made, "addressType": "IPv6", "endpoints": []})

    assert [(cause.path, cause.message) for cause in causes] == [
        ("addressType", 'Invalid value: "IPv6": field is immutable')]  # fmt: skip
