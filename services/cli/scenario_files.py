"""Scenario files: what their first lines say, read without what it takes to run them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ENDING = ".txt"


@dataclass(frozen=True)
class Head:
    """What a scenario says of itself: the first line of its comment, the rest of it, and the switches it sets."""

    file: str
    title: str
    about: str
    switches: tuple[str, ...]


def below(folder: Path) -> Iterator[Head]:
    """Yield the heads of all scenarios below a folder, by path. Raises: OSError, UnicodeDecodeError."""
    for path in sorted(folder.rglob(f"*{ENDING}")):
        yield head(path)


def head(path: Path) -> Head:
    """Return what a scenario says of itself; what it says of single components is left out. Raises: as `below`."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    comment = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    set_lines = [line.split()[1:] for line in lines if line.split()[:1] == ["set"]]
    switches = tuple(word for words in set_lines if words and not words[0].endswith(":") for word in words)
    return Head(str(path), comment[0] if comment else "", "\n".join(comment[1:]).strip(), switches)
