"""`keplab history`: list who changed which fields of an object, when, and in which trace."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import click

from lab.cli import completing
from lab.cli.mesh_api import split_target
from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, output_option, print_json, print_table, refusing
from lab.cli.sources import kind_named, objects_of, source_options
from services.api.errors import ApiError

FIELDS_SHOWN = 5
EPILOG = """\
\b
Examples:
  keplab history pod/web-0
  keplab history deployment/web -n shop -o json | jq '.items[].changed'
  keplab history pod/web-0 --recording unbind.keprec
  keplab get pod/web-0 --at 1234 -o yaml      one of the versions
  keplab trace pod/web-0                      what happened around them

\b
The history goes back as far as the API server's window of changes: 5 minutes, and at least 20,000 changes.
"""


@click.command("history", epilog=EPILOG)
@click.argument("target", metavar="KIND/NAME", nargs=-1, required=True, shell_complete=completing.kinds)
@click.option("-n", "--namespace", default="default", show_default=True, help="namespace of the object")
@click.option("--limit", type=click.IntRange(1), help="number of the newest changes to list")
@source_options
@output_option
def history(
    target: tuple[str, ...], namespace: str, limit: int | None, data: Path, recording: Path | None, output: str
) -> int:
    """List the changes of an object: who wrote what, and when.

    The oldest change comes first. Each change has its request and trace.
    """
    word, name = split_target(target)
    if not name:
        fail(f"{' '.join(target)!r}: want KIND/NAME")
    api = objects_of(data, recording)
    kind = kind_named(api, word)
    with refusing(ApiError, code=EXIT_FAILED):
        document = api.history(kind, namespace, name, limit)
    if output == "json":
        print_json(document)
        return EXIT_OK
    start, more = document["metadata"]["windowStart"], document["metadata"].get("remainingItemCount", 0)
    if document["items"]:
        columns = ("TIME", "VERSION", "CHANGE", "USER", "REQUEST", "TRACE", "FIELDS")
        print_table(columns, [_row(item) for item in document["items"]])
    else:
        click.echo(f"{kind.title} {name} has not changed since version {start}")
    if more:
        click.echo(f"\n{more} older changes are not shown; --limit {more + len(document['items'])} shows them")
    return EXIT_OK


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    places = Counter(".".join(re.split(r"[.\[]", each["path"])[:2]) for each in item["changed"])
    named = [place if count == 1 else f"{place} ({count})" for place, count in places.items()]
    more = len(named) - FIELDS_SHOWN
    fields = ", ".join(named[:FIELDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    request = "/".join(word for word in (item.get("verb", "-"), item.get("subresource", "")) if word)
    is_whole = item["type"] != "MODIFIED"
    return (
        item.get("time", "-")[11:-1] or "-",
        item["resourceVersion"],
        item["type"],
        item.get("user", "-"),
        request,
        item["traceID"][:16] or "-",
        "(all)" if is_whole else fields,
    )
