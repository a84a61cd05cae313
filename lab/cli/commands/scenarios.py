"""`keplab scenarios`: the scenarios shipped."""

from dataclasses import asdict
from pathlib import Path

import click

from lab.cli.output import fail, output_option, print_json, print_table
from lab.cli.scenario_files import FOLDER, below, shipped
from lab.scenarios.findings import finding_of_scenario


@click.command(
    "scenarios",
    epilog="""\b
Examples:
  keplab scenarios
  keplab scenarios --dir experiments/unbinding -o json""",
)
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="below this folder [./experiments, or the shipped]"
)
@output_option
def scenarios(folder: Path | None, output: str) -> None:
    """List the scenarios below a folder.

    `keplab run` takes one by its path or by its file's name. Without --dir those below ./experiments are listed, or
    where there is no such folder those that came with keplab. FINDING is what the folder's README.md says that a
    scenario shows, or else what the whole folder found.
    """
    if folder is None:
        folder = Path(FOLDER) if Path(FOLDER).is_dir() else shipped()
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
