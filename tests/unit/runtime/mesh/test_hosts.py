"""Which process of a mesh hosts which nodes."""

from pathlib import Path

from services.api.identity import Hosting
from services.runtime.mesh.hosts import SCALED, SCALED_FILE, SCALED_PREFIX, hosting, node_blocks, scaled_nodes
from services.runtime.mesh.options import MeshOptions

SCALING = {SCALED: Hosting(node_prefix=SCALED_PREFIX)}


def test_equal_nodes_are_dealt_out_in_blocks_and_each_host_may_act_for_its_own():
    options = MeshOptions(data_dir=Path("mesh"), nodes=3, hosts=2)

    assert node_blocks(options) == [("h0", (0, 2)), ("h1", (2, 1))]
    assert hosting(options) == SCALING | {
        "h0": Hosting(frozenset(("node-0", "node-1"))),
        "h1": Hosting(frozenset(("node-2",))),
    }


def test_defined_nodes_are_their_hosts():
    options = MeshOptions(data_dir=Path("mesh"), definitions={"big": [{"name": "n1"}, {"name": "n2"}]})

    assert hosting(options) == SCALING | {"big": Hosting(frozenset(("n1", "n2")))}


def test_nodes_that_were_made_while_the_mesh_ran_are_known_the_next_time(tmp_path):
    before = scaled_nodes(tmp_path)
    (tmp_path / SCALED_FILE).parent.mkdir()
    (tmp_path / SCALED_FILE).write_bytes(b'[{"name":"node-000001"}]')

    assert (before, scaled_nodes(tmp_path)) == (b"", b'[{"name":"node-000001"}]')
