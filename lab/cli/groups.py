"""Help and errors of groups of commands: whole lines at every width, and suggestions for a mistyped name."""

import difflib
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

WIDTH_MAX = 110
NARROW = 60
"""Width in columns below which a definition stands under its term."""
SIMILAR = 0.65
KEPT = "\b"
"""Mark by which click keeps the lines of a paragraph as they are."""
EXAMPLE = re.compile(r"(?P<command> +\S.*?\S) {2,}(?P<purpose>\S.*)")
UNDER = " " * 6
COMPLETING = "_KEPLAB_COMPLETE"
"""Environment variable that a shell's script sets when it asks for completions."""


class Formatter(click.HelpFormatter):
    """A help formatter as wide as the terminal, also below 50 columns, which is click's minimum."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        columns = shutil.get_terminal_size().columns
        super().__init__(indent_increment, width or max(min(columns, max_width or WIDTH_MAX) - 2, 20), max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms with their definitions; on a narrow terminal a definition goes under its term."""
        super().write_dl(list(rows), col_max if self.width >= NARROW else 2, col_spacing)

    def write_text(self, text: str) -> None:
        """Write paragraphs.

        Paragraphs marked KEPT keep their lines where they fit. Where they do not, prose is wrapped, the purpose of an
        example goes under its command, and a command stays one line.
        """
        columns = self.width - self.current_indent
        super().write_text("\n\n".join(_fit_paragraph(each, columns) for each in text.split("\n\n")))


def _fit_paragraph(paragraph: str, width: int) -> str:
    """Return a paragraph that keeps its lines with all of them within the width, but for words and commands."""
    mark, *lines = paragraph.split("\n")
    if mark.strip() != KEPT or all(len(line) <= width for line in lines):
        return paragraph
    fitted: list[str] = []
    for line in _sentences(lines):
        example = EXAMPLE.fullmatch(line)
        if len(line) <= width or (line.startswith(" ") and example is None):
            fitted.append(line)
        elif example is None:
            fitted += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
        else:
            fitted.append(example["command"])
            fitted += textwrap.wrap(example["purpose"], width, initial_indent=UNDER, subsequent_indent=UNDER)
    return "\n".join([KEPT, *fitted])


def _sentences(lines: Iterable[str]) -> list[str]:
    """Join lines that are not indented and go on in the next."""
    joined: list[str] = []
    for line in lines:
        if joined and not line.startswith(" ") and joined[-1][:1] not in {" ", ""} and joined[-1][-1] not in ".:":
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


class Context(click.Context):
    """A call of a command, whose help is written by `Formatter`."""

    formatter_class = Formatter


class Group(click.Group):
    """A group that lists each command with its docstring's first line, uncut, and suggests names."""

    context_class = Context

    def lines(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the name and first help line of every command, by section."""
        shown = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return {"Commands": [(name, first_line(found)) for name, found in shown if found and not found.hidden]}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each section."""
        sections = self.lines(ctx)
        width = max(len(name) for rows in sections.values() for name, _ in rows) if formatter.width >= NARROW else 0
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in rows])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command whose help is written by `Formatter`."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.context_class = Context
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names. Raises: UsageError naming commands with a similar spelling."""
        if not args[0].startswith("-") and args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            _refuse(args[0], self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with the incomplete word, and the options."""
        shown = [row for rows in self.lines(ctx).values() for row in rows if row[0].startswith(incomplete)]
        commands = [CompletionItem(name, help=line) for name, line in shown]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def first_line(command: click.Command) -> str:
    """Return the first line of a command's help, without its period."""
    lines = (command.help or "").strip().splitlines()
    return lines[0].removesuffix(".") if lines else ""


def option_refused(error: click.NoSuchOption) -> click.UsageError:
    """Return the error for an unknown option, worded like that for an unknown command."""
    return click.UsageError(_not_found_text("option", error.option_name, error.possibilities or ()), error.ctx)


def _refuse(name: str, known: Sequence[str], ctx: click.Context) -> NoReturn:
    begun = [each for each in known if len(name) > 1 and each.startswith(name)]
    ctx.fail(_not_found_text("command", name, begun or difflib.get_close_matches(name, known, cutoff=SIMILAR)))


def _not_found_text(kind: str, name: str, close: Sequence[str]) -> str:
    return f"no such {kind} {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")
