"""`keplab raw`: objects straight in the store, past admission, as writing to etcd by hand is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key, Resource, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.wire import Request, encode
from services.cli.exchange import mesh_client, source_of
from services.cli.groups import Group
from services.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, print_json, refusing
from services.client.client import request_of
from services.exchange.reading import checked_object, yaml_documents
from services.exchange.stream import Refused
from services.scenarios.past import StateError

EPILOG = """\
\b
Examples:
  keplab up --set store.raw=true
  keplab raw get pods web-0 > web.json
  keplab raw put web.json                       an old creationTimestamp, a status, a uid: as it stands there
  keplab raw del pods web-0

\b
What is written so is checked by nothing: the mesh may break on it. Each write is a line raw.write of the event log.
"""


@click.group("raw", cls=Group, epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """Read and write objects in the store, past admission."""


@COMMAND.command("get")
@click.argument("kind")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="of namespaced objects")
@data_option
def get_command(kind: str, name: str, namespace: str, data: Path) -> int:
    """Print an object as it is stored."""
    resource = _resource(kind)
    key = Key(namespace if resource.namespaced else "", name)
    print_json(_call(data, request_of("get", resource.name, key)))
    return EXIT_OK


@COMMAND.command("put")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@data_option
def put_command(file: Path, data: Path) -> int:
    """Store the objects of a YAML or JSON file as they stand there."""
    with refusing(Refused):
        found = [checked_object(each.document, each.where) for each in yaml_documents(source_of(file))]
        if not found:
            raise Refused(f"{file}: there is no object in it")
        for document in found:
            resource = resource_of_kind(document["apiVersion"], document["kind"])
            if resource is None:
                raise Refused(f"{file}: the mesh serves no {document['apiVersion']} {document['kind']}")
    for document in found:
        resource = resource_of_kind(document["apiVersion"], document["kind"])
        assert resource is not None, "it was looked at before"
        metadata = metadata_of(document)
        namespace = str(metadata.get("namespace") or "default") if resource.namespaced else ""
        key = Key(namespace, metadata["name"])
        stored = _call(data, request_of("update", resource.name, key, encode(document), subresource="raw"))
        click.echo(f"{resource.kind} {key} is stored as version {stored['metadata']['resourceVersion']}")
    return EXIT_OK


@COMMAND.command("del")
@click.argument("kind")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="of namespaced objects")
@data_option
def del_command(kind: str, name: str, namespace: str, data: Path) -> int:
    """Remove an object from the store at once, whatever its finalizers say."""
    resource = _resource(kind)
    key = Key(namespace if resource.namespaced else "", name)
    _call(data, request_of("delete", resource.name, key, subresource="raw"))
    click.echo(f"{resource.kind} {key} is gone")
    return EXIT_OK


def _resource(name: str) -> Resource:
    plain, _, group = name.lower().partition(".")
    for each in resources().values():
        is_named = plain in (each.plural, each.singular, each.kind.lower(), *each.short_names)
        if is_named and (not group or each.group == group):
            return each
    return fail(f"the mesh serves no kind {name!r}")


def _call(data: Path, request: Request) -> Document:
    async def called() -> Document:
        async with mesh_client(data) as client:
            answer = (await client.call(request)).unwrap()
            found: Document = msgspec.json.decode(answer.body)
            return found

    try:
        with refusing(StateError):
            return asyncio.run(called())
    except ApiError as error:
        fail(error.message, EXIT_FAILED)
    except UnknownOutcome as error:
        fail(f"the mesh on {data}: {error}", EXIT_FAILED)
