"""The addresses of one node's pods. Pure."""

from kubelet.view import KubeletPod


class PodAddresses:
    """Allocates addresses of a /16 in turn, and begins again after the last one.

    `host_ip`: the node's own address. `network`: the first two or three numbers of its pods' addresses.
    """

    def __init__(self, host_ip: str, network: str) -> None:
        self._host_ip, self._network = host_ip, network
        self._last_ip = 0

    def new_ip(self, pod: KubeletPod) -> str:
        """Return an address for a pod of this node; the node's own address if the pod uses the host network."""
        self._last_ip = self._last_ip % 65000 + 1
        return self._host_ip if pod.spec.host_network else f"{self._network}.{self._last_ip % 254 + 1}"
