"""The addresses that pods of one node get, one after the other."""

from kubelet.pod.addresses import PodAddresses


def test_each_pod_gets_the_next_address_and_the_last_is_followed_by_the_first(a_pod):
    addresses, pod = PodAddresses("192.0.2.1", "10.64.0"), a_pod()

    given = [addresses.new_ip(pod) for _ in range(256)]

    assert (given[0], given[1], given[252], given[253], given[254]) == (
        "10.64.0.2",
        "10.64.0.3",
        "10.64.0.254",
        "10.64.0.1",
        "10.64.0.2",
    )


def test_a_pod_in_its_nodes_network_has_the_nodes_address(a_pod):
    addresses = PodAddresses("192.0.2.1", "10.64.0")

    assert addresses.new_ip(a_pod(spec={"hostNetwork": True})) == "192.0.2.1"
