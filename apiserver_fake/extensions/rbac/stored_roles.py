"""The policy of the stored Roles and bindings, read again only when one of them changed."""

from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from apiserver_fake.registry.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    KINDS,
    ROLE_BINDINGS,
    ROLES,
    Binding,
    Policy,
    PolicyRule,
    Role,
    RoleRef,
    Subject,
)
from apiserver_fake.storage.records import Change, Record, Selection
from apiserver_fake.storage.store import Store
from services.api.meta import View

T = TypeVar("T", "_Role", "_Binding")
_WATCHED = frozenset(KINDS)


class _Role(View, frozen=True):
    rules: tuple[PolicyRule, ...] | None = None


class _Binding(View, frozen=True):
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] | None = None


class StoredRoles:
    """Returns the policy of the committed Roles and bindings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._policy: Policy | None = None
        self._decoded: dict[tuple[str, str, str], tuple[int, _Role | _Binding]] = {}

    def note(self, changes: Iterable[Change]) -> None:
        """Take in committed changes."""
        for change in changes:
            if change.record.resource in _WATCHED:
                self._policy = None
                if change.type == "DELETED":
                    self._decoded.pop(_key(change.record), None)

    def current(self) -> Policy:
        """Return the policy as of the newest commit."""
        if self._policy is None:
            roles = [
                Role(record.namespace, record.name, self._read(record, _Role).rules or ())
                for kind in (CLUSTER_ROLES, ROLES)
                for record in self._store.select(kind, Selection()).records
            ]
            bindings = []
            for kind in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
                for record in self._store.select(kind, Selection()).records:
                    binding = self._read(record, _Binding)
                    bindings.append(Binding(record.namespace, record.name, binding.role_ref, binding.subjects or ()))
            self._policy = Policy(roles, bindings)
        return self._policy

    def _read(self, record: Record, form: type[T]) -> T:
        """Return what a record says, decoded once for as long as it stays as it is."""
        known = self._decoded.get(_key(record))
        if known is None or known[0] != record.rv:
            known = self._decoded[_key(record)] = (record.rv, msgspec.json.decode(record.body, type=form))
        return cast("T", known[1])


def _key(record: Record) -> tuple[str, str, str]:
    return record.resource, record.namespace, record.name
