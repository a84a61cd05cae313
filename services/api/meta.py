"""Parts common to all kinds: metadata, keys, owner references, conditions, and the declaration of a kind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

Document = dict[str, Any]
"""One whole JSON object, decoded. Unknown fields survive because documents are patched, not rebuilt."""


def metadata_of(document: Document) -> Document:
    """Return the metadata of a document from a client; empty if it is not an object."""
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


class Key(NamedTuple):
    """Key of an object: `(namespace, name)`; cluster-scoped objects have the empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(document: Document) -> Key:
    """Return namespace and name of a document; missing ones are empty."""
    metadata = metadata_of(document)
    return Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all typed, frozen views over documents. Unknown fields are ignored on decode."""


class Mark(View, frozen=True):
    """A member of a union without fields of its own: only its presence matters."""


class OwnerReference(View, frozen=True):
    """Reference to an owner of the object; at most one reference has `controller: true`."""

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
        """The resource version as an integer; 0 when unset."""
        return int(self.resource_version) if self.resource_version else 0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if any."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None


class ObjectView(View, frozen=True):
    """Base of the views of whole objects."""

    metadata: ObjectMeta = ObjectMeta()


class AnyObject(View, frozen=True):
    """A view of what any object has; for components that treat all kinds alike (garbage collector, namespace)."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ObjectReference(View, frozen=True):
    """Reference to an object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


class Condition(View, frozen=True):
    """Entry of `status.conditions`. `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: int = 0


class LabelSelectorRequirement(View, frozen=True):
    """Requirement `key operator values`; operator is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    """A label query; `matchLabels` and `matchExpressions` are ANDed. Empty selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def condition_status(conditions: tuple[Condition, ...], condition_type: str) -> str:
    """Return the status of the condition of that type: "True", "False" or "Unknown"; empty if there is none."""
    found = find_condition(conditions, condition_type)
    return found.status if found is not None else ""


def find_condition(conditions: tuple[Condition, ...], condition_type: str) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == condition_type), None)


NONE = "<none>"
Cell = Callable[[Document, float], Any]
"""Function from `(document, wall clock in seconds)` to the value of a table cell."""


@dataclass(frozen=True)
class Column:
    """A column that `kubectl get` prints; `priority` 1 shows with `-o wide` only.

    `source`: the path of the value (`status.phase`), or a function that computes the cell. `show` formats an
    existing value; `default` replaces an absent or empty one. `is_age`: a timestamp is shown as its age.
    `description`: the meaning of the column, where its name is not enough.
    """

    name: str
    source: str | Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    default: Any = ""
    show: Callable[[Any], Any] | None = None
    is_age: bool = False
    description: str = ""


NAME = Column("Name", "metadata.name", format="name")


AGE = Column("Age", "metadata.creationTimestamp", default="<unknown>", is_age=True)


@dataclass(frozen=True)
class Resource:
    """One kind as the API serves it. By default it has the name of its view, and the lower-case plural with "s".

    `view` is the frozen Struct that components decode; `subresources` are served besides the object; `columns` make
    the table of `kubectl get`. `selectable_fields` maps a field selector's label to its value in the document
    (beyond metadata.name and metadata.namespace).
    `has_generation`: `metadata.generation` is 1 at first and counts changes of the spec. `gate` is the feature gate
    without which clients find no such kind; stored objects stay. `is_of_clients`: no component decides anything by
    such objects; a component that reads all kinds reads them only where a controller of this very kind runs.
    `deprecated`: the warning in answers about it.
    `singular`, `list_kind`: the name of the kind in a command (`pod`) and the kind of its lists (`PodList`).
    `verbs`: the verbs that discovery lists; () is all.
    """

    view: type[View] = AnyObject
    group: str = ""
    kind: str = ""
    plural: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    gate: str = ""
    is_of_clients: bool = False
    deprecated: str = ""
    columns: tuple[Column, ...] = ()
    selectable_fields: dict[str, Callable[[Document], str]] = field(default_factory=dict)
    singular: str = ""
    list_kind: str = ""
    verbs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or self.view.__name__)
        object.__setattr__(self, "singular", self.singular or self.kind.lower())
        object.__setattr__(self, "plural", self.plural or f"{self.singular}s")
        object.__setattr__(self, "list_kind", self.list_kind or f"{self.kind}List")

    @property
    def name(self) -> str:
        """The name on the wire: `pods`, `replicasets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, as in refusals: `Pod`, `ReplicaSet.apps`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def api_version(self) -> str:
        """The API version: `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version
