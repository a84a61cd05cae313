"""Start a kubelet host that takes its names and its address from its container.

Containers of one service share their configuration, so what must differ between them is found out here:
the names of the host and its nodes and its folder in the shared volume come from the container's hostname,
which a restart keeps; the address where its logs are served is the container's own, which a restart may change.

`KEPLAB_NODES` says how many nodes; `KEPLAB_CPU`, `KEPLAB_MEMORY` and `KEPLAB_PODS` what each of them has.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping

DATA_DIR = "/data"
NODE_PREFIX = "kubelet-"
SIZES = ("cpu", "memory", "pods")


def arguments(hostname: str, address: str, environ: Mapping[str, str]) -> list[str]:
    """Return the flags of the host that runs in this container."""
    sizes = {name: environ[f"KEPLAB_{name.upper()}"] for name in SIZES if environ.get(f"KEPLAB_{name.upper()}")}
    # One credential of all these hosts is good for nodes whose names begin so, and for no others (compose.yaml).
    name = hostname if hostname.startswith(NODE_PREFIX) else f"{NODE_PREFIX}{hostname}"
    nodes = [{"name": f"{name}-{number}", **sizes} for number in range(int(environ.get("KEPLAB_NODES", "1")))]
    found = ["--name", f"kubelet/{hostname}", "--address", address, "--data-dir", f"{DATA_DIR}/{hostname}"]
    # Named one by one: then their pod networks follow from their names and not from a number that every host counts.
    return [*found, "--nodes", "0", *(word for node in nodes for word in ("--definitions", json.dumps(node)))]


def main() -> None:
    """Become the kubelet host."""
    hostname = socket.gethostname()
    found = arguments(hostname, socket.gethostbyname(hostname), os.environ)
    os.execv(sys.executable, [sys.executable, "-m", "kubelet", *found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
