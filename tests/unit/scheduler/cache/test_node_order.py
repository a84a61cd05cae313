"""The order of visiting nodes, with zones in turn or as nodes came."""

from scheduler.cache.node_tree import NodeTree

ZONES = {"a": "z1", "b": "z1", "c": "z1", "d": "z2", "e": "z3", "f": "z3"}


def order(*, by_zone):
    tree = NodeTree(by_zone=by_zone)
    for name, zone in ZONES.items():
        tree.set(name, {"topology.kubernetes.io/zone": zone})
    return tree.order()


def test_zones_are_visited_in_turn():
    assert order(by_zone=True) == ["a", "d", "e", "b", "f", "c"]


def test_nodes_are_visited_as_they_came():
    assert order(by_zone=False) == ["a", "b", "c", "d", "e", "f"]
