"""`keplab store`: show what the store of a mesh holds, and how to continue after a part of it was lost."""

from dataclasses import asdict
from pathlib import Path

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json
from lab.experiments.wording import count_text
from services.runtime.config import StartError

FOLDER = "apiserver"

EPILOG = """\
\b
Examples:
  keplab store
  keplab store --data /tmp/mesh -o json | jq .refused
  keplab store --accept-loss

\b
An API server refuses a store in which acknowledged changes are missing, or may be: its write-ahead log is damaged or
gone, or the file `acked` is, which names the newest acknowledged change. First restore the whole directory from a copy,
if there is one. Without a copy, --accept-loss goes on with the changes that are left. Changes after the version shown
are then lost, and versions go on a thousand million higher. Clients that have seen lost changes are answered 410 and
list anew.
"""


@click.command("store", epilog=EPILOG)
@data_option
@click.option("--accept-loss", is_flag=True, help="accept that the missing changes are lost, and go on without them")
@output_option
def store(data: Path, accept_loss: bool, output: str) -> int:
    """Inspect the store of a mesh that does not run.

    The output shows the newest version, the number of objects, and whether an API server would serve the store. The
    exit code is 1 when an API server would refuse it.
    """
    # Only here: other commands need no database.
    from apiserver_fake.storage.sqlite import SqliteJournal

    folder = data / FOLDER if (data / FOLDER).is_dir() else data
    if not folder.is_dir():
        fail(f"no mesh has run on {data}: there is no store", EXIT_FAILED)
    journal = SqliteJournal(folder)
    try:
        goes_on = journal.accept_loss() if accept_loss else 0
        survey = journal.survey()
    except StartError as error:
        fail(error.message)
    finally:
        journal.release()
    if output == "json":
        print_json({"directory": str(folder), "accepted_at": goes_on, **asdict(survey)})
    else:
        if goes_on:
            click.echo(f"accepted: versions go on from {goes_on}")
        click.echo(f"{folder}: version {survey.resource_version}, watches from {survey.window_start} on")
        click.echo(
            f"{count_text(survey.objects, 'object')} at that version, {count_text(survey.changes, 'change')} since"
        )
        click.echo(f"refused: {survey.refused}" if survey.refused else "an API server serves it")
    return EXIT_FAILED if survey.refused else EXIT_OK
