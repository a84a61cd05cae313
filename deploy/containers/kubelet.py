"""Start a kubelet host that takes its names and addresses from its container.

Containers of one service share their configuration, so what must differ between them is found out here:
the host's name and its nodes' names from the container's hostname, the address where its logs are served
and its nodes' pod networks from the container's address, a folder of its own in the shared volume. A variable that is
set already wins.
"""

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping

NODES_PER_HOST_MAX = 256


def settings(hostname: str, address: str, data_dir: str) -> Mapping[str, str]:
    """Return the environment of the host that runs in this container.

    The number of its first node decides the nodes' pod networks; taken from the address, it is another one in
    every container of a network (of up to 128).
    """
    first = (int(ipaddress.ip_address(address)) & 0x7F) * NODES_PER_HOST_MAX
    return {
        "KEPLAB_NAME": f"kubelet/{hostname}",
        "KEPLAB_NAME_PREFIX": f"{hostname}-",
        "KEPLAB_FIRST": str(first),
        "KEPLAB_ADDRESS": address,
        "KEPLAB_DATA_DIR": f"{data_dir}/{hostname}",
    }


def main() -> None:
    """Become the kubelet host."""
    hostname = socket.gethostname()
    for name, value in settings(hostname, socket.gethostbyname(hostname), "/data").items():
        os.environ.setdefault(name, value)
    os.execv(sys.executable, [sys.executable, "-m", "kubelet", *sys.argv[1:]])


if __name__ == "__main__":
    main()
