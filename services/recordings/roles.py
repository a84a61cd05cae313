"""Which object plays which role: what the objects of two runs are compared by. Pure.

Uids and generated names mean nothing: a pod of an owner is its number in the order of creation, and a bare object is
its name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

PLAIN: Final = ("", "default")
"""Namespaces that roles do not name."""


class Roles:
    """Which object plays which role, by uid, learned from first versions in their order."""

    def __init__(self) -> None:
        self._by_uid: dict[str, str] = {}
        self._owners: dict[str, tuple[str, str]] = {}
        """Of each object its kind, and what the roles of those begin with that it owns."""
        self._counts: dict[tuple[str, bool], int] = {}

    def learn(self, uid: str, kind: str, namespace: str, name: str, owners: Iterable[str] = ()) -> bool:
        """Give an object its role: the next of its owner, of whose uids the first that is known counts. Return whether
        it is new."""
        if uid in self._by_uid:
            return False
        kind = kind.lower()
        known = (self._owners.get(owner) for owner in owners)
        owner_kind, stem = next((owner for owner in known if owner is not None), ("", ""))
        is_owned = bool(owner_kind)
        if not is_owned:
            stem = f"{namespace}/{kind}/{name}" if namespace not in PLAIN else f"{kind}/{name}"
        elif kind != "pod":
            stem = f"{stem}/{kind}"
        counted = stem, is_owned
        number = self._counts.get(counted, 0)
        self._counts[counted] = number + 1
        role = self._by_uid[uid] = f"{stem}#{number}" if is_owned or number else stem
        # The pods of a Deployment are counted over all of its ReplicaSets, whose names are generated.
        is_revision = (kind, owner_kind) == ("replicaset", "deployment")
        self._owners[uid] = kind, stem.rpartition("/")[0] if is_revision else role
        return True

    def of(self, uid: str, otherwise: str = "") -> str:
        """Return the role of the object with that uid; `otherwise`: when no version of it was seen."""
        return self._by_uid.get(uid, otherwise or uid)


def parts_of(role: str) -> tuple[str, int]:
    """Return what is before the number of a role, and 1 + the number; 0 of one that has none."""
    stem, sign, number = role.rpartition("#")
    return (stem, int(number) + 1) if sign and number.isdecimal() else (role, 0)


class KnownRoles(Roles):
    """Roles that were all learned before."""

    def __init__(self, roles: Mapping[str, str]) -> None:
        super().__init__()
        self._known = roles

    def learn(self, uid: str, kind: str, namespace: str, name: str, owners: Iterable[str] = ()) -> bool:
        """Learn nothing."""
        return False

    def of(self, uid: str, otherwise: str = "") -> str:
        """Return the role of the object with that uid."""
        return self._known.get(uid, otherwise or uid)
