"""Assignment of nodes to kubelet processes: nodes of the mesh's start, and nodes of `keplab scale`."""

from pathlib import Path

from services.api.identity import Hosting
from services.runtime.components import block_sizes
from services.runtime.mesh.options import MeshOptions

NODE_PREFIX = "node-"
"""Name prefix of nodes without definitions of their own."""
SCALED = "scaled"
"""Name of the host process for nodes that `keplab scale` adds while the mesh runs."""
SCALED_PREFIX = "node-00"
"""Name prefix of those nodes, because a token must name its host's nodes before they exist.

With a six-digit serial number the prefix covers ten thousand nodes, and no node of the mesh's start.
"""
SCALED_FILE = f"kubelet/{SCALED}-nodes.json"
"""File with the definitions of those nodes, for the next start of the mesh."""


def node_blocks(options: MeshOptions) -> list[tuple[str, tuple[int, int]]]:
    """Return (host, (first node, number of nodes)): the nodes are distributed over the hosts in blocks."""
    sizes = block_sizes(options.nodes, options.hosts)
    return [(f"h{i}", (sum(sizes[:i]), size)) for i, size in enumerate(sizes)]


def hosting(options: MeshOptions) -> dict[str, Hosting]:
    """Return the nodes that each kubelet host may act for, by host: the nodes that it is started with."""
    names = {host: [str(node["name"]) for node in nodes] for host, nodes in options.definitions.items()} or {
        host: [f"{NODE_PREFIX}{number}" for number in range(first, first + count)]
        for host, (first, count) in node_blocks(options)
    }
    own_nodes = {host: Hosting(frozenset(own), stages=options.stages) for host, own in names.items()}
    return {**own_nodes, SCALED: Hosting(node_prefix=SCALED_PREFIX, stages=options.stages)}


def scaled_nodes(data: Path) -> bytes:
    """Return the definitions of the nodes of `keplab scale`, as JSON; b"" if there never were any. Raises: OSError."""
    try:
        return (data / SCALED_FILE).read_bytes()
    except FileNotFoundError:
        return b""
