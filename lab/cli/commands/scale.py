"""`keplab scale`: set the number of objects made from a template, as kwokctl does; nodes get a kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path

import click
import msgspec

from lab.cli.exchange.files import mesh_client
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json, refusing
from lab.exchange.rules import NODES, prepare_object
from lab.exchange.rules import Rules as LoadRules
from lab.exchange.scale import LABEL, ScaledResource, plan_objects, read_resources, resource_named
from lab.exchange.stream import Refused
from lab.experiments.wording import count_text
from lab.scenarios.initial_state import StateError, defined_by
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.customresourcedefinition import DEFINITIONS, CustomResourceDefinition, defined_resource
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.resources import resource_of_kind
from services.client.client import Client
from services.runtime.control import NoAnswer, ask

AT_ONCE = 64
HOSTED_MAX_S = 300.0
READY_MAX_S = 120.0
EPILOG = """\
\b
Examples:
  keplab scale node --replicas 100
  keplab scale node --replicas 40                      the newest go
  keplab scale node --replicas 60 --param .allocatable.cpu=64
  keplab scale pod web --replicas 20 -n shop           called web-000000, …
  keplab scale job-of-mine --replicas 3 --config templates.yaml

\b
Templates are KwokctlResource documents; node and pod are built in. Objects are called NAME-000000 and on, gaps are
filled, and they have the label kwok.x-k8s.io/kwokctl-scale. A node called node-00… gets a kubelet; other nodes have
none.
"""


@click.command("scale", epilog=EPILOG)
@click.argument("resource", metavar="node|pod|RESOURCE")
@click.argument("name", required=False, default="")
@click.option("--replicas", type=click.IntRange(0, 100_000), required=True, help="number of objects to have")
@click.option("--param", "params", multiple=True, metavar="PATH=VALUE", help="value for the template; may be repeated")
@click.option(
    "--serial-length", type=click.IntRange(0, 20), default=6, show_default=True, help="digits of the number in a name"
)
@click.option("-n", "--namespace", default="", help="namespace of the objects [the template's]")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="KwokctlResource documents of your own",
)
@click.option("--dry-run", is_flag=True, help="print the objects that would be created and deleted, and change nothing")
@data_option
@output_option
def scale(
    resource: str,
    name: str,
    replicas: int,
    params: tuple[str, ...],
    serial_length: int,
    namespace: str,
    config: Path | None,
    dry_run: bool,
    data: Path,
    output: str,
) -> int:
    """Scale the objects of a template to a number.

    The command creates or deletes objects, and returns when nodes are Ready. The exit code is 1 when an object was
    refused, or a node has no kubelet.
    """
    with refusing(Refused, StateError):
        own = read_resources(config) if config is not None else {}
        template = resource_named(resource, own, params)
        plan_objects(name or resource, (), min(replicas, 2), serial_length)
        try:
            return asyncio.run(
                _scale(data, template, name or resource, namespace, replicas, serial_length, dry_run, output)
            )
        except UnknownOutcome as error:
            fail(f"the mesh on {data}: {error}", EXIT_FAILED)


async def _scale(
    data: Path,
    template: ScaledResource,
    name: str,
    namespace: str,
    replicas: int,
    serial_length: int,
    dry_run: bool,
    output: str,
) -> int:
    sample = template.object(f"{name}-0", namespace, 0)
    async with mesh_client(data) as client:
        kind = await _served_resource(client, str(sample.get("apiVersion")), str(sample.get("kind")))
        if kind is None:
            raise Refused(f"{template.name}: the mesh serves no {sample.get('apiVersion')} {sample.get('kind')}")
        place = (namespace or key_of(sample).namespace or "default") if kind.namespaced else ""
        there, _ = await client.list(kind.name, namespace=place, label_selector=f"{LABEL}={name}")
        plan = plan_objects(name, there, replicas, serial_length)
        if dry_run:
            _show([each for each, _ in plan.make], plan.delete, output, [])
            return EXIT_OK
        objects = [template.object(each, place, index) for each, index in plan.make]
        for document in objects:
            document["metadata"]["labels"][LABEL] = name
        refusals = await _in_batches([_create(client, kind, each) for each in objects])
        objects = [each for each, refusal in zip(objects, refusals, strict=True) if not refusal]
        failures = [each for each in refusals if each]
        left = [each for each in there if metadata_of(each)["name"] not in plan.delete]
        if kind.name == NODES and (plan.make or plan.delete):
            failures += await _host(client, data, [*left, *objects], [metadata_of(each)["name"] for each in objects])
        refusals = await _in_batches([_delete(client, kind, Key(place, each)) for each in plan.delete])
        deleted = [each for each, refusal in zip(plan.delete, refusals, strict=True) if not refusal]
        failures += [each for each in refusals if each]
    _show([metadata_of(each)["name"] for each in objects], deleted, output, failures)
    return EXIT_FAILED if failures else EXIT_OK


async def _served_resource(client: Client, api_version: str, kind: str) -> Resource | None:
    """Return the resource of a kind that the mesh serves, also one that a definition defines; None for no such kind."""
    if (built_in := resource_of_kind(api_version, kind)) is not None:
        return built_in
    definitions, _ = await client.list(DEFINITIONS)
    for definition in definitions:
        resource = defined_resource(msgspec.convert(definition, CustomResourceDefinition))
        if resource is not None and (resource.api_version, resource.kind) == (api_version, kind):
            return resource
    return None


async def _in_batches(calls: Sequence[Awaitable[str]]) -> list[str]:
    """Make the calls, some at a time; return the answers in their order."""
    found: list[str] = []
    for first in range(0, len(calls), AT_ONCE):
        found += await asyncio.gather(*calls[first : first + AT_ONCE])
    return found


async def _create(client: Client, kind: Resource, document: Document) -> str:
    """Create an object; return why that was refused, "" where it was not."""
    body, status, _ = prepare_object(kind.name, document, LoadRules())
    try:
        stored = await client.create(kind.name, body)
        if status and "status" in kind.subresources:
            stored["metadata"].pop("resourceVersion")
            await client.update(kind.name, key_of(stored), {**stored, "status": status}, subresource="status")
    except ApiError as error:
        return f"{kind.kind} {key_of(document)}: {error.message}"
    return ""


async def _delete(client: Client, kind: Resource, key: Key) -> str:
    """Delete an object; return why that was refused, "" where it is gone."""
    try:
        await client.delete(kind.name, key)
    except ApiError as error:
        return "" if error.code == 404 else f"{kind.kind} {key}: {error.message}"
    return ""


async def _host(client: Client, data: Path, nodes: list[Document], new: list[str]) -> list[str]:
    """Have kubelets for these nodes, and for no others that were made so; return what failed."""
    # Labels and taints stand in the Nodes; a kubelet may give itself few of them.
    definitions = [{**defined_by(each), "labels": {}, "taints": []} for each in nodes]
    definitions.sort(key=lambda each: str(each["name"]))
    try:
        answer = await asyncio.to_thread(ask, data, {"verb": "host", "nodes": definitions}, HOSTED_MAX_S)
    except NoAnswer as error:
        return [f"the nodes have no kubelet: {error}"]
    if "error" in answer:
        return [f"the nodes have no kubelet: {answer['error']}"]
    hosted = frozenset(answer["hosted"])
    lonely = [name for name in new if name not in hosted]
    failures = (
        [f"NodeNotHosted: {len(lonely)} have no kubelet, {lonely[0]} first: want names node-00…"] if lonely else []
    )
    deadline = time.monotonic() + READY_MAX_S
    waiting = hosted.intersection(new)
    while waiting and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        current_nodes, _ = await client.list(NODES, label_selector=LABEL)
        waiting = waiting.difference(metadata_of(each)["name"] for each in current_nodes if _is_ready(each))
    if waiting:
        late = count_text(len(waiting), "node is", "nodes are")
        failures.append(f"{late} not Ready after {READY_MAX_S:g} s, {min(waiting)} first")
    return failures


def _is_ready(node: Document) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _show(made: Sequence[str], deleted: Sequence[str], output: str, failures: list[str]) -> None:
    if output == "json":
        print_json({"made": list(made), "deleted": list(deleted), "failures": failures})
        return
    click.echo(f"{len(made)} made, {len(deleted)} deleted" if made or deleted or failures else "nothing to do")
    for line in failures[:10]:
        click.echo(f"  {line}", err=True)
