"""`keplab get`: show objects of a mesh, as they are or as they were at a version."""

from pathlib import Path
from typing import Any

import click
import yaml

from lab.cli import completing
from lab.cli.mesh_api import split_target
from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, print_json, print_table, refusing
from lab.cli.sources import kind_named, objects_of, source_options
from services.api.errors import ApiError
from services.client.discovery import ObjectQuery, ServedKind

EPILOG = """\
\b
Examples:
  keplab get pods -A
  keplab get pod/web-0 --at 1234 -o yaml      as it was at resource version 1234
  keplab get nodes --at 1234
  keplab get pods --recording unbind.keprec --at 1234      of a recorded run
  keplab history pod/web-0                    the versions that there are of it

\b
The API server keeps the changes of the last 5 minutes, and at least the last 20,000; versions before them are answered
with 410. With kubectl: kubectl get --raw '/api/v1/namespaces/default/pods?at=1234'.
"""


@click.command("get", epilog=EPILOG)
@click.argument("target", metavar="KIND [NAME]", nargs=-1, required=True, shell_complete=completing.kinds)
@click.option("-n", "--namespace", default="default", show_default=True, help="namespace of the objects")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="show the objects of all namespaces")
@click.option("-l", "--selector", default="", help="label selector")
@click.option("--field-selector", default="", help="field selector")
@click.option("--at", default="", metavar="RV", help="resource version to show; without it, the newest")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="output format",
)
@source_options
def get(
    target: tuple[str, ...],
    namespace: str,
    everywhere: bool,
    selector: str,
    field_selector: str,
    at: str,
    output: str,
    data: Path,
    recording: Path | None,
) -> int:
    """Show objects of the mesh as they are or were.

    With a recording the command shows the objects at the version, or at the end of the recording.
    """
    word, name = split_target(target)
    if name and (everywhere or selector or field_selector):
        fail(f"{name!r}: a name excludes --all-namespaces, --selector and --field-selector")
    api = objects_of(data, recording)
    kind = kind_named(api, word)
    place, is_table = "" if everywhere else namespace, output == "text"
    with refusing(ApiError, code=EXIT_FAILED):
        document = api.objects(ObjectQuery(kind, place, name, is_table, at, selector, field_selector))
    if output == "json":
        print_json(document)
    elif output == "yaml":
        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
    else:
        _show(document, kind, at, with_namespace=everywhere and kind.is_namespaced)
    return EXIT_OK


def _show(table: dict[str, Any], kind: ServedKind, at: str, *, with_namespace: bool) -> None:
    shown = [i for i, column in enumerate(table["columnDefinitions"]) if not column.get("priority")]
    columns = [table["columnDefinitions"][i]["name"].upper() for i in shown]
    rows = [[row["cells"][i] for i in shown] for row in table.get("rows") or ()]
    if with_namespace:
        columns = ["NAMESPACE", *columns]
        spaces = [row["object"]["metadata"].get("namespace", "") for row in table.get("rows") or ()]
        rows = [[space, *cells] for space, cells in zip(spaces, rows, strict=True)]
    if rows:
        print_table(columns, rows)
    else:
        click.echo(f"no {kind.title} found" + (f" at version {at}" if at else ""))
