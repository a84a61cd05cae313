"""NodeResourceTopology: available resources of each NUMA node of a node (topology.node.k8s.io/v1alpha2).

It is not part of Kubernetes itself: the node feature discovery's topology updater defines the API, and
NUMA-aware schedulers read it. Here the kubelet writes it. The attribute `keplabCountedPods` is keplab's own: it
lists the pods that the figures include.
"""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View

POLICY, SCOPE = "topologyManagerPolicy", "topologyManagerScope"
COUNTED_PODS = "keplabCountedPods"
"""Attribute name: uids of the pods whose allocations are in `available`, comma-separated."""


class Attribute(View, frozen=True):
    """A named text attribute of the whole node."""

    name: str = ""
    value: str = ""


class ZoneResource(View, frozen=True):
    """One resource of one zone; quantities as text."""

    name: str = ""
    capacity: str = "0"
    allocatable: str = "0"
    available: str = "0"


class Zone(View, frozen=True):
    """A NUMA node: `node-0`, `node-1` and so on."""

    name: str = ""
    type: str = "Node"
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(ObjectView, frozen=True):
    """The topology of the node of the same name."""

    attributes: tuple[Attribute, ...] = ()
    zones: tuple[Zone, ...] = ()

    def attribute(self, name: str) -> str:
        """Return the attribute's value; empty if there is none."""
        return next((each.value for each in self.attributes if each.name == name), "")


RESOURCE = Resource(
    NodeResourceTopology,
    plural="noderesourcetopologies",
    group="topology.node.k8s.io",
    version="v1alpha2",
    namespaced=False,
    short_names=("node-res-topo",),
    columns=(NAME, Column("Zones", "zones", "integer", default=0, show=len), AGE),
)
