"""The kinds that one server serves: built-in kinds, and kinds that definitions add while it runs.

A kind is stored in one version and may be served in several; only REST knows the others. The mesh, the store
and the rules see the stored version alone (walls 2). A catalogue changes between commits and never within one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.errors import no_such_path, wrong_type
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape, shape_of
from apiserver_fake.registry.served_version import ServedVersion
from apiserver_fake.registry.strategy import Strategy, strategy_for
from services.api.errors import ApiError
from services.api.meta import Resource
from services.api.resources import resources

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind: its stored form, its rules, and the versions in which it is served (the preferred one first).

    `asks`: whether a webhook converts its objects. Rules and versions are made when they are first needed.
    """

    resource: Resource
    shape: Shape
    make_strategy: Callable[[], Strategy]
    make_versions: Callable[[], tuple[ServedVersion, ...]]
    asks: bool = False

    @cached_property
    def strategy(self) -> Strategy:
        """The rules of the kind."""
        return self.make_strategy()

    @cached_property
    def versions(self) -> tuple[ServedVersion, ...]:
        """The versions in which REST serves the kind."""
        return self.make_versions()


class OtherVersion(NamedTuple):
    """A second version of a built-in kind: the conversions between it and the stored one.

    `field_labels`: names of this version's field selector labels in the stored version, where they differ.
    """

    resource: Resource
    to_stored: Conversion
    from_stored: Conversion
    field_labels: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class KindExtensions:
    """What extensions add to built-in kinds, by wire name; the functions are called when a kind is first used.

    `strategies`: rules that an extension provides. `versions`: versions besides the stored one. `computed`: kinds
    that are read and never stored. `absent`: kinds of extensions that are left out; they are served nowhere.
    """

    strategies: Mapping[str, Callable[[], Strategy]] = field(default_factory=dict)
    versions: Mapping[str, Callable[[], OtherVersion]] = field(default_factory=dict)
    computed: Mapping[str, Resource] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()


NO_EXTENSIONS: Final = KindExtensions()


class Catalogue:
    """The kinds that are served, by wire name and by group version."""

    def __init__(
        self, defined: Iterable[Kind] = (), *, hidden: Container[str] = (), extensions: KindExtensions = NO_EXTENSIONS
    ) -> None:
        """Start with built-in and `defined` kinds. `hidden`: wire names of kinds that REST does not serve: their
        gate is off.
        """
        self._hidden = hidden
        self._built_in = {
            resource.name: _built_in(resource, extensions)
            for resource in resources().values()
            if resource.name not in extensions.absent
        }
        self.kinds: Mapping[str, Kind] = {}
        """All kinds by wire name, sorted."""
        self.resources: Mapping[str, Resource] = {}
        """All kinds in their stored form, by wire name, sorted."""
        self._made: dict[Hashable, Any] = {}
        self._made_of: dict[tuple[str, str], tuple[Mapping[str, ServedVersion], dict[Hashable, Any]]] = {}
        self._computed = [ServedVersion(resource, name, ANYTHING) for name, resource in extensions.computed.items()]
        self.define(defined)

    def define(self, defined: Iterable[Kind]) -> None:
        """Serve these kinds besides the built-in ones, replacing those defined before."""
        self.kinds = dict(sorted({**{kind.resource.name: kind for kind in defined}, **self._built_in}.items()))
        self.resources = {name: kind.resource for name, kind in self.kinds.items()}
        self._made.clear()
        self._made_of = {
            place: known for place, known in self._made_of.items() if known[0] == self.served_versions.get(place, {})
        }

    def find(self, name: str) -> Resource:
        """Return the stored form of the kind with that wire name. Raises: NotFound."""
        found = self.kinds.get(name)
        if found is None:
            raise no_such_path()
        return found.resource

    def kind(self, name: str) -> Kind:
        """Return the kind with that wire name. Raises: NotFound."""
        found = self.kinds.get(name)
        if found is None:
            raise no_such_path()
        return found

    def shape_of(self, api_version: str, kind: str) -> Shape:
        """Return the type of an object of that kind and version, or of a subresource's body; the any type if
        unknown.
        """
        return self._shapes.get((api_version, kind)) or shape_of(api_version, kind)

    @property
    def _shapes(self) -> dict[tuple[str, str], Shape]:
        return self.once("shapes", lambda: {_type_of(each): each.shape for each in self._every_version()})

    @property
    def served_versions(self) -> Mapping[tuple[str, str], Mapping[str, ServedVersion]]:
        """All served kinds, computed ones included: by group and version, then by plural."""
        return self.once("served", self._served_versions)

    def _served_versions(self) -> dict[tuple[str, str], dict[str, ServedVersion]]:
        found: dict[tuple[str, str], dict[str, ServedVersion]] = {}
        for each in self._every_version():
            found.setdefault((each.resource.group, each.resource.version), {})[each.resource.plural] = each
        for each in self._computed:
            found.setdefault((each.resource.group, each.resource.version), {})[each.resource.plural] = each
        return found

    def _every_version(self) -> Iterator[ServedVersion]:
        for name, kind in self.kinds.items():
            if name not in self._hidden:
                yield from kind.versions

    def wrong_type(self, resource: Resource, api_version: str, kind: str) -> ApiError:
        """Return the refusal of a body of that type where an object of `resource` is expected."""
        group, _, version = api_version.rpartition("/")
        there = self.served_versions.get((group, version), {}).values()
        is_defined = any(each.schema is not None for each in self.kind(resource.name).versions)
        is_served = any(each.resource.kind == kind for each in there)
        return wrong_type(resource, api_version, kind, is_served=is_served, is_defined=is_defined)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, cached until the catalogue changes."""
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])

    def once_of(self, group: str, version: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, cached until the kinds of that group version change."""
        served = self.served_versions.get((group, version), {})
        known = self._made_of.get((group, version))
        if known is None:
            known = self._made_of[group, version] = (served, {})
        if key not in known[1]:
            known[1][key] = make()
        return cast("T", known[1][key])


def _type_of(served: ServedVersion) -> tuple[str, str]:
    return served.resource.api_version, served.resource.kind


def _built_in(resource: Resource, extensions: KindExtensions) -> Kind:
    shape, name = shape_of(resource.api_version, resource.kind), resource.name
    make_other = extensions.versions.get(name)

    def versions() -> tuple[ServedVersion, ...]:
        stored = ServedVersion(resource, name, shape)
        if make_other is None:
            return (stored,)
        other = make_other()
        shape_there = shape_of(other.resource.api_version, other.resource.kind)
        return (
            stored,
            ServedVersion(
                other.resource, name, shape_there, other.to_stored, other.from_stored, field_labels=other.field_labels
            ),
        )

    strategy = extensions.strategies.get(name, lambda: strategy_for(name))
    return Kind(resource, shape, strategy, versions)
