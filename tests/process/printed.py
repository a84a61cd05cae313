"""The fenced blocks of a page: what is typed (`sh`) and what it prints (`text`, right below it)."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$(?P<after>\n*(?=^```text$))?", re.M | re.S)
ELLIPSIS = "…"
LEFT_BEHIND = (".*", "__pycache__", "runs", "build", "*.egg-info", "*.sqlite")


@dataclass(frozen=True)
class Typed:
    """A block of commands, and the lines that it prints; `…` in one stands for anything."""

    commands: str
    prints: tuple[str, ...] = ()


def typed(page: str) -> list[Typed]:
    """Return the blocks of commands of a page, each with the text block that follows it directly."""
    found: list[Typed] = []
    is_answered = False
    for block in FENCE.finditer(page):
        if block["kind"] == "sh":
            found.append(Typed(block["body"]))
        elif block["kind"] == "text" and is_answered:
            found[-1] = Typed(found[-1].commands, tuple(line for line in block["body"].splitlines() if line.strip()))
        is_answered = block["kind"] == "sh" and block["after"] is not None
    return found


def missing(prints: tuple[str, ...], output: str) -> list[str]:
    """Return the lines that are not in the output, in this order; how many blanks there are does not matter."""
    rest = " ".join(output.split())
    lost = []
    for line in prints:
        parts = (re.escape(" ".join(part.split())) for part in line.split(ELLIPSIS))
        found = re.search(".*?".join(part for part in parts if part), rest)
        if found is None:
            lost.append(line)
        else:
            rest = rest[found.end() :]
    return lost


def copy_of(root: Path, target: Path) -> Path:
    """Copy the repository, without what was installed and left behind."""
    return Path(shutil.copytree(root, target, ignore=shutil.ignore_patterns(*LEFT_BEHIND)))
