"""`figures.json` for programs and `README.md` for people."""

import datetime
import platform
from pathlib import Path

import msgspec

from benchmarks.figures import Figures
from benchmarks.scheduler_figures import section

INTRODUCTION = """\
# Benchmarks

One run of `{command}` on {machine}, {date}, Python {python}. Everything ran on that machine at once: the mesh's
processes and the program that made the load.{warning}

| Figure | Value | Aim |
|---|---:|---|
"""
NOTES = """
What the figures mean:

- *pods created → Running*: a client keeps 256 creations of bare pods under way; the clock runs from the first
  creation to the moment a watcher has seen the last pod Running. Containers take no time to start, so that the
  mesh is what is measured; nothing is traced and no event files are written. Latencies are those of this burst:
  most of them is waiting in line.
- *CPU a pod* is user and system time of the processes during the same span. Events for people are written behind
  the work, a few at a time, and some of them after it.
- *memory at rest*: resident memory of a fresh mesh with three nodes and one pod.
- *watch events*: as many watches of one kind on one connection; writer and watchers are one process, the same one.
- *nodes in one process*: a mesh with one kubelet host; registered means that every node follows its pods. At rest and
  at a steady rate each process is watched for 20 s; 100 % is one core.
- *simulated seconds a second*: the scenario with every invariant judged; the scenario waits a lot in one arm, and makes
  thousands of pods in the other.

`figures.json` holds these and the whole results behind them.
"""


def write(found: Figures, folder: Path, *, command: str, is_preliminary: bool) -> None:
    """Leave both files in the folder, the old ones replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    machine = f"{found.cores} cores"
    document = {
        "command": command,
        "date": today,
        "machine": machine,
        "python": platform.python_version(),
        "load_before": found.load,
        "preliminary": is_preliminary,
        "figures": [
            {
                "name": figure.name,
                "title": figure.title,
                "value": figure.value,
                "unit": figure.unit,
                "aim": figure.aim,
                "more_is_better": figure.is_more_better,
                "met": figure.is_met,
            }
            for figure in found.figures
        ],
        "runs": found.runs,
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    (folder / "figures.json").write_bytes(text + b"\n")
    warning = (
        f"\n\n**Preliminary**: other work ran on the machine meanwhile (load average {found.load:g} at the start)."
        if is_preliminary
        else ""
    )
    head = INTRODUCTION.format(
        command=command, machine=machine, date=today, python=platform.python_version(), warning=warning
    )
    # The scheduler's figures have a table of their own.
    first = [figure for figure in found.figures if not figure.name.startswith("scheduler.")]
    rows = "".join(f"| {f.title} | {_number(f.value)} {f.unit} | {f.aim_text} |\n" for f in first)
    last = section(found.scheduler) if found.scheduler else ""
    (folder / "README.md").write_text(head + rows + NOTES + last, encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")
