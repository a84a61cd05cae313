"""Sources of the commands that look back: a mesh, or a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.cli.output import DATA_DIR_DEFAULT, EXIT_FAILED, F, fail, refusing
from lab.recordings.format import META, Unreadable
from services.api.errors import ApiError, NotFound

if TYPE_CHECKING:
    from lab.cli.mesh_api import Objects
    from lab.recordings.reader import Recording
    from services.client.discovery import ServedKind


def source_options(command: F) -> F:
    """Add `--data` and `--recording` to a command; the parameters have these names."""
    data = click.option(
        "--data",
        type=click.Path(path_type=Path),
        default=Path(DATA_DIR_DEFAULT),
        show_default=True,
        help="directory of the mesh: state, logs, kubeconfig; or a recording",
    )
    return recording_option(data(command))


def recording_option(command: F) -> F:
    """Add `--recording` to a command."""
    help_text = "recording of `keplab run --recording` to read, instead of a mesh"
    kind = click.Path(path_type=Path)
    return click.option("--recording", type=kind, metavar="FILE.keprec", help=help_text)(command)


def recording_of(data: Path, recording: Path | None) -> Path | None:
    """Return the recording that the options name; None if they name a mesh."""
    if recording is not None:
        return recording
    return data if data.is_file() or (data / META).is_file() else None


def objects_of(data: Path, recording: Path | None) -> Objects:
    """Return the source that answers questions about objects; one that cannot be read ends the command."""
    path = recording_of(data, recording)
    if path is None:
        from lab.cli.mesh_api import MeshApi

        return MeshApi(data)
    from lab.recordings.recorded_api import RecordedApi

    return RecordedApi(open_recording(path), lambda text: click.secho(f"keplab: {text}", err=True, fg="yellow"))


def kind_named(api: Objects, name: str) -> ServedKind:
    """Return the kind that a user means; an unknown one ends the command."""
    with refusing(ApiError, code=EXIT_FAILED), refusing(NotFound):
        return api.kind_named(name)


def open_recording(path: Path) -> Recording:
    """Return the recording; one that cannot be read ends the command in one line."""
    from lab.recordings.reader import Recording

    try:
        return Recording.open(path)
    except Unreadable as error:
        fail(str(error))
