"""`python -m benchmarks`: measure everything and write `docs/benchmarks/`."""

import sys
import time
from pathlib import Path

import click

from benchmarks.figures import measure
from benchmarks.report import write


@click.command()
@click.option("--quick", is_flag=True, help="small workloads, about a minute; nothing is written unless --out is given")
@click.option("--preliminary", is_flag=True, help="say in the report that other work ran beside it")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None, help="default: docs/benchmarks")
def main(quick: bool, preliminary: bool, out: Path | None) -> None:
    """Measure everything that the project reports, on this machine, in one go."""
    begun = time.perf_counter()

    def say(text: str) -> None:
        click.echo(f"[{time.perf_counter() - begun:5.1f} s] {text}")

    found = measure(say, is_quick=quick)
    for figure in found.figures:
        click.echo(f"{figure.title:<58} {figure.value:>12,.2f} {figure.unit:<10} {figure.aim_text}")
    target = out or (None if quick else Path("docs/benchmarks"))
    if target is not None:
        write(found, target, command=_command(quick=quick), is_preliminary=preliminary)
        say(f"wrote {target}/figures.json and {target}/README.md")


def _command(*, quick: bool) -> str:
    return "python -m benchmarks --quick" if quick else "make bench"


if __name__ == "__main__":
    sys.exit(main())
