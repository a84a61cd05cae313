"""What a Service is completed with. Source: upstream `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/service/storage/alloc.go`."""

import pytest

PORT = {"port": 80}


def spec_of(world, **spec):
    made = world.create(
        "services", {"metadata": {"name": "s"}, "spec": {"ports": [PORT], "selector": {"a": "b"}, **spec}}
    )
    return made["spec"]


def test_a_service_without_a_type_is_reached_inside_the_cluster_over_tcp_at_its_port(world):
    spec = spec_of(world)

    assert ("ClusterIP", "None", "Cluster") == (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"])
    assert (["IPv4"], "SingleStack") == (spec["ipFamilies"], spec["ipFamilyPolicy"])
    assert [("TCP", 80)] == [(port["protocol"], port["targetPort"]) for port in spec["ports"]]
    assert [spec["clusterIP"]] == spec["clusterIPs"]


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, None),
        ({"externalIPs": ["1.2.3.4"]}, "Cluster"),
        ({"type": "NodePort"}, "Cluster"),
        ({"type": "LoadBalancer"}, "Cluster"),
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}, "Local"),
    ],
)
def test_traffic_from_outside_has_a_policy_where_there_is_any(world, given, policy):
    assert policy == spec_of(world, **given).get("externalTrafficPolicy")


@pytest.mark.parametrize(
    ("given", "allocated"),
    [
        ({"type": "LoadBalancer"}, True),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, False),
        ({"type": "NodePort"}, None),
        ({}, None),
    ],
)
def test_a_load_balancer_takes_ports_of_nodes_unless_it_says_otherwise(world, given, allocated):
    assert allocated == spec_of(world, **given).get("allocateLoadBalancerNodePorts")


def test_affinity_by_client_lasts_three_hours_unless_it_says_otherwise(world):
    assert {"clientIP": {"timeoutSeconds": 10800}} == spec_of(world, sessionAffinity="ClientIP")[
        "sessionAffinityConfig"
    ]
    config = {"clientIP": {"timeoutSeconds": 5}}
    world_spec = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}
    assert (
        config
        == world.create("services", {"metadata": {"name": "t"}, "spec": {"ports": [PORT], **world_spec}})["spec"][
            "sessionAffinityConfig"
        ]
    )


def test_a_headless_service_without_selector_may_have_endpoints_of_both_families(world):
    """Its endpoints are written by hand; with a selector it has the family of the cluster."""
    headless = spec_of(world, clusterIP="None", selector=None)
    assert ("RequireDualStack", ["IPv4", "IPv6"]) == (headless["ipFamilyPolicy"], headless["ipFamilies"])
    selecting = world.create(
        "services", {"metadata": {"name": "t"}, "spec": {"ports": [PORT], "clusterIP": "None", "selector": {"a": "b"}}}
    )
    assert ("SingleStack", ["IPv4"]) == (selecting["spec"]["ipFamilyPolicy"], selecting["spec"]["ipFamilies"])


def test_an_external_name_is_a_name_and_has_nothing_else(world):
    spec = spec_of(world, type="ExternalName", externalName="example.com")

    assert not {"internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "clusterIP", "externalTrafficPolicy"} & set(
        spec
    )
