"""The variables that name services, as upstream's kubelet makes them (`pkg/kubelet/envvars/envvars_test.go`)."""

from kubelet.runtime.service_variables import linked_services, service_variables


def a_service(name, address, *ports, namespace="default"):
    meta = {"name": name, "namespace": namespace}
    return {"metadata": meta, "spec": {"clusterIP": address, "ports": [*ports]}}


def test_a_service_has_a_host_a_port_and_the_variables_of_docker_links():
    service = a_service("foo-bar", "1.2.3.4", {"port": 8080, "protocol": "TCP"})

    assert service_variables([service]) == {
        "FOO_BAR_SERVICE_HOST": "1.2.3.4",
        "FOO_BAR_SERVICE_PORT": "8080",
        "FOO_BAR_PORT": "tcp://1.2.3.4:8080",
        "FOO_BAR_PORT_8080_TCP": "tcp://1.2.3.4:8080",
        "FOO_BAR_PORT_8080_TCP_PROTO": "tcp",
        "FOO_BAR_PORT_8080_TCP_PORT": "8080",
        "FOO_BAR_PORT_8080_TCP_ADDR": "1.2.3.4",
    }


def test_named_ports_have_variables_of_their_own_and_the_first_port_is_the_services():
    ports = ({"name": "u-d-p", "port": 8081, "protocol": "UDP"}, {"name": "t-c-p", "port": 8082, "protocol": "TCP"})
    found = service_variables([a_service("abc-123", "5.6.7.8", *ports)])

    assert (found["ABC_123_SERVICE_PORT"], found["ABC_123_PORT"]) == ("8081", "udp://5.6.7.8:8081")
    assert (found["ABC_123_SERVICE_PORT_U_D_P"], found["ABC_123_SERVICE_PORT_T_C_P"]) == ("8081", "8082")
    assert found["ABC_123_PORT_8082_TCP"] == "tcp://5.6.7.8:8082"


def test_addresses_of_ipv6_are_in_brackets_where_a_port_follows_and_names_never_begin_with_a_digit():
    found = service_variables([a_service("9super.db", "2001:db8::1", {"port": 53, "protocol": "UDP"})])

    assert found["_9SUPER_DB_SERVICE_HOST"] == "2001:db8::1"
    assert found["_9SUPER_DB_PORT_53_UDP"] == "udp://[2001:db8::1]:53"
    assert found["_9SUPER_DB_PORT_53_UDP_ADDR"] == "2001:db8::1"


def test_containers_learn_of_their_namespaces_services_and_always_of_the_api_server():
    services = [
        a_service("kubernetes", "10.96.0.1"), a_service("elsewhere", "10.0.0.1"), a_service("b", "10.0.0.2", namespace="n"),
        a_service("a", "10.0.0.3", namespace="n"), a_service("headless", "None", namespace="n"),
        a_service("external", "", namespace="n"),
    ]  # fmt: skip

    def names(namespace, *, has_links):
        return [each["metadata"]["name"] for each in linked_services(services, namespace, has_links=has_links)]

    assert names("n", has_links=True) == ["a", "b", "kubernetes"]
    assert names("n", has_links=False) == ["kubernetes"]
    assert names("default", has_links=True) == ["elsewhere", "kubernetes"]


def test_of_two_services_named_kubernetes_the_pods_own_counts():
    services = [a_service("kubernetes", "10.0.0.9", namespace="n"), a_service("kubernetes", "10.96.0.1")]

    for order in (services, services[::-1]):
        assert [each["spec"]["clusterIP"] for each in linked_services(order, "n", has_links=True)] == ["10.0.0.9"]
