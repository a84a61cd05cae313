"""`keplab raw`: read and write objects straight in the store, past admission, like writing to etcd by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import msgspec

from lab.cli.exchange.files import mesh_client, source_of
from lab.cli.groups import Group
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, print_json, refusing
from lab.exchange.format import Reading, open_stream
from lab.exchange.stream import Refused
from lab.scenarios.initial_state import StateError
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key, Resource, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.wire import encode
from services.client.client import Client, request_of
from services.runtime.real import RealClock

OBJECTS = ("kubectl", "kwok")
"""Formats whose files hold objects unchanged."""
EPILOG = """\
\b
Examples:
  keplab up --set store.raw=true
  keplab raw get pods web-0 > web.json
  keplab raw put web.json                       an old creationTimestamp, a status, a uid: stored unchanged
  keplab raw del pods web-0

\b
Nothing checks these writes: the mesh may break on them. Each write is a line raw.write of the event log.
"""


@click.group("raw", cls=Group, epilog=EPILOG)
def raw() -> None:
    """Read and write objects in the store, past admission."""


@raw.command("get")
@click.argument("kind")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="namespace of the objects")
@data_option
def get_command(kind: str, name: str, namespace: str, data: Path) -> int:
    """Print an object as it is stored."""
    resource, key = _resource_and_key(kind, namespace, name)

    async def get(client: Client) -> None:
        answer = (await client.call(request_of("get", resource.name, key))).unwrap()
        print_json(msgspec.json.decode(answer.body))

    _run(data, get)
    return EXIT_OK


@raw.command("put")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@data_option
def put_command(file: Path, data: Path) -> int:
    """Store the objects of a YAML or JSON file unchanged."""
    with refusing(Refused):
        source = source_of(file)
        known, stream = open_stream(source, Reading(RealClock().wall()))
        if known.name not in OBJECTS:
            raise Refused(f"{source.file}: want objects in YAML or JSON, not {known.title}")
        objects = [_keyed_object(each.document, file) for each in stream.objects]
        if not objects:
            raise Refused(f"{file}: there is no object in it")

    async def put(client: Client) -> None:
        for resource, key, document in objects:
            request = request_of("update", resource.name, key, encode(document), subresource="raw")
            answer = (await client.call(request)).unwrap()
            click.echo(f"{resource.kind} {key} is stored as version {answer.rv}")

    _run(data, put)
    return EXIT_OK


@raw.command("del")
@click.argument("kind")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="namespace of the objects")
@data_option
def del_command(kind: str, name: str, namespace: str, data: Path) -> int:
    """Remove an object from the store at once, whatever its finalizers say."""
    resource, key = _resource_and_key(kind, namespace, name)

    async def delete(client: Client) -> None:
        (await client.call(request_of("delete", resource.name, key, subresource="raw"))).unwrap()
        click.echo(f"{resource.kind} {key} is gone")

    _run(data, delete)
    return EXIT_OK


def _resource_and_key(kind: str, namespace: str, name: str) -> tuple[Resource, Key]:
    plain, _, group = kind.lower().partition(".")
    for each in resources().values():
        is_named = plain in (each.plural, each.singular, each.kind.lower(), *each.short_names)
        if is_named and (not group or each.group == group):
            return each, Key(namespace if each.namespaced else "", name)
    return fail(f"the mesh serves no kind {kind!r}")


def _keyed_object(document: Document, file: Path) -> tuple[Resource, Key, Document]:
    """Return an object with its kind and key. Raises: Refused: it is of no kind that is served."""
    resource = resource_of_kind(document["apiVersion"], document["kind"])
    if resource is None:
        raise Refused(f"{file}: the mesh serves no {document['apiVersion']} {document['kind']}")
    metadata = metadata_of(document)
    namespace = str(metadata.get("namespace") or "default") if resource.namespaced else ""
    return resource, Key(namespace, metadata["name"]), document


def _run(data: Path, act: Callable[[Client], Awaitable[None]]) -> None:
    """Do something as the administrator of the mesh; what it refuses ends the command."""

    async def run_with_client() -> None:
        async with mesh_client(data) as client:
            await act(client)

    try:
        with refusing(StateError):
            asyncio.run(run_with_client())
    except ApiError as error:
        fail(error.message, EXIT_FAILED)
    except UnknownOutcome as error:
        fail(f"the mesh on {data}: {error}", EXIT_FAILED)
