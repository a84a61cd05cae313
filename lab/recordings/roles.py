"""Roles of objects, by which the objects of two runs are compared. Pure.

Uids and generated names mean nothing: the role of an owned pod is its number in the order of creation, and that
of a bare object is its name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

PLAIN: Final = ("", "default")
"""Namespaces that are left out of roles."""
DEPARTED_MAX: Final = 10_000
NAMES_MAX: Final = 50_000


class Roles:
    """Roles of objects by uid, learned from first versions in order.

    Deleted objects stay known for a while; of names without an owner the latest `NAMES_MAX` are counted.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, str] = {}
        self._owners: dict[str, tuple[str, str]] = {}
        """Of each object its kind, and what the roles of those begin with that it owns."""
        self._counts: dict[str, int] = {}
        """By what roles begin with: how many an owner has."""
        self._named: dict[str, int] = {}
        """By role: how many objects of that name there were."""
        self._departed: dict[str, None] = {}

    def learn(self, uid: str, kind: str, namespace: str, name: str, owners: Iterable[str] = ()) -> bool:
        """Give an object its role, the next one of its owner; return whether the object is new.

        `owners`: uids of the owners; the first known one counts.
        """
        if uid in self._by_uid:
            return False
        kind = kind.lower()
        owner_kind, stem, role = self._next(kind, namespace, name, map(self._owners.get, owners))
        self._by_uid[uid] = role
        # The pods of a Deployment are counted over all of its ReplicaSets, whose names are generated.
        is_revision = (kind, owner_kind) == ("replicaset", "deployment")
        self._owners[uid] = kind, stem.rpartition("/")[0] if is_revision else role
        return True

    def knows(self, uid: str) -> bool:
        """Return whether that object has its role."""
        return uid in self._by_uid

    def of_pod(self, uid: str, namespace: str, name: str, owners: Iterable[str], role_of: Callable[[str], str]) -> str:
        """Return the role of a new pod, which the caller keeps. `role_of`: returns the role of another pod, for an
        owner's uid; empty string if there is no such pod.
        """
        known = (self._owners.get(owner) or (("pod", role) if (role := role_of(owner)) else None) for owner in owners)
        return self._next("pod", namespace, name, known)[2]

    def _next(
        self, kind: str, namespace: str, name: str, owners: Iterable[tuple[str, str] | None]
    ) -> tuple[str, str, str]:
        """Return the kind of the owner ("": none is known), what the role begins with, and the role."""
        owner_kind, stem = next((owner for owner in owners if owner is not None), ("", ""))
        is_owned = bool(owner_kind)
        if not is_owned:
            stem = f"{namespace}/{kind}/{name}" if namespace not in PLAIN else f"{kind}/{name}"
        elif kind != "pod":
            stem = f"{stem}/{kind}"
        counts = self._counts if is_owned else self._named
        number = counts.get(stem, 0)
        counts[stem] = number + 1
        if len(self._named) > 2 * NAMES_MAX:
            for old in list(self._named)[:NAMES_MAX]:
                del self._named[old]
        return owner_kind, stem, f"{stem}#{number}" if is_owned or number else stem

    def depart(self, uid: str) -> None:
        """Note that an object is deleted. The latest `DEPARTED_MAX` of these stay known, since other objects may still
        name them.
        """
        if uid not in self._by_uid:
            return
        self._departed[uid] = None
        if len(self._departed) > DEPARTED_MAX:
            oldest = next(iter(self._departed))
            del self._departed[oldest]
            self._owners.pop(oldest, None)
            self._counts.pop(self._by_uid.pop(oldest, ""), None)

    def of(self, uid: str, otherwise: str = "") -> str:
        """Return the role of the object with that uid; `otherwise`: the result if no version of it was seen."""
        return self._by_uid.get(uid, otherwise or uid)


def parts_of(role: str) -> tuple[str, int]:
    """Split a role into the text before its number, and 1 + the number; 0 if it has no number."""
    stem, sign, number = role.rpartition("#")
    return (stem, int(number) + 1) if sign and number.isdecimal() else (role, 0)


def role_of_parts(stem: str, number: int) -> str:
    """Return the role for the parts that `parts_of` returns."""
    return f"{stem}#{number - 1}" if number else stem


class KnownRoles(Roles):
    """Roles that were all learned before; nothing new is learned."""

    def __init__(self, roles: Mapping[str, str]) -> None:
        super().__init__()
        self._known = roles

    def learn(self, uid: str, kind: str, namespace: str, name: str, owners: Iterable[str] = ()) -> bool:
        """Ignore the object; return False."""
        return False

    def of_pod(self, uid: str, namespace: str, name: str, owners: Iterable[str], role_of: Callable[[str], str]) -> str:
        """Return the role of the pod with that uid."""
        return self.of(uid, name)

    def of(self, uid: str, otherwise: str = "") -> str:
        """Return the role of the object with that uid."""
        return self._known.get(uid, otherwise or uid)
