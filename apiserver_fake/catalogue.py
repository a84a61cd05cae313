"""What one server serves: kinds that are built in, and kinds that objects define while it runs.

A kind is stored in one version and may be served in several; only REST knows the others. The mesh, the store and the
rules see the stored version alone (walls 2). A catalogue changes between commits and never within one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from apiserver_fake.conversion import autoscaling, events
from apiserver_fake.conversion.conversion import Conversion
from apiserver_fake.conversion.served_version import ServedVersion
from apiserver_fake.errors import no_such_path, wrong_type
from apiserver_fake.schema.schemas import ANYTHING, Shape, shape_of
from apiserver_fake.strategy import Strategy, strategy_for
from services.api.errors import ApiError
from services.api.meta import Document, Resource
from services.api.metrics.apis import COMPUTED
from services.api.resources import resources

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind: how it is stored, by which rules, and in which versions it is served (the preferred one first)."""

    resource: Resource
    strategy: Strategy
    shape: Shape
    versions: tuple[ServedVersion, ...]

    @property
    def asks(self) -> bool:
        """Whether a webhook converts its objects."""
        found = [each for version in self.versions for each in (version.to_stored, version.from_stored)]
        return any(each is not None and each.rule is None for each in found)


class Definer(Protocol):
    """Reads definitions of kinds. A kind stays the same one as long as nothing changed that matters."""

    @property
    def is_converting(self) -> bool:
        """Whether conversion webhooks can be called."""
        ...

    def kind_of(self, definition: Document) -> Kind | None:
        """Return the kind that a definition defines; None while it is not served."""
        ...

    def forget(self, name: str) -> None:
        """Forget the definition of that name: it is gone."""
        ...


class Catalogue:
    """The kinds that are served, by wire name and by group version."""

    def __init__(self, defined: Iterable[Kind] = (), *, hidden: Container[str] = ()) -> None:
        """`hidden`: wire names of kinds that clients of REST find nowhere: their feature gate is off."""
        self._hidden = hidden
        self._built_in = {resource.name: _built_in(resource) for resource in resources().values()}
        self._kinds: dict[str, Kind] = {}
        self._made: dict[Hashable, Any] = {}
        self._made_of: dict[tuple[str, str], tuple[Mapping[str, ServedVersion], dict[Hashable, Any]]] = {}
        self._computed = [ServedVersion(resource, name, ANYTHING) for name, resource in COMPUTED.items()]
        self.define(defined)

    def define(self, defined: Iterable[Kind]) -> None:
        """Serve these kinds besides those that are built in, in place of what was defined before."""
        self._kinds = dict(sorted({**{kind.resource.name: kind for kind in defined}, **self._built_in}.items()))
        self._made.clear()
        self._made_of = {
            place: known for place, known in self._made_of.items() if known[0] == self.served.get(place, {})
        }

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Every kind as it is stored, by wire name, sorted."""
        return self.once("resources", lambda: {name: kind.resource for name, kind in self._kinds.items()})

    def find(self, name: str) -> Resource:
        """Return the kind of that wire name as it is stored. Raises: NotFound."""
        found = self._kinds.get(name)
        if found is None:
            raise no_such_path()
        return found.resource

    def kind(self, name: str) -> Kind:
        """Return all about the kind of that wire name. Raises: NotFound."""
        found = self._kinds.get(name)
        if found is None:
            raise no_such_path()
        return found

    def shape_of(self, api_version: str, kind: str) -> Shape:
        """Return the type of an object of that kind and version, or of a subresource's body; anything if unknown."""
        return self._shapes.get((api_version, kind)) or shape_of(api_version, kind)

    @property
    def _shapes(self) -> dict[tuple[str, str], Shape]:
        return self.once("shapes", lambda: {_type_of(each): each.shape for each in self._every_version()})

    @property
    def served(self) -> Mapping[tuple[str, str], Mapping[str, ServedVersion]]:
        """Every kind as it is served, what is computed included: by group and version, then by plural."""
        return self.once("served", self._served)

    def _served(self) -> dict[tuple[str, str], dict[str, ServedVersion]]:
        found: dict[tuple[str, str], dict[str, ServedVersion]] = {}
        for each in self._every_version():
            found.setdefault((each.resource.group, each.resource.version), {})[each.resource.plural] = each
        for each in self._computed:
            found.setdefault((each.resource.group, each.resource.version), {})[each.resource.plural] = each
        return found

    def _every_version(self) -> Iterator[ServedVersion]:
        for name, kind in self._kinds.items():
            if name not in self._hidden:
                yield from kind.versions

    def wrong_type(self, resource: Resource, api_version: str, kind: str) -> ApiError:
        """Return the refusal of a body of that type where `resource` is wanted."""
        group, _, version = api_version.rpartition("/")
        there = self.served.get((group, version), {}).values()
        is_defined = any(each.schema is not None for each in self.kind(resource.name).versions)
        is_served = any(each.resource.kind == kind for each in there)
        return wrong_type(resource, api_version, kind, is_served=is_served, is_defined=is_defined)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for as long as the catalogue stays as it is."""
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])

    def once_of(self, group: str, version: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for as long as the kinds of that group version stay as they are."""
        served = self.served.get((group, version), {})
        known = self._made_of.get((group, version))
        if known is None:
            known = self._made_of[group, version] = (served, {})
        if key not in known[1]:
            known[1][key] = make()
        return cast("T", known[1][key])


def _type_of(served: ServedVersion) -> tuple[str, str]:
    return served.resource.api_version, served.resource.kind


_OTHER_VERSIONS: dict[str, tuple[Resource, Conversion, Conversion, Mapping[str, str]]] = {
    "horizontalpodautoscalers.autoscaling": (
        autoscaling.AUTOSCALERS_V1,
        autoscaling.TO_STORED,
        autoscaling.FROM_STORED,
        {},
    ),
    "events": (events.EVENTS_V1, events.TO_STORED, events.FROM_STORED, events.FIELD_LABELS),
}
"""Built-in kinds of which clients know a second version: by wire name, with the conversions from it and to it."""


def _built_in(resource: Resource) -> Kind:
    shape = shape_of(resource.api_version, resource.kind)
    versions = [ServedVersion(resource, resource.name, shape)]
    if resource.name in _OTHER_VERSIONS:
        other, to_stored, from_stored, labels = _OTHER_VERSIONS[resource.name]
        shape_there = shape_of(other.api_version, other.kind)
        versions.append(ServedVersion(other, resource.name, shape_there, to_stored, from_stored, field_labels=labels))
    return Kind(resource=resource, strategy=strategy_for(resource.name), shape=shape, versions=tuple(versions))
