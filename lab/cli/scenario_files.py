"""Scenario files: their places, by path or by name, and their first lines; the code to run them is not imported.

A path takes precedence over a name. A name is that of a file below `experiments/` of the current folder, or of
the experiments that are installed with keplab: `runaway` is `experiments/runaway/runaway.txt`.
"""

import difflib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

ENDING = ".txt"
FOLDER = "experiments"
PACKAGE = Path(__file__).parents[1]


def shipped_folder() -> Path:
    """Return the folder of the experiments shipped with keplab: in its wheel, or in its repository."""
    inside = PACKAGE / "shipped" / FOLDER
    return inside if inside.is_dir() else PACKAGE.parent / FOLDER


def find(text: str) -> Path:
    """Return the file or folder that a path or name means; one that does not exist is returned unchanged.

    Raises: ValueError naming the matching files when there are several.
    """
    path = Path(text)
    if path.exists() or path.is_absolute() or ".." in path.parts:
        return path
    if path.parts[:1] == (FOLDER,):
        inside = shipped_folder() / Path(*path.parts[1:])
        return inside if inside.exists() else path
    named = (*path.parts[:-1], path.name.removesuffix(ENDING) + ENDING)
    for top in (Path(FOLDER), shipped_folder()):
        matches = [each for each in sorted(top.rglob(f"*{ENDING}")) if each.parts[-len(named) :] == named]
        if len(matches) > 1:
            raise ValueError(f"{text} is the name of {' and '.join(map(str, matches))}")
        if matches or (top / path).exists():
            return matches[0] if matches else top / path
    return path


def path_in_command(path: Path) -> str:
    """Return the word for a file in a command that is typed in another folder.

    For a file shipped with keplab it is the path from `experiments/`, which `find` knows from any folder; for
    others the path as it is.
    """
    with suppress(ValueError):
        inside = Path(FOLDER) / path.relative_to(shipped_folder())
        if find(str(inside)) == path:
            return str(inside)
    return str(path)


def names() -> dict[str, str]:
    """Return the titles of all scenarios that have a name, by name."""
    tops = dict.fromkeys(top.resolve() for top in (Path(FOLDER), shipped_folder()) if top.is_dir())
    return {Path(each.file).stem: each.title for top in tops for each in below(top)}


class ScenarioType(click.Path):
    """A command-line parameter that is a scenario, as a path or a name; it completes both."""

    name = "scenario"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path that the value means."""
        try:
            path = find(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not path.exists() and len(path.parts) == 1 and not path.suffix:
            close = difflib.get_close_matches(path.name, names(), cutoff=0.65)
            also = f"; did you mean {' or '.join(close)}?" if close else "; `keplab scenarios` lists them"
            self.fail(f"there is no file {value}, and no scenario of that name{also}", param, ctx)
        return super().convert(str(path), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the incomplete word; if none does, the shell completes files."""
        known = names().items() if incomplete and "/" not in incomplete else ()
        found = [CompletionItem(name, help=title) for name, title in known if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


SCENARIO = ScenarioType()


@dataclass(frozen=True)
class Head:
    """Head of a scenario: the first line of its comment, the rest of it, and the switches it sets."""

    file: str
    title: str
    about: str
    switches: tuple[str, ...]


def below(folder: Path) -> Iterator[Head]:
    """Yield the heads of all scenarios below a folder, by path. Raises: OSError, UnicodeDecodeError."""
    for path in sorted(folder.rglob(f"*{ENDING}")):
        yield head(path)


def head(path: Path) -> Head:
    """Return the head of a scenario, without switches of single components. Raises: as `below`."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    comment = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    set_lines = [line.split()[1:] for line in lines if line.split()[:1] == ["set"]]
    switches = tuple(word for words in set_lines if words and not words[0].endswith(":") for word in words)
    return Head(str(path), comment[0] if comment else "", "\n".join(comment[1:]).strip(), switches)
