"""The interface of `metadata.managedFields` for the write path: field ownership after a create, an update,
an apply.

The rules are an extension; a server without it keeps no managers and refuses to apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from services.api.errors import ApiError
from services.api.meta import Document

STATUS, SCALE = "status", "scale"


class Applied(NamedTuple):
    """The result of an apply: the object, and its `managedFields`."""

    document: Document
    managers: list[Document]


class FieldManagers(Protocol):
    """The managers of one object during one write."""

    def managers_after_create(self, sent: Any, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of a new object; [] for none. `sent`: the `managedFields` that its creator
        sent.
        """
        ...

    def managers_after_update(self, sent: Any, old: Document, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of an updated object; [] for none."""
        ...

    def apply(self, live: Document | None, config: Document, wall_s: float) -> Applied:
        """Return the object after applying the configuration. Raises: ApiError."""
        ...


class NoManagers:
    """The field managers of a server that keeps none."""

    def managers_after_create(self, sent: Any, new: Document, wall_s: float) -> list[Document]:
        """Return []."""
        return []

    def managers_after_update(self, sent: Any, old: Document, new: Document, wall_s: float) -> list[Document]:
        """Return []."""
        return []

    def apply(self, live: Document | None, config: Document, wall_s: float) -> Applied:
        """Raise ApiError: nothing can be applied without managers."""
        raise ApiError(
            "apply patches are not supported: this server keeps no field managers",
            reason="UnsupportedMediaType",
            code=415,
        )


_NONE: Final = NoManagers()


def no_managers(*about: object) -> FieldManagers:
    """Return managers that keep nothing, whatever the arguments."""
    return _NONE


def set_managers(
    managers: Callable[[], FieldManagers],
    old: Document,
    new: Document,
    sent: Any,
    managed: list[Document] | None,
    wall_s: float,
) -> None:
    """Give the new document, whose metadata is its own, its `managedFields`.

    `managed`: those that an apply has found; None: `managers` say, by what the writer `sent` of them.
    """
    managed_fields = managers().managers_after_update(sent, old, new, wall_s) if managed is None else managed
    if managed_fields:
        new["metadata"]["managedFields"] = managed_fields
