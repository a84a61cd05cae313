"""Ownership of objects: the single controller reference, adoption and release.

Source: controllers 1.4; upstream `ControllerRefManager`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.deployment import Deployment
from services.api.kinds.job import Job
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.replicationcontroller import ReplicationController
from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Document, Key, ObjectMeta, OwnerReference, View
from services.api.resources import resource_of_view
from services.api.selectors import Selector, from_label_selector
from services.reconcile import writes
from services.reconcile.actions import Described, Patch
from services.reconcile.controller import Change, Lister, Listers
from services.reconcile.writes import controller_reference

V = TypeVar("V", ControllerRevision, Pod, ReplicaSet)
Workload = ReplicaSet | Deployment | Job | DaemonSet | StatefulSet | ReplicationController


@dataclass(frozen=True)
class Claim(Generic[V]):
    """Result of claiming objects. `kept` includes `adopted`."""

    kept: tuple[V, ...]
    adopted: tuple[V, ...]
    released: tuple[V, ...]


def is_owner(reference: OwnerReference | None, view: type[View]) -> bool:
    """Whether the reference names an object of that kind, in any version of its group."""
    if reference is None:
        return False
    resource = resource_of_view(view)
    return reference.kind == resource.kind and reference.api_version.rpartition("/")[0] == resource.group


def owner_key(view: type[View], metadata: ObjectMeta) -> Key | None:
    """Return the key of the controlling object of that kind, or None."""
    reference = metadata.controller if metadata.owner_references else None
    if reference is None or reference.kind != resource_of_view(view).kind or not is_owner(reference, view):
        return None
    return Key(metadata.namespace, reference.name)


def is_alive(live: View | None, owner: Workload) -> bool:
    """Whether the live read shows the same owner, not being deleted; only then may it adopt."""
    return (
        isinstance(live, type(owner))
        and live.metadata.uid == owner.metadata.uid
        and live.metadata.deletion_timestamp is None
    )


def selector_of(owner: Workload) -> Selector | None:
    """Return the selector; None if it is missing, empty (it would match every pod) or invalid."""
    wanted = owner.spec.selector
    if wanted is None or not (wanted.match_labels or wanted.match_expressions):
        return None
    try:
        return from_label_selector(wanted)
    except ValueError:
        return None


def claim(
    owned: Iterable[V], orphans: Iterable[V], owner: Workload, selector: Selector, *, can_adopt: bool
) -> Claim[V]:
    """Return the objects to keep, adopt and release.

    Owned and matching objects are kept. Owned objects that do not match are released, unless the owner is being
    deleted. `orphans`: candidates for adoption, if `can_adopt`.
    """
    kept: list[V] = []
    released: list[V] = []
    for candidate in owned:
        reference = candidate.metadata.controller
        if reference is None or reference.uid != owner.metadata.uid:
            continue
        if selector.matches(candidate.metadata.labels):
            kept.append(candidate)
        elif owner.metadata.deletion_timestamp is None:
            released.append(candidate)
    adopted: tuple[V, ...] = tuple(orphans) if can_adopt else ()
    return Claim(tuple(kept) + adopted, adopted, tuple(released))


def owners_of(view: type[Workload], change: Change[V], listers: Listers) -> list[Key]:
    """Return the old and new owner of an object; for an orphan, the owners that would adopt it."""
    keys: dict[Key, None] = {}
    for side in (change.old, change.new):
        if side is not None and (key := owner_key(view, side.metadata)) is not None:
            keys[key] = None
    if change.new is not None and change.new.metadata.deletion_timestamp is None:
        keys.update(dict.fromkeys(adopters(view, change.new, listers)))
    return list(keys)


def adopters(view: type[Workload], orphan: Described, listers: Listers) -> list[Key]:
    """Return the owners of that kind whose selector matches an object without a controller."""
    meta = orphan.metadata
    if meta.controller is not None:
        return []
    owners = listers.of(view).all(meta.namespace)
    return [o.metadata.key for o in owners if (found := selector_of(o)) and found.matches(meta.labels)]


def _is_adoptable(candidate: Described, selector: Selector) -> bool:
    """Whether this object has no controller, is not being deleted, and the selector matches it."""
    metadata = candidate.metadata
    return metadata.controller is None and metadata.deletion_timestamp is None and selector.matches(metadata.labels)


def changes_of(resource: str, claims: Claim[V], owner: Workload) -> list[Patch]:
    """Return the patches that carry out a claim; each contains the object's uid."""
    adoption: Document = controller_reference(owner)
    release: Document = {"$patch": "delete", "uid": owner.metadata.uid}
    return [
        writes.patch(resource, each, {"metadata": {"ownerReferences": [reference]}}, is_strategic=True)
        for reference, chosen in ((adoption, claims.adopted), (release, claims.released))
        for each in chosen
    ]


class Orphans:
    """Objects of a kind without a controller, by namespace; a watch keeps it up to date.

    It saves a scan of a whole namespace on every reconcile.
    """

    def __init__(self) -> None:
        self._keys: dict[str, dict[Key, None]] = {}

    def note(self, old: V | None, new: V | None) -> None:
        """Apply a change of an object."""
        if old is not None and new is not None and old.metadata.owner_references == new.metadata.owner_references:
            return  # whether it has a controller was noted when it came
        if new is not None and new.metadata.controller is None:
            self._keys.setdefault(new.metadata.namespace, {})[new.metadata.key] = None
        elif (gone := new or old) is not None:
            self._keys.get(gone.metadata.namespace, {}).pop(gone.metadata.key, None)

    def adoptable(self, lister: Lister[V], namespace: str, selector: Selector) -> list[V]:
        """Return the orphans of one namespace that the selector matches, in the order they became orphans."""
        found = (lister.get(key) for key in self._keys.get(namespace, ()))
        return [each for each in found if each is not None and _is_adoptable(each, selector)]
