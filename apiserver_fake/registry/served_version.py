"""One version in which REST serves a kind, and the conversions between it and the stored version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.schema.schemas import Shape
from apiserver_fake.registry.validation.formats import Cause
from services.api.meta import Document, Resource

Check = Callable[[Document, Document | None, str], tuple[Document, list[str], list[Cause]]]
"""Function of `(new, old, subresource)` that returns the object as it is read, the paths of dropped fields,
and its errors.
"""


@dataclass(frozen=True, eq=False)
class ServedVersion:
    """One version in which REST serves a kind.

    `resource` describes it: group, version, kind, columns; `stored` is the kind's wire name and `shape` the type of
    its objects in this version. Without conversions it is the version in which objects are stored, and their bytes
    are served as they are. `check`: for kinds whose versions have rules of their own, reads an object sent in this
    version and returns the dropped fields and its errors. `schema`: its published schema, if no component has it.
    `has_strategic_merge`: whether strategic merge patches are accepted.
    """

    resource: Resource
    stored: str
    shape: Shape
    to_stored: Conversion | None = None
    from_stored: Conversion | None = None
    check: Check | None = None
    schema: Callable[[], Document] | None = None
    has_strategic_merge: bool = True
    field_labels: Mapping[str, str] = field(default_factory=dict)
    """Names of this version's field selector labels in the stored version, where they differ."""
