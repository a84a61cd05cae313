"""Services at the API server: what is allocated and kept, and what is refused in upstream's words."""

import pytest

from services.api.kinds.service import RESOURCE
from services.api.printing import cells

PORTS = [{"port": 80}]


def a_service(name="s", **spec):
    return {"metadata": {"name": name}, "spec": {"ports": PORTS, **spec}}


def said(causes):
    return [f"{cause.path}: {cause.message}" for cause in causes]


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_each_port_gets_a_free_port_on_every_node(world, kind):
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30080}]
    spec = world.create("services", a_service(type=kind, ports=ports))["spec"]
    numbers = [port["nodePort"] for port in spec["ports"]]

    assert numbers[1] == 30080
    assert 30086 <= numbers[0] <= 32767
    assert spec["externalTrafficPolicy"] == "Cluster"
    assert PORTS == [{"port": 80}]


def test_a_service_of_one_cluster_address_has_neither(world):
    spec = world.create("services", a_service())["spec"]
    assert "nodePort" not in spec["ports"][0]
    assert "externalTrafficPolicy" not in spec


def test_a_balanced_service_with_local_traffic_has_a_port_for_health_checks(world):
    made = world.create("services", a_service(type="LoadBalancer", externalTrafficPolicy="Local"))
    number = made["spec"]["healthCheckNodePort"]
    assert number not in (0, made["spec"]["ports"][0]["nodePort"])
    _, changed = world.try_update(
        "services", made, {**made, "spec": {**made["spec"], "externalTrafficPolicy": "Cluster"}}
    )
    assert "healthCheckNodePort" not in changed["spec"]


def test_an_update_keeps_what_was_allocated_and_drops_what_the_type_has_not(world):
    made = world.create("services", a_service(type="NodePort"))
    number, address = made["spec"]["ports"][0]["nodePort"], made["spec"]["clusterIP"]

    _, kept = world.try_update("services", made, a_service(type="NodePort"))
    causes, dropped = world.try_update("services", made, {**made, "spec": {**made["spec"], "type": "ClusterIP"}})
    _, named = world.try_update(
        "services", made, {**made, "spec": {**made["spec"], "type": "ExternalName", "externalName": "a.b"}}
    )

    assert (kept["spec"]["ports"][0]["nodePort"], kept["spec"]["clusterIP"]) == (number, address)
    assert causes == []
    assert "nodePort" not in dropped["spec"]["ports"][0]
    assert "clusterIP" not in named["spec"]


def test_a_service_becomes_one_of_node_ports(world):
    made = world.create("services", a_service())
    causes, changed = world.try_update("services", made, {**made, "spec": {**made["spec"], "type": "NodePort"}})
    assert causes == []
    assert changed["spec"]["ports"][0]["nodePort"] >= 30000


def test_a_headless_service_without_selector_is_of_both_families(world):
    spec = world.create("services", a_service(clusterIP="None"))["spec"]
    assert (spec["clusterIPs"], spec["ipFamilies"]) == (["None"], ["IPv4", "IPv6"])


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"clusterIP": "300.1.1.1"}, 'spec.clusterIPs[0]: Invalid value: "300.1.1.1": must be a valid IP address'),
        ({"clusterIP": "1.1.1.1"}, "the provided IP (1.1.1.1) is not in the valid range. The range of valid IPs is"),
        ({"clusterIP": "10.96.0.77"}, "failed to allocate IP 10.96.0.77: provided IP is already allocated"),
        ({"type": "NodePort", "clusterIP": "None"}, "may not be set to 'None' for NodePort services"),
        ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}, "The range of valid ports is 30000-32767"),
        ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30077}]}, "provided port is already allocated"),
        ({"ports": [{"port": 80, "nodePort": 30078}]}, "may not be used when `type` is 'ClusterIP'"),
        ({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}, "spec.ports[1]: Duplicate value"),
        ({"ports": [{"port": 80, "protocol": "ICMP"}]}, 'supported values: "SCTP", "TCP", "UDP"'),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        ({"externalTrafficPolicy": "Local"}, "may only be set for externally-accessible services"),
        ({"sessionAffinity": "Always"}, 'supported values: "ClientIP", "None"'),
    ],
)
def test_what_a_service_may_not_say(world, spec, cause):
    taken = [{"port": 80, "nodePort": 30077}]
    world.create("services", a_service("taken", clusterIP="10.96.0.77", type="NodePort", ports=taken))
    causes, _ = world.try_create("services", a_service(**spec))
    assert any(cause in text for text in said(causes)), said(causes)


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        ({"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, "1.2.3.4"),
        ({"type": "ExternalName", "externalName": "a.example"}, {}, "a.example"),
        ({"type": "NodePort"}, {}, "<none>"),
        ({"externalIPs": ["9.9.9.9"]}, {}, "9.9.9.9"),
    ],
)
def test_the_table_shows_how_a_service_is_reached_from_outside(spec, status, shown):
    row = cells(RESOURCE.columns, {"metadata": {"name": "s"}, "spec": spec, "status": status}, 0.0)
    assert row[3] == shown
