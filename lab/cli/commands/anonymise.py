"""`keplab anonymise`: write a file of another tool without the names of its origin."""

from __future__ import annotations

from pathlib import Path

import click

from lab.cli.exchange.files import format_option, options_of, options_option, say_guess, source_of
from lab.cli.output import EXIT_OK, fail, refusing
from lab.exchange.anonymiser import anonymise_files, read_salt
from lab.exchange.format import format_of
from lab.exchange.stream import Refused

EPILOG = """\
\b
Examples:
  openssl rand -hex 32 > salt
  keplab anonymise day.yaml --salt salt -o shared.yaml
  keplab anonymise week.sktrace --salt salt -o shared.sktrace

\b
Names become others of the same order, so that a replay decides as it did; equal texts stay equal. Annotations,
environments, commands, messages, addresses, and what ConfigMaps and Secrets hold are dropped. A file of kwokctl or
SimKube keeps its format; all other files become kwokctl's. Keep the salt to yourself: it is not in the output.
"""


@click.command("anonymise", epilog=EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--salt",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="SALTFILE",
    help="file with a secret key of at least 16 bytes",
)
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True, help="file to write")
@format_option("format of the files [recognised by their content]")
@options_option
def anonymise(
    files: tuple[Path, ...], salt: Path, path: Path, format_name: str | None, options: tuple[str, ...]
) -> int:
    """Write a snapshot, recording or trace without its names.

    Several files are the tables of one public trace.
    """
    with refusing(Refused):
        if any(path.resolve() == each.resolve() for each in (*files, salt)):
            fail(f"-o {path}: want another file than what is read")
        sources = [source_of(each) for each in files]
        for source in sources:
            say_guess(source, format_of(source, format_name or ""), format_name)
        written = anonymise_files(sources, read_salt(salt), path, format_name or "", options_of(options))
    click.echo(f"{path} is in format {written}")
    return EXIT_OK
