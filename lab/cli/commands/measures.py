"""`keplab measures`: list the measures by which runs are compared."""

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, output_option, print_json, print_table
from lab.scenarios.measures.packages import measures as measures_of_packages
from lab.scenarios.measures.register import MEASURES

EPILOG = """\
\b
Examples:
  keplab measures
  keplab measures utilization
  keplab measures -o json | jq -r '.measures[] | select(.better == "lower").name'
"""


@click.command("measures", epilog=EPILOG)
@click.argument("pattern", required=False, default="")
@output_option
def measures(pattern: str, output: str) -> int:
    """List the measures of a run, and which direction is better.

    RESOURCE in a name stands for cpu, memory and each other resource that a pod requests. Measures of installed
    packages come last; a scenario has one computed by `measure NAME`, and states a measure of its own by `measure NAME
    = EXPRESSION`. PATTERN keeps the measures whose name or meaning contains it.
    """
    wanted = pattern.lower()
    known = [*MEASURES, *measures_of_packages()]
    matches = [each for each in known if wanted in each.name.lower() or wanted in each.meaning.lower()]
    if output == "json":
        print_json({"measures": [each.document() for each in matches]})
    elif matches:
        print_table(
            ("NAME", "UNIT", "BETTER", "MEANING", "FROM"),
            [(each.name, each.unit, each.better, each.meaning, each.source) for each in matches],
            spare=("FROM",),
        )
    else:
        click.echo(f"no measure has {pattern!r} in its name or meaning", err=True)
    return EXIT_OK if matches else EXIT_FAILED
