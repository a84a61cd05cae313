"""Metadata, keys, owner references and conditions: what all kinds share."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

Document = dict[str, Any]
"""One whole JSON object, decoded. Unknown fields survive because documents are patched, not rebuilt."""


class Key(NamedTuple):
    """`(namespace, name)`; cluster-scoped objects have the empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all typed, frozen views over documents. Unknown fields are ignored on decode."""


class OwnerReference(View, frozen=True):
    """Who owns this object; at most one reference has `controller: true`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True):
    """The fields of `metadata` that components read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """`(namespace, name)`."""
        return Key(self.namespace, self.name)

    @property
    def rv(self) -> int:
        """The resource version as the integer it is; 0 when unset."""
        return int(self.resource_version) if self.resource_version else 0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if any."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None


class Condition(View, frozen=True):
    """One entry of `status.conditions`. `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    observed_generation: int = 0


class LabelSelectorRequirement(View, frozen=True):
    """`key operator values`; operator is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    """A label query; `matchLabels` and `matchExpressions` are ANDed. Empty selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class AnyObject(View, frozen=True):
    """A view of what any object has; for components that treat all kinds alike (garbage collector, namespace)."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


def find_condition(conditions: tuple[Condition, ...], condition_type: str) -> Condition | None:
    """Return the condition of that type, or None."""
    for condition in conditions:
        if condition.type == condition_type:
            return condition
    return None
