"""The generated pages of the reference: Markdown, made from the product's own registers.

Each function takes nothing and returns the text that stands in place of `<!-- generated: NAME -->` on a page of
docs/reference; what a register gains appears by itself. `GENERATED` lists them.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import click

from lab.cli.switch_sources import Reference, references
from services.api.meta import Resource
from services.api.switches import REGISTER, Switch

ROOT = Path(__file__).parents[2]


def commands() -> str:
    """Every command of `keplab`, as its `--help` prints it."""
    return "\n\n".join(
        f"{'#' * max(2, len(path))} {' '.join(path)}\n\n```text\n{text}\n```" for path, text in _helps(_root(), ())
    )


def _root() -> click.Command:
    from lab.cli.__main__ import cli

    return cli


def _helps(
    command: click.Command, above: tuple[str, ...], parent: click.Context | None = None
) -> Iterator[tuple[tuple[str, ...], str]]:
    path = (*above, command.name if above and command.name else "keplab")
    context = click.Context(command, parent, info_name=path[-1], max_content_width=100, terminal_width=100, color=False)
    yield path, click.unstyle(command.get_help(context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _helps(below, path, context)


def switches() -> str:
    """Every switch: what it chooses, its values and defaults, its sources as links, the scenario that shows it."""
    by_subject = sorted(REGISTER, key=lambda switch: (_subject(switch.name), switch.name.lower()))
    parts = []
    for subject, those in groupby(by_subject, key=lambda switch: _subject(switch.name)):
        parts.append(f"## {subject}")
        parts += [_switch(switch) for switch in those]
    return "\n\n".join(parts)


def _subject(name: str) -> str:
    return "Feature gates" if name[:1].isupper() else f"`{name.partition('.')[0]}`"


def _switch(switch: Switch) -> str:

    values = "`true`, `false`" if switch.type == "flag" else ", ".join(f"`{value}`" for value in switch.values if value)
    if not values:
        low, high = switch.minimum, switch.maximum
        bounds = f" from {low:g}" if low is not None else ""
        values = f"{'an' if switch.type == 'integer' else 'a'} {switch.type}{bounds}" + (
            f" to {high:g}" if high is not None else ""
        )
    default = f"`{_value(switch.default)}`"
    if switch.since:
        default += "; " + ", ".join(f"{release}: `{_value(value)}`" for release, value in switch.since)
    links = [_link(each) for each in references(switch.source)]
    return (
        f"### {switch.name}\n\n{_sentence(switch.meaning)}\n\n"
        f"* Values: {values}. Default: {default}.\n"
        f"* Source: {', '.join(links)}. Shown by [{switch.shown_by}](../../{switch.shown_by})."
    )


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _link(reference: Reference) -> str:
    if reference.url:
        return f"[{reference.url.partition('://')[2]}]({reference.url})"
    name = Path(reference.page).stem
    anchors = headings(ROOT / reference.page)
    return ", ".join(
        f"[{name} {place}](../spec/{name}.md{'#' + anchors[place] if place in anchors else ''})"
        for place in reference.places
    )


@cache
def headings(page: Path) -> dict[str, str]:
    """Return the anchor of each numbered heading of a page, by its number."""
    found = (re.match(r"#+ ((\d+(?:\.\d+)*)\.? .*)", line) for line in page.read_text().splitlines())
    return {each[2]: slug(each[1]) for each in found if each}


def slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def invariants() -> str:
    """Every invariant that is judged in each run, with what its class says; then those that are judged elsewhere."""
    from lab.scenarios.invariants.auditor import ELSEWHERE, checks

    parts = []
    for check in checks():
        module = inspect.getmodule(check)
        first = _paragraph((module.__doc__ if module else "") or "")
        title = first.partition(":")[2].strip() or first
        body = _unwrapped(inspect.getdoc(check) or "").removeprefix(f"{check.id}: ")
        path = Path(inspect.getfile(check)).relative_to(ROOT)
        parts.append(f"## {check.id}: {title.rstrip('.')}\n\n{_sentence(body)}\n\nJudged by [{path}](../../{path}).")
    rows = "\n".join(f"| {name} | {why} |" for name, why in ELSEWHERE.items())
    return "\n\n".join([*parts, f"## Judged elsewhere\n\n| Invariant | How |\n|---|---|\n{rows}"])


def kinds() -> str:
    """Every kind that is served, as `kubectl api-resources` lists them, with all versions, subresources and gates."""
    from apiserver_fake.extensions.register import whole_catalogue

    served: dict[tuple[str, str], list[Resource]] = {}
    for version in whole_catalogue().served_versions.values():
        for one in version.values():
            served.setdefault((one.resource.group, one.resource.plural), []).append(one.resource)
    head = "| Name | Short names | Group | Versions | Kind | Namespaced | Subresources | Feature gate |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(_kind(served[name]) for name in sorted(served))])


def _kind(versions: list[Resource]) -> str:
    one = versions[0]
    cells = (
        f"`{one.plural}`",
        _quoted(one.short_names),
        one.group or "core",
        _quoted(each.version for each in versions),
        one.kind,
        "yes" if one.namespaced else "no",
        _quoted(one.subresources),
        f"[{one.gate}](switches.md#{slug(one.gate)})" if one.gate else "",
    )
    return f"| {' | '.join(cells)} |"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def metrics() -> str:
    """Every metric that a component declares, with its type, labels and help."""
    from lab.cli.metrics_index import markdown

    return markdown()


def admission_plugins() -> str:
    """Every admission plugin that upstream has on by default, and where keplab does what it does."""
    from admission_plugins import table

    return table()


def fields() -> str:
    """How many fields of the served schema are read, dropped and kept without effect, and which those are."""
    from fields import table

    return table()


def measures() -> str:
    """Every measure of a run."""
    from lab.scenarios.measures.register import reference

    return reference()


def _paragraph(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())


def _unwrapped(text: str) -> str:
    """Return prose with one line a paragraph; lists keep their lines."""
    parts = re.split(r"\n[ \t]*\n", text.strip())
    return "\n\n".join(part if re.match(r"\s*[*-] ", part) else " ".join(part.split()) for part in parts)


def _sentence(text: str) -> str:
    text = re.sub(r"<(?=[a-zA-Z/])", r"\\<", text.strip())
    first = text.split(" ", 1)[0]
    text = text if re.search(r"[.A-Z_]", first[1:]) else text[:1].upper() + text[1:]
    return text + ("" if text.endswith((".", ":", "`")) else ".")


def cell(text: str) -> str:
    """Return text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def modules() -> str:
    """Every module with the first sentence of its docstring, by folder."""
    parts = []
    for top in ("apiserver_fake", "claim_controller", "kubelet", "lab", "scheduler", "services"):
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            rows = [f"| `{path.name}` | {_first_sentence(path)} |" for path in files]
            parts.append(f"## {folder.relative_to(ROOT)}/\n\n{_first_sentence(folder / '__init__.py')}")
            if rows:
                parts.append("\n".join(("| Module | |", "|---|---|", *rows)))
    return "\n\n".join(parts)


def _first_sentence(path: Path) -> str:
    """Return the first paragraph of a module's docstring, for a cell of a table."""
    found = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else ""
    return " ".join((found or "").split("\n\n")[0].split()).replace("|", "\\|").replace("<", "\\<")


GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "switches": switches,
    "measures": measures,
    "invariants": invariants,
    "kinds": kinds,
    "metrics": metrics,
    "admission-plugins": admission_plugins,
    "fields": fields,
    "modules": modules,
}
"""By the name on the page."""
