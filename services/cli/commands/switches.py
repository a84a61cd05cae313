"""`keplab switches`: the register of design choices."""

import click

from services.api.switches import REGISTER, Switch
from services.cli.output import EXIT_FAILED, EXIT_OK, output_option, print_json, print_table

EPILOG = """\
\b
Examples:
  keplab switches
  keplab switches unbind
  keplab switches -o json
"""


@click.command("switches", epilog=EPILOG)
@click.argument("pattern", required=False, default="")
@output_option
def COMMAND(pattern: str, output: str) -> int:  # noqa: N802
    """List every switch: what can be chosen between designs, its default, where it comes from and what shows it.

    What shows it is a scenario that compares its values: `keplab run` it with and without `--set`. PATTERN keeps those
    whose name or meaning contains it.
    """
    wanted = pattern.lower()
    found = [s for s in REGISTER if wanted in s.name.lower() or wanted in s.meaning.lower()]
    if output == "json":
        print_json({"switches": [_document(s) for s in found]})
    elif found:
        print_table(
            ("NAME", "DEFAULT", "VALUES", "MEANING", "SOURCE", "SHOWN BY"),
            [(s.name, _text(s.default), _values(s), s.meaning, s.source, s.shown_by) for s in found],
        )
    else:
        click.echo(f"no switch has {pattern!r} in its name or meaning", err=True)
    return EXIT_OK if found else EXIT_FAILED


def _document(switch: Switch) -> dict[str, object]:
    return {
        "name": switch.name,
        "type": switch.type,
        "default": switch.default,
        "values": list(switch.values),
        "minimum": switch.minimum,
        "maximum": switch.maximum,
        "meaning": switch.meaning,
        "source": switch.source,
        "scenario": switch.shown_by,
    }


def _values(switch: Switch) -> str:
    if switch.type == "flag":
        return "true|false"
    if switch.values:
        return "|".join(switch.values)
    low = "" if switch.minimum is None else f"{switch.minimum:g}"
    high = "" if switch.maximum is None else f"{switch.maximum:g}"
    return f"{switch.type} {low}..{high}" if low or high else switch.type


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
