"""The order of visiting nodes: zones in turn."""

from scheduler.cache.cache import NodeTree

ZONES = {"a": "z1", "b": "z1", "c": "z1", "d": "z2", "e": "z3", "f": "z3"}


def test_zones_are_visited_in_turn():
    tree = NodeTree()
    for name, zone in ZONES.items():
        tree.set(name, {"topology.kubernetes.io/zone": zone})

    assert tree.order() == ["a", "d", "e", "b", "f", "c"]
