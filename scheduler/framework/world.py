"""The scheduler's view of kinds other than pods and nodes: budgets, volumes, groups, namespaces.

Pods and nodes live in the cache, because the scheduler changes its view of them before the API server does.
All other kinds are only read, and the informers' objects are good enough. Adding a kind is a line in
`WORLD_KINDS`: its changes then wake rejected pods by events of that kind's name (scheduler-queue-and-cycles
2.4, last row).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from scheduler.framework.events import Action, ClusterEvent
from scheduler.switches import WorldSwitches
from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.csinode import CSINode
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.devicetaintrule import DeviceTaintRule
from services.api.kinds.namespace import Namespace
from services.api.kinds.noderesourcetopology import NodeResourceTopology
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.kinds.service import Service
from services.api.kinds.statefulset import StatefulSet
from services.api.kinds.storageclass import StorageClass
from services.api.meta import Key, View
from services.api.resources import resource_of_view
from services.api.switches import Switches
from services.reconcile.controller import Change

V = TypeVar("V", bound=View)

WORLD_KINDS: Final[tuple[type[View], ...]] = (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    DeviceClass,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PodGroup,
    ReplicaSet,
    ResourceClaim,
    ResourceSlice,
    Service,
    StatefulSet,
    StorageClass,
)
"""The kinds that are followed, besides pods and nodes."""


def followed_kinds(switches: Switches) -> tuple[type[View], ...]:
    """Return the kinds that a scheduler with these switches follows."""
    more: list[type[View]] = []
    if switches.of(WorldSwitches).numa_scheduler != "none":
        more.append(NodeResourceTopology)
    if switches.of(WorldSwitches).has_taint_rules:
        more.append(DeviceTaintRule)
    return (*WORLD_KINDS, *more)


class Lister(Protocol):
    """The methods of an informer's store that a world uses."""

    def get(self, key: Key) -> Any: ...  # noqa: D102
    def all(self, namespace: str = "") -> list[Any]: ...  # noqa: D102
    def on_change(self, handler: Callable[[Change[Any]], None]) -> None: ...  # noqa: D102


class World:
    """Read-only access to the known objects of the other kinds: informers' stores, by view class.

    A kind without a store is empty.
    """

    def __init__(self, listers: Mapping[type[View], Lister]) -> None:
        self._listers = listers

    def get(self, view: type[V], key: Key) -> V | None:
        """Return the object, or None; the key of a cluster-scoped one has no namespace."""
        lister = self._listers.get(view)
        found: V | None = lister.get(key) if lister is not None else None
        return found

    def all(self, view: type[V], namespace: str = "") -> Sequence[V]:
        """Return all objects, or those of one namespace, in the order in which they came."""
        lister = self._listers.get(view)
        return lister.all(namespace) if lister is not None else ()

    def on_change(self, view: type[View], handler: Callable[[Change[Any]], None]) -> None:
        """Call `handler` with every change of that kind from now on, after it can be read here."""
        lister = self._listers.get(view)
        if lister is not None:
            lister.on_change(handler)


class _Objects(dict[Key, Any]):
    """The objects of one kind by key, as an informer's store offers them."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: list[Callable[[Change[Any]], None]] = []
        self.on_change = self._handlers.append

    def notify(self, change: Change[Any]) -> None:
        for handler in self._handlers:
            handler(change)

    def all(self, namespace: str = "") -> list[Any]:
        return [each for each in self.values() if not namespace or each.metadata.namespace == namespace]


class FixedWorld(World):
    """A world made of objects, without informers: for benchmarks and tests."""

    def __init__(self, *objects: View) -> None:
        kinds: tuple[type[View], ...] = (*WORLD_KINDS, NodeResourceTopology, DeviceTaintRule)
        self._objects = {view: _Objects() for view in kinds}
        super().__init__(self._objects)
        for each in objects:
            self.put(each)

    def put(self, item: Any) -> None:
        """Add the object, or replace it by its newer form."""
        objects, key = self._objects[type(item)], item.metadata.key
        change = Change(objects.get(key), item)
        objects[key] = item
        objects.notify(change)

    def delete(self, item: Any) -> None:
        """Remove the object."""
        objects = self._objects[type(item)]
        old = objects.pop(item.metadata.key, None)
        if old is not None:
            objects.notify(Change(old, None))


def world_event(view: type[View], old: View | None, new: View | None) -> ClusterEvent:
    """Return the event of a change of another kind: `PersistentVolumeAdd` and so on.

    A taint rule that comes, changes or goes is an update of slices, for plugins see these with the rules'
    taints. Source: upstream `staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker`.
    """
    if view is DeviceTaintRule:
        kind = resource_of_view(ResourceSlice).kind
        return ClusterEvent(kind, Action.UPDATE_OTHER, f"{kind}Update")
    kind = resource_of_view(view).kind
    if old is None:
        return ClusterEvent(kind, Action.ADD, f"{kind}Add")
    if new is None:
        return ClusterEvent(kind, Action.DELETE, f"{kind}Delete")
    return ClusterEvent(kind, Action.UPDATE_OTHER, f"{kind}Update")
