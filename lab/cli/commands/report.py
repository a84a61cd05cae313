"""`keplab report`: write the page of a run or comparison again."""

from pathlib import Path
from typing import Any

import click
import msgspec

from lab.cli.output import EXIT_OK, fail, output_option, print_json, refusing
from lab.cli.run_options import runs_folder_option
from lab.runs.folder import PAGE_FILE, RunsFolder, Unreadable
from lab.runs.record import RunRecord, UnknownRun
from services.api.errors import UNREADABLE

RUN_KEYS = ("scenario", "mode", "seed", "digest", "passed", "expectations", "violations", "virtual_s", "wall_s")
EPILOG = """\
\b
Examples:
  keplab report latest
  keplab report RUN --report /tmp/run.html
  keplab report runs/runaway.json            the document beside the page of keplab compare
  keplab report saved.json                   what keplab run FILE -o json printed
"""


@click.command("report", epilog=EPILOG)
@click.argument("source", metavar="RUN|FILE.json", default="latest")
@click.option(
    "--report", type=click.Path(path_type=Path), help="path of the page  [default: beside the run or the document]"
)
@runs_folder_option
@output_option
def report(source: str, report: Path | None, runs: str, output: str) -> int:
    """Write the page of a run or a comparison again.

    RUN is a run that `keplab runs` lists, by default the newest; FILE.json is a document of `keplab compare` or of
    `keplab run -o json`. The command prints the path of the page. Pages open without a network.
    """
    file = Path(source)
    if file.suffix == ".json" or file.is_file():
        text, path = _of_file(file), file.with_suffix(".html")
    else:
        folder = RunsFolder(Path(runs))
        with refusing(UnknownRun, Unreadable):
            record, arm, _ = folder.find_by_name(source)
            if arm:
                fail(f"{source}: the page shows the whole comparison: keplab report {record.id}")
            text, path = _of_run(folder, record), folder.file(record.id, PAGE_FILE)
    path = report or path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write the report {path}: {error.strerror}")
    if output == "json":
        print_json({"report": str(path)})
    else:
        click.echo(path)
    return EXIT_OK


def _of_run(folder: RunsFolder, record: RunRecord) -> str:
    """Return the page of what was recorded. Raises: Unreadable."""
    from lab.experiments.run_page import RunPage
    from lab.ui.result_page import comparison_page, runs_page

    match record.kind:
        case "comparison":
            return comparison_page(folder.comparison(record.id)).text
        case "sweep":
            fail(f"run {record.id} is a sweep, which has no page; repeat it with {record.command}")
    origin = record.origin
    changes = " with changes that are not committed" if origin.changes else ""
    where = [
        ("run", f"{record.id}, {origin.made}"),
        ("revision", f"{origin.revision or 'none'}{changes} (keplab {origin.version})"),
        ("file", f"{origin.path}, SHA-256 {origin.sha256}"),
    ]
    fates = [(fate.owner, fate.outcome, fate.nodes, fate.pods, fate.first) for fate in record.fates]
    page = RunPage(record.result, record.title, record.about, record.samples, fates, where, record.command)
    return runs_page([page])


def _of_file(file: Path) -> str:
    """Return the page of a document that was printed or saved; what is none ends the command."""
    from lab.experiments.document import DocumentError, read_document
    from lab.experiments.run_page import RunPage
    from lab.ui.result_page import comparison_page, runs_page

    try:
        data = file.read_bytes()
        document: Any = msgspec.json.decode(data)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except UNREADABLE as error:
        fail(f"{file}: {error}")
    if isinstance(document, dict) and "schema" in document and "origin" not in document:
        with refusing(DocumentError):
            return comparison_page(read_document(data, str(file))).text
    runs = document if isinstance(document, list) else [document]
    for number, run in enumerate(runs):
        missing = [key for key in RUN_KEYS if not isinstance(run, dict) or key not in run]
        if missing:
            what = "neither a comparison of `keplab compare` nor runs of `keplab run -o json`"
            fail(f"{file}: {what}: element {number} has no {', '.join(missing[:3])}")
    if not runs:
        fail(f"{file}: there is no run in it")
    return runs_page([RunPage(each, command=each.get("command", "")) for each in runs])
