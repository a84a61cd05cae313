"""`keplab scenarios`: the scenarios shipped."""

from dataclasses import asdict
from pathlib import Path

import click

from services.cli.output import fail, output_option, print_json, print_table
from services.cli.scenario_files import below


@click.command(
    "scenarios",
    epilog="""\b
Examples:
  keplab scenarios
  keplab scenarios --dir experiments/unbinding -o json""",
)
@click.option("--dir", "folder", type=click.Path(path_type=Path), default=Path("experiments"), show_default=True)
@output_option
def COMMAND(folder: Path, output: str) -> None:  # noqa: N802
    """List the scenarios below a folder."""
    if not folder.is_dir():
        fail(f"there is no folder {folder}; run this where the repository's experiments/ is, or give --dir")
    try:
        scenarios = list(below(folder))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"a scenario below {folder} cannot be read: {error}")
    if output == "json":
        print_json([asdict(each) for each in scenarios])
        return
    print_table(["file", "scenario"], [(each.file, each.title) for each in scenarios])
