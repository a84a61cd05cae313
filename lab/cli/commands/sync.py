"""`keplab sync`: make the mesh follow a real cluster."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from lab.cli.exchange.files import mesh_client
from lab.cli.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    data_option,
    fail,
    output_option,
    print_json,
    print_table,
)
from lab.exchange.cluster import Cluster, Expired
from lab.exchange.edits import Edits, read_edits
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.rules import PODS, Rules
from lab.exchange.stream import Refused
from lab.exchange.sync import KINDS, NEVER, OWNERS, Sync
from services.api.errors import ApiError, BadRequest, UnknownOutcome
from services.api.meta import Document, Resource, metadata_of
from services.api.selectors import Selector, parse_field_selector
from services.runtime.mesh_directory import read_state

EPILOG = """\
\b
Examples:
  keplab sync --kubeconfig ~/.kube/config                  until Ctrl-C
  keplab sync --kubeconfig ~/.kube/config --dry-run        how many objects of each kind it would begin with
  keplab sync --kubeconfig ~/.kube/config --namespaces shop --keep-owners
  keplab sync --kubeconfig ~/.kube/config --rules edits.yaml --pods pending

\b
The cluster is asked for nothing but get, list and watch. Objects are added, changed and deleted in the mesh as in the
cluster; a pod that gets its node in the cluster is left to the scheduler of the mesh. Leases, Events and the values of
Secrets are not copied.
"""


@click.command("sync", epilog=EPILOG)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    required=True,
    help="kubeconfig of the cluster to follow",
)
@click.option("--context", default="", metavar="NAME", help="context of the kubeconfig [its current context]")
@click.option("--as", "as_user", default="", metavar="USER", help="user to impersonate in requests to the cluster")
@click.option("--kinds", default="", metavar="KIND,…", help="only objects of these kinds [the simulator's seven]")
@click.option("--namespaces", default="", metavar="NAME,…", help="only namespaced objects in these namespaces")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="only objects with these labels")
@click.option(
    "--names",
    default="",
    metavar="SELECTOR",
    help="only objects that this field selector selects: metadata.name!=web-1",
)
@click.option(
    "--pods",
    type=click.Choice(["as-they-are", "pending"]),
    default="as-they-are",
    show_default=True,
    help="as-they-are: pods with a node at the beginning keep it; pending: they are scheduled anew",
)
@click.option(
    "--keep-owners", is_flag=True, help="also copy Deployments, Jobs and the like; the mesh creates their pods"
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="file of edits to the objects: set, remove, drop",
)
@click.option("--dry-run", is_flag=True, help="print how many objects there are, and copy nothing")
@data_option
@output_option
def sync(
    kubeconfig: Path,
    context: str,
    as_user: str,
    kinds: str,
    namespaces: str,
    selector: str,
    names: str,
    pods: str,
    keep_owners: bool,
    rules_file: Path | None,
    dry_run: bool,
    data: Path,
    output: str,
) -> int:
    """Follow a real cluster, and make its changes in the mesh.

    At its end the command prints what it copied. The exit code is 1 when the mesh refused an object.
    """
    try:
        edits = read_edits(rules_file) if rules_file is not None else Edits()
        wanted = _ObjectFilter(_words(namespaces), parse_field_selector(names) if names else None)
        rules = Rules("pending" if pods == "pending" else "as-they-are", keep_owners)
        access = read_access(kubeconfig, context)
        running = read_state(data)
        if running is not None and access.server.rstrip("/") == str(running.get("rest_url")).rstrip("/"):
            raise ValueError(f"{kubeconfig}: {access.server} is the mesh on {data} itself: want another cluster")
    except (ValueError, BadRequest) as error:
        fail(getattr(error, "message", "") or str(error))

    async def main() -> int:
        async with Cluster(access, as_user=as_user) as cluster:
            chosen = await _kinds(cluster, _words(kinds), keep_owners=keep_owners)
            async with mesh_client(data) as client:
                sync = Sync(
                    cluster,
                    client,
                    rules,
                    edits=edits,
                    selector=selector,
                    is_wanted=wanted,
                    forgotten=Expired,
                    notify=lambda line: click.echo(line, err=True),
                )
                if dry_run:
                    return _show_counts(await sync.count(chosen), output)
                return await _follow(sync, chosen, output)

    try:
        return asyncio.run(main())
    except Refused as error:
        fail(str(error), EXIT_FAILED)
    except (ApiError, UnknownOutcome) as error:
        fail(getattr(error, "message", "") or str(error), EXIT_FAILED)


async def _follow(sync: Sync, kinds: Sequence[Resource], output: str) -> int:
    """Follow until a signal, or until the cluster cannot be read."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    work, stop = asyncio.create_task(sync.run(kinds)), asyncio.create_task(stopping.wait())
    await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if work.done():
        work.result()
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
    totals = sync.synced
    counts = {"created": totals.created, "updated": totals.updated, "deleted": totals.deleted}
    if output == "json":
        print_json({**counts, "left_out": dict(totals.left_out.counts), "failures": totals.failures})
    else:
        click.echo(", ".join(f"{count} {what}" for what, count in counts.items()))
        for why, count in sorted(totals.left_out.counts.items()):
            click.echo(f"left out: {count} {why}")
    return EXIT_FAILED if totals.failures else EXIT_INTERRUPTED


async def _kinds(cluster: Cluster, names: Sequence[str], *, keep_owners: bool) -> list[Resource]:
    """Return the kinds to copy in their order. Raises: Refused."""
    owners = [*KINDS[:-1], *OWNERS, PODS] if keep_owners else list(KINDS)
    found = await cluster.kinds(names or owners)
    order = {name: number for number, name in enumerate(owners)}
    return sorted((each for each in found if each.name not in NEVER), key=lambda each: order.get(each.name, 3))


def _show_counts(counts: dict[str, int], output: str) -> int:
    if output == "json":
        print_json({"objects": counts})
    else:
        print_table(("KIND", "OBJECTS"), [*counts.items(), ("in all", sum(counts.values()))], texts=1)
    return EXIT_OK


class _ObjectFilter:
    """Filter of objects by namespace and name."""

    def __init__(self, namespaces: Sequence[str], names: Selector | None) -> None:
        self._namespaces, self._names = frozenset(namespaces), names

    def __call__(self, document: Document) -> bool:
        metadata = metadata_of(document)
        place, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        own = name if document.get("kind") == "Namespace" else place
        if self._namespaces and own and own not in self._namespaces:
            return False
        fields = {"metadata.name": name, "metadata.namespace": place}
        return self._names is None or self._names.matches(fields)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]
