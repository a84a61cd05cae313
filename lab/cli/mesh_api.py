"""The API server of a mesh that runs, as its administrator reaches it over REST: what commands ask about objects."""

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import msgspec

from lab.cli.output import EXIT_FAILED, fail, no_mesh
from services.api.documents import yaml_text
from services.api.errors import UNREADABLE
from services.client.discovery import DISCOVERY, TABLE, ServedKind, kinds_of
from services.runtime.mesh_directory import read_state

TIMEOUT_S = 30.0
PAGE_OBJECTS = 500
NO_QUERY: Mapping[str, object] = {}


class Refused(Exception):
    """The API server refused a request; the text is its message, `code` the HTTP code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def read_kubeconfig(path: Path) -> tuple[str, str, ssl.SSLContext]:
    """Return URL, token and trust of the first cluster and user. Raises: ValueError naming the file and the fault."""
    try:
        config = yaml_text.load(path.read_bytes())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return cluster["server"], user["token"], ssl.create_default_context(cadata=authority)
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read the kubeconfig {path}: {error}") from None


CHANGES_MAX = 500
"""How many changes of an object a history has at most, unless more are asked for."""


class Wanted(NamedTuple):
    """Objects of a kind that a command asks for: the one with a name, or those of a namespace ("": of all) that fit two
    selectors. `at`: a version, "" for the newest; `is_table`: rows with printer columns instead of documents."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    is_table: bool = False
    at: str = ""
    labels: str = ""
    fields: str = ""


class Objects(Protocol):
    """What commands ask about objects, of a mesh or of a recording."""

    def kinds(self) -> list[ServedKind]:
        """Return the kinds that there are."""

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means; one that there is none of ends the command."""

    def objects(self, wanted: Wanted) -> Any:
        """Return an object, a list or a table. Raises: Refused."""

    def items(self, kind: ServedKind, at: str) -> Iterator[dict[str, Any]]:
        """Yield all objects of a kind as they were at a version. Raises: Refused."""

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object. Raises: Refused."""


class MeshApi:
    """REST requests with the administrator's kubeconfig of a mesh."""

    def __init__(self, data: Path) -> None:
        """Read where it is. A mesh that is not there, or a bad kubeconfig, ends the command in one line."""
        state = read_state(data)
        if state is None:
            no_mesh(data)
        try:
            self._url, self._token, self._trust = read_kubeconfig(Path(state["kubeconfig"]))
        except ValueError as error:
            fail(str(error), EXIT_FAILED)

    def get(self, path: str, accept: str = "application/json", *, query: Mapping[str, object] = NO_QUERY) -> Any:
        """Return the JSON there. Raises: Refused. A server that does not answer ends the command."""
        asked = urlencode({name: value for name, value in query.items() if value not in ("", None)})
        url = f"{self._url}{path}{'?' if asked else ''}{asked}"
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._trust) as reply:
                return msgspec.json.decode(reply.read())
        except urllib.error.HTTPError as error:
            raise Refused(_message(error), error.code) from None
        except OSError as error:
            fail(f"the API server at {self._url} does not answer: {error}", EXIT_FAILED)

    def objects(self, wanted: Wanted) -> Any:
        """Return an object, a list or a table, as they are or were. Raises: Refused."""
        place = wanted.kind.place(wanted.namespace, *((wanted.name,) if wanted.name else ()))
        query = {"at": wanted.at, "labelSelector": wanted.labels, "fieldSelector": wanted.fields}
        return self.get(place, TABLE if wanted.is_table else "application/json", query=query)

    def history(self, kind: ServedKind, namespace: str, name: str, limit: int | None) -> Any:
        """Return the changes of an object, as far as the window goes. Raises: Refused."""
        return self.get(kind.place(namespace, name, "history"), query={"limit": limit})

    def kinds(self) -> list[ServedKind]:
        """Return the kinds that are served, each once: in the version that its group prefers."""
        found: list[ServedKind] = []
        for root in ("/api", "/apis"):
            for group in self.get(root, DISCOVERY)["items"]:
                found += kinds_of(group)
        return found

    def kind_named(self, name: str) -> ServedKind:
        """Return the kind that a user means; one that there is none of ends the command."""
        kinds = self.kinds()
        named = next((kind for kind in kinds if kind.is_called(name)), None)
        if named is None:
            fail(f"the server does not have a resource type {name!r}; `kubectl api-resources` lists them")
        return named

    def items(self, kind: ServedKind, at: str) -> Iterator[dict[str, Any]]:
        """Yield all objects of a kind as they were at a version. Raises: Refused."""
        query: dict[str, object] = {"at": at}
        while True:
            page = self.get(kind.place(), query={"limit": PAGE_OBJECTS, **query})
            yield from page["items"]
            after = page["metadata"].get("continue", "")
            if not after:
                return
            query = {"continue": after}


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(msgspec.json.decode(error.read())["message"])
    except (OSError, *UNREADABLE, LookupError, TypeError):
        return f"HTTP {error.code}"


def split_target(words: Iterable[str]) -> tuple[str, str]:
    """Return kind and name of `KIND NAME` or `KIND/NAME`; what is neither ends the command."""
    given = list(words)
    if len(given) == 1 and "/" in given[0]:
        given = given[0].split("/")
    if not 1 <= len(given) <= 2 or not all(given):
        fail(f"{' '.join(words)!r}: want KIND, KIND NAME or KIND/NAME")
    return given[0], given[1] if len(given) == 2 else ""
