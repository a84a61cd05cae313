"""Which kinds an API server serves, as its discovery documents say. Pure.

Source: KEP-3352 (aggregated discovery).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from services.api.metrics.apis import COMPUTED

DISCOVERY: Final = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
ROOTS: Final = ("/api", "/apis")
"""Where the documents are."""
SECOND_NAMES: Final = frozenset((("events.k8s.io", "events"),))
"""Kinds that another group serves as well."""


class ServedKind(NamedTuple):
    """A kind as the API server serves it: `path` is that of its group version, `has_past`: its objects are stored."""

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
        """The plural with its group, as kubectl takes it: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def is_called(self, name: str) -> bool:
        """Whether a user means this kind by that name: plural, singular, short, kind, with or without its group."""
        plain, _, group = name.lower().partition(".")
        names = (self.plural, self.singular, self.kind.lower(), *self.short_names)
        return plain in names and (not group or self.group == group or self.group.startswith(f"{group}."))

    def place(self, namespace: str = "", *rest: str) -> str:
        """Return the path of the collection, or of an object with what follows it."""
        inside = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        return "/".join((self.path, *(quote(each, safe="") for each in (*inside, self.plural, *rest))))


class ObjectQuery(NamedTuple):
    """What a client wants of a kind: the object of a name, or those of a namespace ("": of all) that fit two selectors.
    `at`: a version, "" for the newest; `is_table`: rows with printer columns instead of documents."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    is_table: bool = False
    at: str = ""
    labels: str = ""
    fields: str = ""


def kinds_of(group: dict[str, Any]) -> Iterator[ServedKind]:
    """Yield the kinds of one item of a discovery document, each in the version that the group prefers."""
    name = group["metadata"].get("name", "")
    seen: set[str] = set()
    for version in group["versions"]:
        path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
        for each in version.get("resources", ()):
            plural, verbs = each["resource"], each["verbs"]
            if plural in seen or (name, plural) in SECOND_NAMES or "get" not in verbs:
                continue
            seen.add(plural)
            yield ServedKind(
                each["responseKind"]["kind"],
                plural,
                each.get("singularResource", ""),
                tuple(each.get("shortNames", ())),
                name,
                path,
                each["scope"] == "Namespaced",
                "list" in verbs and (f"{plural}.{name}" if name else plural) not in COMPUTED,
            )
