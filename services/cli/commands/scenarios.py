"""`keplab scenarios`: the scenarios shipped."""

from pathlib import Path

import click

from services.cli.output import fail, output_option, print_json, print_table, refusing
from services.scenarios.run import load_scenario
from services.scenarios.script.scenario import ScriptError


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
    """List every scenario below a folder with its first line."""
    if not folder.is_dir():
        fail(f"there is no folder {folder}; run this where the repository's experiments/ is, or give --dir")
    with refusing(ScriptError):
        scenarios = [load_scenario(path) for path in sorted(folder.rglob("*.txt"))]
    if output == "json":
        print_json([{"file": s.path, "title": s.title, "about": s.about, "switches": s.switches} for s in scenarios])
        return
    print_table(["file", "scenario"], [(s.path, s.title) for s in scenarios])
