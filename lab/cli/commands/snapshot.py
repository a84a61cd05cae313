"""`keplab snapshot`: save the mesh's own state exactly in a file, and restore it."""

from pathlib import Path

import click
import msgspec

from lab.cli.groups import Group
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json, print_table, refusing
from lab.experiments.wording import count_text

EPILOG = """\
\b
Examples:
  keplab snapshot save before
  keplab down && keplab snapshot restore before && keplab up
  keplab snapshot list
  keplab fork --from .keplab/snapshots/before.keplab          simulate from it
  keplab snapshot export before -o before.yaml                for kwokctl

\b
A snapshot holds every object with uid, version and managed fields, the counter, the records of the kubelets and their
container runtimes, and the switches. It also holds the values of Secrets, in a file that only its owner may read. It
holds no keys and no tokens. A snapshot can only be restored into a store of the same format.
"""


@click.group("snapshot", cls=Group, epilog=EPILOG)
def snapshot() -> None:
    """Save the state of the mesh, and restore it."""


@snapshot.command("save")
@click.argument("name")
@data_option
@output_option
def save_command(name: str, data: Path, output: str) -> int:
    """Save the state of a mesh, up or down.

    NAME is the name of a snapshot below the data directory. With a slash in it, or .keplab at its end, it is the path
    of a file.
    """
    from lab.cli.mesh_state import state_of
    from lab.cli.snapshots import SnapshotError, place_of, save
    from lab.scenarios.initial_state import StateError

    with refusing(SnapshotError, StateError):
        path = place_of(data, name)
        try:
            about = save(data, path, lambda: state_of(data, 0))
        except OSError as error:
            fail(f"cannot write {path}: {error.strerror or error}", EXIT_FAILED)
    if output == "json":
        print_json({"file": str(path), **msgspec.to_builtins(about)})
    else:
        click.echo(f"version {about.resource_version} with {count_text(about.objects, 'object')} is in {path}")
    return EXIT_OK


@snapshot.command("restore")
@click.argument("name")
@data_option
@output_option
def restore_command(name: str, data: Path, output: str) -> int:
    """Restore a snapshot into the data directory.

    The mesh of the directory must be down, and its state is replaced. Versions go on above the saved version, and
    watches begin anew.
    """
    from lab.cli.snapshots import SnapshotError, place_of, restore

    with refusing(SnapshotError):
        path = place_of(data, name)
        try:
            about = restore(path, data)
        except OSError as error:
            fail(f"cannot restore {path}: {error.strerror or error}", EXIT_FAILED)
    if output == "json":
        print_json({"file": str(path), "data": str(data), **msgspec.to_builtins(about)})
    else:
        click.echo(f"{data} is at version {about.resource_version} again, with {count_text(about.objects, 'object')}")
        if about.engine != "sqlite":
            click.echo(
                f"  its store was {about.engine}'s; it goes on in SQLite's, which is below {data}; an etcd begins empty"
            )
        switches = "".join(f" --set {each}" for each in about.switches)
        click.echo(f"  go on with   keplab up --data {data}{switches}")
    return EXIT_OK


@snapshot.command("list")
@data_option
@output_option
def list_command(data: Path, output: str) -> int:
    """List the snapshots below the data directory."""
    from lab.cli.snapshots import FOLDER, SUFFIX, SnapshotError, about_of

    snapshots = []
    for path in sorted((data / FOLDER).glob(f"*{SUFFIX}")):
        try:
            about = about_of(path)
            row = {"version": about.resource_version, "objects": about.objects, "taken": about.taken, "problem": ""}
        except SnapshotError as error:
            row = {"version": None, "objects": None, "taken": "", "problem": str(error)}
        snapshots.append({"name": path.name.removesuffix(SUFFIX), "file": str(path), **row})
    if output == "json":
        print_json({"snapshots": snapshots})
    elif not snapshots:
        click.echo(f"no snapshots in {data / FOLDER}")
    else:
        rows = [(each["name"], each["version"], each["objects"], each["taken"], each["problem"]) for each in snapshots]
        print_table(("NAME", "VERSION", "OBJECTS", "TAKEN", ""), rows)
    return EXIT_OK


@snapshot.command("export")
@click.argument("name")
@click.option("--format", "format_name", default="kwok", show_default=True, help="format of the file")
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True, help="file to write")
@click.option("--secrets", "has_secrets", is_flag=True, help="write the values of Secrets too")
@data_option
def export_command(name: str, format_name: str, path: Path, has_secrets: bool, data: Path) -> int:
    """Write a snapshot for another tool.

    The values of Secrets are left out unless --secrets is given; their names and keys are written. Only the file's
    owner may read it.
    """
    from lab.cli.exchange.files import writing
    from lab.cli.mesh_state import state_of
    from lab.cli.snapshots import SnapshotError, about_of, place_of
    from lab.exchange.recorder import without_values
    from lab.exchange.stream import Refused
    from lab.scenarios.initial_state import StateError

    with refusing(SnapshotError, StateError, Refused):
        place = place_of(data, name)
        about_of(place)
        state = state_of(place, 0)
        with writing(path, format_name, state.wall_s) as writer:
            for entry in state.objects:
                writer.put(entry.document if has_secrets else without_values(entry.document))
    click.echo(f"{count_text(len(state.objects), 'object is', 'objects are')} in {path}")
    return EXIT_OK
