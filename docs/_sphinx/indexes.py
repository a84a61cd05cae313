"""The index of the experiments and that of the decisions, as Markdown."""

import re
from pathlib import Path

from reference import ROOT, cell

from lab.scenarios.findings import Findings, findings_of

EXPERIMENTS = ROOT / "experiments"
PICTURES = ROOT / "docs" / "pictures" / "experiments"


def folders() -> list[Path]:
    """Return every folder that holds scenarios."""
    return sorted({path.parent for path in EXPERIMENTS.rglob("*.txt")})


def experiments() -> str:
    """Every experiment: its finding, its picture, its scenarios with what each shows."""
    return "\n\n".join(_experiment(folder) for folder in folders())


def _experiment(folder: Path) -> str:
    found = findings_of(folder)
    name = folder.relative_to(EXPERIMENTS).as_posix()
    scenarios = sorted(folder.glob("*.txt"))
    parts = [f"## {found.title or name}", f"**{_sentence(found.finding)}**"]
    if picture := _picture(name):
        link = picture.relative_to(ROOT / "docs").as_posix().removesuffix(".svg")
        parts.append(
            f"![{cell(found.finding)}]({link}.svg){{.only-light}}\n![{cell(found.finding)}]({link}-dark.svg){{.only-dark}}"
        )
    if found.picture:
        parts.append(f"```sh\n{found.picture}\n```")
    count = f"{len(scenarios)} scenarios" if len(scenarios) > 1 else "One scenario"
    place = f"experiments/{name}"
    has_page = (folder / "README.md").exists()
    parts.append(f"{count} in {f'[{place}](../{place}/README.md)' if has_page else f'`{place}`'}:")
    parts.append(
        "\n".join(["| Scenario | Title | Finding |", "|---|---|---|", *(_row(path, found) for path in scenarios)])
    )
    return "\n\n".join(parts)


def _picture(name: str) -> Path | None:
    """Return the light one of an experiment's two pictures, if there is one."""
    places = (PICTURES / f"{name}.svg", PICTURES.parent / f"{name}.svg")
    return next((each for each in places if each.exists() and each.with_name(f"{each.stem}-dark.svg").exists()), None)


def _row(path: Path, found: Findings) -> str:
    from lab.scenarios.run import load_scenario

    link = f"[{path.stem}](../{path.relative_to(ROOT).as_posix()})"
    return f"| {link} | {cell(load_scenario(path).title)} | {_plain(found.of_scenario.get(path.stem, ''))} |"


def _plain(text: str) -> str:
    """Return a cell without the links of its page, which lead from another folder."""
    return cell(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] if text else "No finding is written down."


def decisions() -> str:
    """Every decision record by number and title."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = {page: next(line[2:] for line in page.read_text().splitlines() if line.startswith("# ")) for page in pages}
    return "\n".join(f"* [{title}]({page.name})" for page, title in titles.items() if not page.name.startswith("0000"))


GENERATED = {"experiments": experiments, "decisions": decisions}
"""By the name on the page."""
