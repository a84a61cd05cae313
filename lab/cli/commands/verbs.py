"""`keplab verbs`: list the scenario language, from its own declarations."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from lab.cli.output import EXIT_OK, EXIT_USAGE, fail, print_json, print_table, terminal_width, write_file
from lab.cli.tables import hanging
from lab.experiments.wording import count_text
from lab.scenarios.script import editors, reference
from lab.scenarios.script.declaration import Declaration, Option
from lab.scenarios.script.expectation import OPERATORS, PATHS
from lab.scenarios.script.reference import EXPECT, plain, unless_given, value_of
from lab.scenarios.script.scenario import SETTINGS
from lab.scenarios.script.value_types import suggestion
from lab.scenarios.script.verbs import TOPICS, VERBS

EPILOG = """\
\b
Examples:
  keplab verbs
  keplab verbs pod
  keplab verbs expect
  keplab verbs kill -o json
  keplab verbs --editor ~/.vscode/extensions/keplab-scenario
"""


@click.command("verbs", epilog=EPILOG)
@click.argument("name", required=False, default="")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="output format",
)
@click.option(
    "--editor",
    type=click.Path(file_okay=False, path_type=Path),
    help="directory to write a VS Code extension into: a TextMate grammar, snippets, JSON schemas",
)
def verbs(name: str, output: str, editor: Path | None) -> int:
    """List the verbs, settings and expectations of scenarios.

    With NAME the command prints the words, options and examples of a verb, a setting or a form of `expect`. Each
    example is a scenario that `keplab run` takes as it is.
    """
    everything = reference.every(SETTINGS, VERBS)
    if editor is not None:
        return _write(editor, output)
    chosen = reference.names_near(name, everything) if name else list(everything)
    if not chosen:
        click.echo(f"keplab: no verb {name!r}{suggestion(name, everything)}; `keplab verbs` lists them", err=True)
        return EXIT_USAGE
    if output == "json":
        print_json({"verbs": [reference.document(each, everything[each]) for each in chosen]})
    elif output == "markdown":
        pages = "\n".join(reference.page(each, everything[each], everything) for each in chosen)
        click.echo(pages if name else markdown(), nl=False)
    elif name:
        for number, verb in enumerate(chosen):
            click.echo("\n" * bool(number), nl=False)
            _show(verb, everything[verb])
    else:
        ordered = [
            (each, declared) for topic in TOPICS for each, declared in everything.items() if declared.topic == topic
        ]
        print_table(("NAME", "TOPIC", "MEANING"), [(each, d.topic, plain(d.meaning)) for each, d in ordered])
    return EXIT_OK


def markdown() -> str:
    """Return the page docs/reference/scenario-language.md."""
    return reference.markdown(reference.every(SETTINGS, VERBS), TOPICS)


def _write(folder: Path, output: str) -> int:
    try:
        release = version("keplab")
    except PackageNotFoundError:
        release = "0.0.0"
    texts = editors.files(SETTINGS, VERBS, release)
    for path, text in texts.items():
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"cannot write {folder / path}: {error.strerror}")
        write_file(folder / path, text)
    if output == "json":
        print_json({"folder": str(folder), "files": list(texts)})
    else:
        files = count_text(len(texts), "file is", "files are")
        click.echo(f"{files} in {folder}; restart the editor. Grammar: {folder / editors.GRAMMAR}")
    return EXIT_OK


def _show(name: str, declared: Declaration) -> None:
    width = terminal_width()
    click.secho(reference.usage(name, declared), bold=True)
    click.echo(hanging("  ", plain(declared.meaning), width))
    for paragraph in filter(None, plain(declared.notes).split("\n\n")):
        click.echo(hanging("  ", paragraph, width))
    document = reference.document(name, declared)
    if document["arguments"]:
        click.echo()
        print_table(("WORD", "MEANING"), [(each["name"], each["meaning"]) for each in document["arguments"]])
    if declared.block:
        click.echo(f"\nIts block has {declared.block}.")
    if declared.options:
        click.echo()
        print_table(
            ("OPTION", "VALUE", "UNLESS GIVEN", "MEANING", "FIELD"),
            [_row(each) for each in declared.options],
            spare=("FIELD",),
        )
    if name.startswith(EXPECT):
        click.echo()
        print_table(("PATH", "LEADS TO"), [(path, plain(what)) for path, what in PATHS.items()])
        click.echo()
        print_table(("OP", "COMPARES"), list(OPERATORS.items()))
    for text in declared.examples:
        click.echo()
        for line in text.splitlines():
            click.echo(f"  {line}")


def _row(option: Option) -> tuple[str, str, str, str, str]:
    return f"{option.name}=", value_of(option), unless_given(option), plain(option.meaning), option.field
