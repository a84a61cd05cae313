"""`keplab diff`: what changed in a mesh between two resource versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from apiserver_fake.registry.differences import Difference, differences
from services.cli.live import progress_bar
from services.cli.mesh_api import MeshApi, Refused, ServedKind
from services.cli.output import EXIT_OK, data_option, fail, output_option, print_json

NOISE = ("leases.coordination.k8s.io", "events")
"""Kinds that change all the time; compared when they are named, or with --all."""
VALUE_MAX = 80
EPILOG = """\
\b
Examples:
  keplab diff 1200 1234                       every object that differs, field by field
  keplab diff 1200 1234 pods nodes
  keplab diff 1200 1234 -o json | jq '.objects[].name'

\b
Versions: keplab history KIND/NAME, or the resourceVersion of any list. Values of Secrets are not shown.
"""


@click.command("diff", epilog=EPILOG)
@click.argument("before", metavar="RV1")
@click.argument("after", metavar="RV2")
@click.argument("names", metavar="[KIND]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help=f"also {' and '.join(NOISE)}")
@data_option
@output_option
def COMMAND(  # noqa: N802
    before: str, after: str, names: tuple[str, ...], everything: bool, data: Path, output: str
) -> int:
    """Compare the mesh at two resource versions.

    Listed are objects made, gone and changed, with the fields.
    """
    api = MeshApi(data)
    kinds = [api.kind_named(name) for name in names] or [
        kind for kind in api.kinds() if kind.has_past and (everything or kind.title not in NOISE)
    ]
    found: list[dict[str, Any]] = []
    with progress_bar("comparing", quiet=output == "json", is_transient=True) as bar:
        task = bar.add_task("", total=len(kinds))
        for kind in kinds:
            try:
                found += _compared(api, kind, before, after)
            except Refused as error:
                fail(f"{kind.title}: {error}", 1)
            bar.advance(task)
    if output == "json":
        print_json({"from": before, "to": after, "objects": found})
        return EXIT_OK
    for each in found:
        _show(each)
    left_out = "" if names or everything else f" ({' and '.join(NOISE)} are not compared: --all)"
    click.echo(f"{len(found)} objects differ between versions {before} and {after}{left_out}")
    return EXIT_OK


def _compared(api: MeshApi, kind: ServedKind, before: str, after: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a kind that differ."""
    sides = [{_key(item): item for item in api.items(kind, at)} for at in (before, after)]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        was, now = (side.get(key) for side in sides)
        changed = differences(was, now)
        if not changed:
            continue
        is_again = was and now and was["metadata"]["uid"] != now["metadata"]["uid"]
        yield {
            "resource": kind.title,
            "namespace": key[0],
            "name": key[1],
            "change": "ADDED" if was is None else "DELETED" if now is None else "REPLACED" if is_again else "MODIFIED",
            "fields": [_shown(each) for each in changed] if kind.title == "secrets" else changed,
        }


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _shown(difference: Difference) -> Difference:
    """Return what may be shown of a Secret's field."""
    if not difference.path.startswith(("data", "stringData")):
        return difference
    sides = ("(hidden)" if each is not None else None for each in (difference.before, difference.after))
    return Difference(difference.path, *sides)


def _show(found: dict[str, Any]) -> None:
    colour = {"ADDED": "green", "DELETED": "red"}.get(found["change"], "yellow")
    where = "/".join(part for part in (found["namespace"], found["name"]) if part)
    click.secho(f"{found['change']:<9} {found['resource']} {where}", fg=colour)
    if found["change"] in ("MODIFIED", "REPLACED"):
        for each in found["fields"]:
            click.echo(f"    {each.path}: {_text(each.before)} → {_text(each.after)}")


def _text(value: object) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 1]}…"
