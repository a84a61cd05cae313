"""`keplab store`: what the store of a mesh holds, and how to go on after a part of it was lost."""

from dataclasses import asdict
from pathlib import Path

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json
from lab.experiments.wording import counted
from services.runtime.config import StartError

FOLDER = "apiserver"

EPILOG = """\
\b
Examples:
  keplab store
  keplab store --data /tmp/mesh -o json | jq .refused
  keplab store --accept-loss

\b
An API server refuses a store of which acknowledged changes are missing, or may be: its write-ahead log is damaged or
gone, or `acked` is, which names the newest change that was acknowledged. First restore the whole directory from a copy,
if there is one. Without a copy, --accept-loss goes on with what is there: what was written after the version shown is
lost, versions go on a thousand million higher, and clients that have seen the lost ones are answered 410 and list anew.
"""


@click.command("store", epilog=EPILOG)
@data_option
@click.option("--accept-loss", is_flag=True, help="go on with what is there, without what is lost")
@output_option
def store(data: Path, accept_loss: bool, output: str) -> int:
    """Look at the store of a mesh that does not run.

    It shows the newest version, objects, and whether an API server serves it. Exit code 1 when it would be refused.
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
        click.echo(f"{counted(survey.objects, 'object')} at that version, {counted(survey.changes, 'change')} since")
        click.echo(f"refused: {survey.refused}" if survey.refused else "an API server serves it")
    return EXIT_FAILED if survey.refused else EXIT_OK
