"""The register of kinds: each file in `kinds/` defines `RESOURCE` and usually a view. A new kind needs only a
new file.

Discovery, REST paths, gRPC, informers and tables all use this register.
"""

import importlib
import pkgutil
from functools import cache

from services.api.meta import AnyObject, Resource, View
from services.api.metrics.apis import COMPUTED
from services.api.switches import Switches


@cache
def resources() -> dict[str, Resource]:
    """Return every served resource by wire name, sorted by name."""
    # By name, not by import statement: the register finds its entries, which import the register.
    folder = importlib.import_module("services.api.kinds")
    by_name: dict[str, Resource] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        resource: Resource = importlib.import_module(f"{folder.__name__}.{module}").RESOURCE
        if resource.name in by_name:
            raise ValueError(f"two files in kinds/ offer {resource.name}")
        by_name[resource.name] = resource
    return dict(sorted(by_name.items()))


def hidden_resources(switches: Switches) -> frozenset[str]:
    """Return the wire names of the kinds whose feature gate is off."""
    return frozenset(each.name for each in resources().values() if each.gate and not switches.flag(each.gate))


@cache
def _by_kind() -> dict[tuple[str, str], Resource]:
    return {(r.api_version, r.kind): r for r in resources().values()}


@cache
def _by_view() -> dict[type[View], Resource]:
    return {r.view: r for r in (*resources().values(), *COMPUTED.values()) if r.view is not AnyObject}


def resource_of_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource serving that apiVersion and kind, or None."""
    return _by_kind().get((api_version, kind))


class Kinds:
    """The kinds that one client knows: the built-in ones, and those that definitions add at run time.

    `are_followed`: whether the client follows definitions at all.
    """

    def __init__(self, *, are_followed: bool = False) -> None:
        self.are_followed = are_followed
        self._defined: dict[str, Resource] = {}

    def define(self, resource: Resource) -> None:
        """Add this kind, or replace the kind of the same name."""
        self._defined[resource.name] = resource

    def forget(self, name: str) -> None:
        """Remove the defined kind of that wire name."""
        self._defined.pop(name, None)

    def get(self, name: str) -> Resource | None:
        """Return the kind of that wire name, or None."""
        return resources().get(name) or self._defined.get(name)

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the kind of that apiVersion and kind, or None; a defined kind matches in any of its versions."""
        built_in = resource_of_kind(api_version, kind)
        if built_in is not None or not self._defined:
            return built_in
        group = api_version.rpartition("/")[0]
        return next((each for each in self._defined.values() if (each.group, each.kind) == (group, kind)), None)

    @property
    def all(self) -> list[Resource]:
        """Every kind, sorted by wire name."""
        return sorted((*resources().values(), *self._defined.values()), key=lambda each: each.name)


def resource_of_view(view: type[View]) -> Resource:
    """Return the resource whose typed view this is.

    Raises: KeyError for a view that no kind registered.
    """
    return _by_view()[view]
