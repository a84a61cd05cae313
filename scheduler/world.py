"""What the scheduler knows of kinds other than pods and nodes: budgets, volumes, groups, namespaces.

Pods and nodes live in the cache, because the scheduler changes its mind about them before the API server
does. All else is only read, and what informers hold is good enough. Adding a kind is a line in `WORLD_KINDS`:
its changes then wake rejected pods by events of that kind's name (section 2.4, last row).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from scheduler.framework.events import Action, ClusterEvent
from services.api.kinds.namespace import Namespace
from services.api.kinds.poddisruptionbudget import PodDisruptionBudget
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.service import Service
from services.api.meta import Key, View
from services.api.resources import resource_of_view

V = TypeVar("V", bound=View)

WORLD_KINDS: Final[tuple[type[View], ...]] = (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
)
"""The kinds that are followed, besides pods and nodes."""


class World(Protocol):
    """Read-only access to what is known of the other kinds."""

    def get(self, view: type[V], key: Key) -> V | None:
        """Return the object, or None; the key of a cluster-scoped one has no namespace."""
        ...

    def all(self, view: type[V], namespace: str = "") -> Sequence[V]:
        """Return all objects, or those of one namespace, in the same order every time."""
        ...


class Lister(Protocol):
    """What a world needs of an informer's store."""

    def get(self, key: Key) -> Any: ...  # noqa: D102
    def all(self, namespace: str = "") -> list[Any]: ...  # noqa: D102


class ListedWorld:
    """A world over informers' stores, by view class. A kind that nobody follows is empty."""

    def __init__(self, listers: Mapping[type[View], Lister]) -> None:
        self._listers = dict(listers)

    def get(self, view: type[V], key: Key) -> V | None:
        """Return the object, or None."""
        lister = self._listers.get(view)
        found: V | None = lister.get(key) if lister is not None else None
        return found

    def all(self, view: type[V], namespace: str = "") -> Sequence[V]:
        """Return all objects, in the order in which they came."""
        lister = self._listers.get(view)
        return lister.all(namespace) if lister is not None else ()


class FixedWorld:
    """A world made of objects, for whoever has no informers: benchmarks and tests."""

    def __init__(self, *objects: View) -> None:
        self._objects: dict[type[View], dict[Key, Any]] = {}
        for each in objects:
            self.put(each)

    def put(self, item: Any) -> None:
        """Know the object, or its newer form."""
        self._objects.setdefault(type(item), {})[item.metadata.key] = item

    def delete(self, item: Any) -> None:
        """Forget the object."""
        self._objects.get(type(item), {}).pop(item.metadata.key, None)

    def get(self, view: type[V], key: Key) -> V | None:
        """Return the object, or None."""
        return self._objects.get(view, {}).get(key)

    def all(self, view: type[V], namespace: str = "") -> Sequence[V]:
        """Return all objects in the order in which they were put."""
        found: Iterable[V] = self._objects.get(view, {}).values()
        return [each for each in found if not namespace or each.metadata.namespace == namespace]  # type: ignore[attr-defined]


def world_event(view: type[View], old: View | None, new: View | None) -> ClusterEvent:
    """Return what a change of one of the other kinds is called: `PersistentVolumeAdd` and so on."""
    kind = resource_of_view(view).kind
    if old is None:
        return ClusterEvent(kind, Action.ADD, f"{kind}Add")
    if new is None:
        return ClusterEvent(kind, Action.DELETE, f"{kind}Delete")
    return ClusterEvent(kind, Action.UPDATE_OTHER, f"{kind}Update")
