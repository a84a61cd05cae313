"""`keplab scenarios`: list the scenarios that are shipped."""

from dataclasses import asdict
from pathlib import Path

import click

from lab.cli.output import fail, output_option, print_json, print_table
from lab.cli.scenario_files import FOLDER, below, shipped_folder
from lab.scenarios.findings import finding_of_scenario


@click.command(
    "scenarios",
    epilog="""\b
Examples:
  keplab scenarios
  keplab scenarios --dir experiments/unbinding -o json""",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="folder to search for scenarios [./experiments, or the shipped scenarios]",
)
@output_option
def scenarios(folder: Path | None, output: str) -> None:
    """List the scenarios below a folder.

    `keplab run` takes a scenario by its path or by the name of its file. Without --dir the command lists the scenarios
    below ./experiments, or the shipped scenarios where there is no such folder. FINDING is the finding of the scenario
    in the README.md of its folder, or else the finding of the whole folder.
    """
    if folder is None:
        folder = Path(FOLDER) if Path(FOLDER).is_dir() else shipped_folder()
    if not folder.is_dir():
        fail(f"there is no folder {folder}")
    try:
        scenarios = [(each, finding_of_scenario(Path(each.file))) for each in below(folder)]
    except (OSError, UnicodeDecodeError) as error:
        fail(f"a scenario or README.md below {folder} cannot be read: {error}")
    if output == "json":
        print_json([asdict(each) | {"finding": finding} for each, finding in scenarios])
        return
    print_table(("FILE", "SCENARIO", "FINDING"), [(each.file, each.title, finding) for each, finding in scenarios])
