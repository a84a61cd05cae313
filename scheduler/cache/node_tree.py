"""The order in which nodes are visited: round-robin over zones, so that sampling spreads.

Zones come in the order they were first seen, nodes inside a zone likewise: z1n1, z2n1, z3n1, z1n2, …
Source: scheduler-queue-and-cycles 3.
"""

from __future__ import annotations

from collections.abc import Mapping

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
Zone = tuple[str, str]


def zone_of(labels: Mapping[str, str]) -> Zone:
    """Return `(region, zone)` of a node's labels; both empty when unlabelled."""
    return labels.get(REGION, ""), labels.get(ZONE, "")


class NodeTree:
    """Names by zone. `version` counts changes, so that an order can be kept."""

    def __init__(self) -> None:
        self.version = 0
        self._zones: dict[Zone, dict[str, None]] = {}
        self._zone_by_name: dict[str, Zone] = {}

    def set(self, name: str, labels: Mapping[str, str]) -> None:
        """Add the node, or move it to its new zone."""
        zone = zone_of(labels)
        if self._zone_by_name.get(name) == zone:
            return
        self.remove(name)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_by_name[name] = zone
        self.version += 1

    def remove(self, name: str) -> None:
        """Forget the node; a zone without nodes loses its place."""
        zone = self._zone_by_name.pop(name, None)
        if zone is None:
            return
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]
        self.version += 1

    def order(self) -> list[str]:
        """Return all names, one of each zone in turn."""
        lists = [list(names) for names in self._zones.values()]
        longest = max((len(names) for names in lists), default=0)
        return [names[i] for i in range(longest) for names in lists if i < len(names)]
