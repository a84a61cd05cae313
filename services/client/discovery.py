"""Kinds that an API server serves, parsed from its discovery documents. Pure.

Source: KEP-3352 (aggregated discovery).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from services.api.metrics.apis import COMPUTED

DISCOVERY: Final = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
ROOTS: Final = ("/api", "/apis")
"""Paths of the discovery documents."""
SECOND_NAMES: Final = frozenset((("events.k8s.io", "events"),))
"""Kinds that are also served by another group."""


class ServedKind(NamedTuple):
    """A kind as the API server serves it. `path`: that of its group version. `has_past`: its objects are stored."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    group: str
    path: str
    is_namespaced: bool
    has_past: bool

    @property
    def title(self) -> str:
        """The plural with its group, as kubectl accepts it: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def is_called(self, name: str) -> bool:
        """Whether the name refers to this kind: plural, singular, short name or kind, with or without its group."""
        plain, _, group = name.lower().partition(".")
        names = (self.plural, self.singular, self.kind.lower(), *self.short_names)
        return plain in names and (not group or self.group == group or self.group.startswith(f"{group}."))

    def place(self, namespace: str = "", *rest: str) -> str:
        """Return the path of the collection, or of an object with the segments after it."""
        inside = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return "/".join((self.path, *(quote(each, safe="") for each in (*inside, self.plural, *rest))))


class ObjectQuery(NamedTuple):
    """A client's query of a kind: one object by name, or the objects of a namespace ("": of all) that match two
    selectors.

    `at`: a version, "" for the newest; `is_table`: rows with printer columns instead of documents.
    """

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    is_table: bool = False
    at: str = ""
    labels: str = ""
    fields: str = ""


def kinds_of(group: dict[str, Any]) -> Iterator[ServedKind]:
    """Yield the kinds of one item of a discovery document, each in the group's preferred version."""
    name = group["metadata"].get("name", "")
    seen: set[str] = set()
    for version in group["versions"]:
        path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
        for resource in version.get("resources", ()):
            plural, verbs = resource["resource"], resource["verbs"]
            if plural in seen or (name, plural) in SECOND_NAMES or "get" not in verbs:
                continue
            seen.add(plural)
            yield ServedKind(
                resource["responseKind"]["kind"],
                plural,
                resource.get("singularResource", ""),
                tuple(resource.get("shortNames", ())),
                name,
                path,
                resource["scope"] == "Namespaced",
                "list" in verbs and (f"{plural}.{name}" if name else plural) not in COMPUTED,
            )
