"""Findings of the shipped experiments, read from the README.md of their folders.

In the README.md of such a folder the title is followed by a paragraph `Finding: …`, one sentence. Another
paragraph, `Picture: COMMAND`, is the `keplab compare` or `keplab run` that draws the folder's picture.
Table rows and list items that begin with a scenario's name say what that scenario shows. The index of the
documents and `keplab scenarios` read both. The page offers the arms of a `keplab compare` that the
README.md prints.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

PARAGRAPH = re.compile(r"^(Finding|Picture): (.*?)(?=\n[ \t]*\n|\Z)", re.M | re.S)
ROW = re.compile(r"^\| *(?P<names>[^|]+?) *\|(?P<rest>.*)\|\s*$", re.M)
ITEM = re.compile(r"^\* `(?P<name>[\w-]+)\.txt`: (?P<text>.*?)(?=^\* |^\s*$|\Z)", re.M | re.S)
COMPARED = re.compile(r"keplab compare (?P<words>[^`\n]+)")
RULE = re.compile(r"[ :|-]+")
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
COLUMNS = ("finding", "shows", "what it shows", "what happens", "what differs", "what breaks")
"""Heads of the table columns that say what a scenario shows."""


@dataclass(frozen=True)
class Findings:
    """Content of one folder's README.md; `of_scenario` and `arms` are by the scenario file's stem.

    `arms`: in the syntax of `--arm`, from the comparison of that scenario with the most arms.
    """

    title: str = ""
    finding: str = ""
    picture: str = ""
    of_scenario: dict[str, str] = field(default_factory=dict)
    arms: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_findings(text: str) -> Findings:
    """Parse the text of a README.md."""
    title = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")
    paragraphs = {kind: " ".join(body.split()) for kind, body in reversed(PARAGRAPH.findall(text))}
    return Findings(
        title,
        paragraphs.get("Finding", ""),
        paragraphs.get("Picture", "").strip("`"),
        {**_of_items(text), **_of_rows(text)},
        _arms(text),
    )


def findings_of(folder: Path) -> Findings:
    """Parse the README.md of a folder; the result is empty if it has none."""
    page = folder / "README.md"
    return read_findings(page.read_text(encoding="utf-8")) if page.is_file() else Findings()


def finding_of_scenario(path: Path) -> str:
    """Return the finding of a scenario's file: its own row or item, else its folder's finding; empty if there is
    none.
    """
    found = findings_of(path.parent)
    return found.of_scenario.get(path.stem, found.finding)


def _arms(text: str) -> dict[str, tuple[str, ...]]:
    arms_by_name: dict[str, tuple[str, ...]] = {}
    for command in COMPARED.finditer(text.replace("\\\n", " ")):
        words = command["words"].split()
        # What sets switches of all arms is more than its arms.
        if "--set" not in words:
            name = words[0].rpartition("/")[2].removesuffix(".txt")
            arms = tuple(value for option, value in pairwise(words) if option == "--arm")
            arms_by_name[name] = max(arms_by_name.get(name, ()), arms, key=len)
    return arms_by_name


def _of_items(text: str) -> dict[str, str]:
    return {found["name"]: " ".join(found["text"].split()) for found in ITEM.finditer(text)}


def _of_rows(text: str) -> dict[str, str]:
    of_scenario: dict[str, str] = {}
    column = None
    for line in text.splitlines():
        row = ROW.match(line)
        if row is None:
            column = None
            continue
        cells = [cell.strip() for cell in row["rest"].split("|")]
        if column is None:
            heads = [cell.lower() for cell in cells]
            is_list = row["names"].lower() == "scenario"
            column = next((i for i, head in enumerate(heads) if head in COLUMNS), -1) if is_list else -1
        elif column >= 0 and column < len(cells) and not RULE.fullmatch(line):
            for name in _names(row["names"]):
                of_scenario.setdefault(name, cells[column])
    return of_scenario


def _names(cell: str) -> list[str]:
    """Return the scenarios that a cell names: `a`, b, [c](c.txt), d.txt; those of other folders aside."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).replace("`", "")
    if "/" in plain:
        return []
    names = [part.strip().removesuffix(".txt") for part in plain.split(",")]
    whole = names[0].rsplit("-", 1)[0]
    joined = [f"{whole}{name}" if name.startswith("-") else name for name in names]
    return [name for name in joined if NAME.fullmatch(name)]
