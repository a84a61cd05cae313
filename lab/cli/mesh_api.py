"""The API server of a running mesh, reached over REST as its administrator: what commands ask about objects."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from lab.cli.output import EXIT_FAILED, fail, no_mesh, refusing
from lab.exchange.rest.blocking_client import BlockingRestClient
from lab.exchange.rest.endpoint import JSON, Endpoint
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.stream import Refused
from services.api.errors import NotFound
from services.client.discovery import DISCOVERY, ROOTS, TABLE, ObjectQuery, ServedKind, kinds_of
from services.runtime.mesh_directory import read_state

PAGE_OBJECTS = 500


class Objects(Protocol):
    """Queries of commands about objects, answered by a mesh or a recording."""

    def kinds(self) -> list[ServedKind]:
        """Return all kinds."""

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means, by any of its names. Raises: NotFound, ApiError."""

    def objects(self, query: ObjectQuery) -> Any:
        """Return an object, a list or a table. Raises: ApiError."""

    def items(self, kind: ServedKind, at: str) -> Iterator[dict[str, Any]]:
        """Yield all objects of a kind as they were at a version. Raises: ApiError."""

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object. Raises: ApiError."""


class MeshApi:
    """REST client with the administrator's kubeconfig of a mesh."""

    def __init__(self, data: Path) -> None:
        """Read the mesh's address. If no mesh runs or the kubeconfig is bad, the command ends with one line."""
        state = read_state(data)
        if state is None:
            no_mesh(data)
        with refusing(Refused, code=EXIT_FAILED):
            self._rest = BlockingRestClient(Endpoint(read_access(Path(state["kubeconfig"]))))

    def objects(self, query: ObjectQuery) -> Any:
        """Return an object, a list or a table, as they are or were. Raises: ApiError."""
        place = query.kind.place(query.namespace, *((query.name,) if query.name else ()))
        words = {"at": query.at, "labelSelector": query.labels, "fieldSelector": query.fields}
        return self._rest.get(place, words, TABLE if query.is_table else JSON)

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object, as far back as the watch window goes. Raises: ApiError."""
        return self._rest.get(kind.place(namespace, name, "history"), {"limit": limit})

    def kinds(self) -> list[ServedKind]:
        """Return the served kinds, each once, in the version that its group prefers."""
        groups = (group for root in ROOTS for group in self._rest.get(root, accept=DISCOVERY)["items"])
        return [kind for group in groups for kind in kinds_of(group)]

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means, by any of its names. Raises: NotFound, ApiError."""
        kind = next((each for each in self.kinds() if each.is_called(name)), None)
        if kind is None:
            raise NotFound(f"the server does not have a resource type {name!r}; `kubectl api-resources` lists them")
        return kind

    def items(self, kind: ServedKind, at: str) -> Iterator[dict[str, Any]]:
        """Yield all objects of a kind as they were at a version. Raises: ApiError."""
        query: dict[str, object] = {"at": at}
        while True:
            page = self._rest.get(kind.place(), {"limit": PAGE_OBJECTS, **query})
            yield from page["items"]
            after = page["metadata"].get("continue", "")
            if not after:
                return
            query = {"continue": after}


def split_target(words: Iterable[str]) -> tuple[str, str]:
    """Return kind and name of `KIND NAME` or `KIND/NAME`; any other form ends the command."""
    given = list(words)
    if len(given) == 1 and "/" in given[0]:
        given = given[0].split("/")
    if not 1 <= len(given) <= 2 or not all(given):
        fail(f"{' '.join(words)!r}: want KIND, KIND NAME or KIND/NAME")
    return given[0], given[1] if len(given) == 2 else ""
