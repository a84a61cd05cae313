"""`keplab switches`: list the design choices."""

import click

from lab.cli import completing
from lab.cli.output import EXIT_FAILED, EXIT_OK, output_option, print_block, print_json, print_table
from lab.cli.switch_sources import references
from services.api.release import FOLLOWED, RELEASES
from services.api.switches import REGISTER, Switch

EPILOG = """\
\b
Examples:
  keplab switches
  keplab switches unbind
  keplab switches unbind.fence
  keplab switches --release 1.35
  keplab switches -o json
"""


@click.command("switches", epilog=EPILOG)
@click.argument("pattern", required=False, default="", shell_complete=completing.switch_names)
@click.option(
    "--release",
    type=click.Choice(tuple(RELEASES)),
    default=FOLLOWED,
    help=f"release whose defaults are shown [{FOLLOWED}]",
)
@click.option("--differing", is_flag=True, help="list only switches whose default differs between releases")
@output_option
def switches(pattern: str, release: str, differing: bool, output: str) -> int:
    """List the switches: every choice between designs.

    Each switch has a default, a source and a scenario that shows its effect: `keplab run` that scenario with and
    without `--set`. PATTERN keeps the switches whose name or meaning contains it; the whole name of a switch shows it
    in full. SOURCE says where the design is described: a page of the repository with its section, and the KEP. `--set
    emulate.version=1.35` takes all defaults of that release. SINCE names the releases that changed the default.
    """
    wanted = pattern.lower()
    named = [s for s in REGISTER if wanted == s.name.lower()]
    matches = named or [s for s in REGISTER if wanted in s.name.lower() or wanted in s.meaning.lower()]
    matches = [s for s in matches if s.by_release or not differing]
    if output == "json":
        print_json({"switches": [_document(s, release) for s in matches]})
    elif named and matches:
        print_block(*_block(matches[0], release))
    elif matches:
        print_table(
            ("NAME", "DEFAULT", "SINCE", "VALUES", "MEANING", "SOURCE", "SHOWN BY"),
            [
                (s.name, _default(s, release), _since(s), _values(s), s.meaning, _source_text(s), s.shown_by)
                for s in matches
            ],
            spare=("SINCE", "SOURCE", "SHOWN BY"),
        )
    else:
        click.echo(f"no switch has {pattern!r} in its name or meaning", err=True)
    return EXIT_OK if matches else EXIT_FAILED


def _document(switch: Switch, release: str) -> dict[str, object]:
    return {
        "name": switch.name,
        "type": switch.type,
        "default": switch.default_in(release),
        "by_release": {each: switch.default_in(each) for each in RELEASES},
        "known_from": switch.known_from,
        "locked_from": switch.locked_from,
        "values": list(switch.values),
        "minimum": switch.minimum,
        "maximum": switch.maximum,
        "meaning": switch.meaning,
        "source": switch.source,
        "references": [each.document() for each in references(switch.source)],
        "scenario": switch.shown_by,
    }


def _block(switch: Switch, release: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a switch's name, and everything about it, a line each."""
    opened = [("OPEN", str(each)) for each in references(switch.source)]
    return switch.name, [
        ("MEANING", switch.meaning),
        ("TYPE", switch.type),
        ("VALUES", _values(switch)),
        ("DEFAULT", _default(switch, release)),
        *((f"IN {each}", _default(switch, each)) for each in RELEASES if switch.by_release),
        ("SOURCE", switch.source),
        *opened,
        ("SHOWN BY", switch.shown_by),
    ]


def _default(switch: Switch, release: str) -> str:
    """Return the default in a release, whether it cannot be set otherwise, or that the release has no such gate."""
    if not switch.is_known_in(release):
        return "unknown"
    return _text(switch.default_in(release)) + (" (locked)" if switch.is_locked_in(release) else "")


def _source_text(switch: Switch) -> str:
    """Return where the source can be opened, with what is one long address as the source names it."""
    found = [each for each in references(switch.source) if not each.url.startswith("https://github.com/")]
    return ", ".join(each.document()["text"] for each in found) or switch.source


def _since(switch: Switch) -> str:
    return ", ".join(f"{release} {_text(value)}" for release, value in switch.since)


def _values(switch: Switch) -> str:
    if switch.type == "flag":
        return "true | false"
    if switch.values:
        return " | ".join(switch.values)
    low = "" if switch.minimum is None else f"{switch.minimum:g}"
    high = "" if switch.maximum is None else f"{switch.maximum:g}"
    return f"{switch.type} {low}..{high}" if low or high else switch.type


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
