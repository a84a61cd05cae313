"""The register of kinds: which resources exist, how they are spelled, and their typed views.

Each file in `kinds/` offers `RESOURCE` (and usually a view class). Adding a kind is adding a file.
Discovery, REST paths, gRPC, informers and tables are all fed from here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from services.api.meta import AnyObject, Document, View

Cell = Callable[[Document, float], Any]
"""`(document, wall clock in seconds)` to what a table shows of it."""


@dataclass(frozen=True)
class Column:
    """A column that `kubectl get` prints; `priority` 1 shows with `-o wide` only.

    `source`: where the value stands (`status.phase`), or a function that computes the cell. `show` formats a value that
    is there, `default` stands for one that is absent or "".
    """

    name: str
    source: str | Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""
    default: Any = ""
    show: Callable[[Any], Any] | None = None

    def cell(self, document: Document, now_wall_s: float) -> Any:
        """Return what the column shows of one object."""
        if not isinstance(self.source, str):
            return self.source(document, now_wall_s)
        value: Any = document
        for name in self.source.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None or value == "":
            return self.default
        return value if self.show is None else self.show(value)


@dataclass(frozen=True)
class Resource:
    """One kind as the API serves it.

    `view` is the frozen Struct that components decode; `subresources` are served besides the object;
    `columns` make the table of `kubectl get`. `selectable_fields` maps a field selector's
    label to its value in the document (beyond metadata.name and metadata.namespace).
    `has_spec` says that `metadata.generation` counts changes of the spec.
    """

    kind: str
    plural: str
    singular: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    view: type[View] = AnyObject
    has_spec: bool = False
    columns: tuple[Column, ...] = ()
    selectable_fields: dict[str, Callable[[Document], str]] = field(default_factory=dict)

    def cells(self, document: Document, now_wall_s: float) -> list[Any]:
        """Return one object's row in the table of `kubectl get`."""
        return [column.cell(document, now_wall_s) for column in self.columns]

    @property
    def name(self) -> str:
        """The wire's name: `pods`, `replicasets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


@cache
def resources() -> dict[str, Resource]:
    """Return every served resource by wire name, sorted by name."""
    # By name, not by import statement: the register finds its entries, which import the register.
    folder = importlib.import_module("services.api.kinds")
    found: dict[str, Resource] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        resource: Resource = importlib.import_module(f"{folder.__name__}.{module}").RESOURCE
        if resource.name in found:
            raise ValueError(f"two files in kinds/ offer {resource.name}")
        found[resource.name] = resource
    return dict(sorted(found.items()))


@cache
def _by_kind() -> dict[tuple[str, str], Resource]:
    return {(r.api_version, r.kind): r for r in resources().values()}


@cache
def _by_view() -> dict[type[View], Resource]:
    return {r.view: r for r in resources().values() if r.view is not AnyObject}


def resource_of_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource serving that apiVersion and kind, or None."""
    return _by_kind().get((api_version, kind))


def resource_of_view(view: type[View]) -> Resource:
    """Return the resource whose typed view this is.

    Raises: KeyError for a view that no kind registered.
    """
    return _by_view()[view]
