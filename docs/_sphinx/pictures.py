"""`python docs/_sphinx/pictures.py [FOLDER…]`: draw the pictures of the experiments.

`Picture: keplab compare …` in experiments/FOLDER/README.md becomes docs/pictures/experiments/FOLDER.svg, and
FOLDER-dark.svg.
"""

import contextlib
import io
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(1, str(Path(__file__).parents[2]))

from indexes import PICTURES, folders

from lab.cli.__main__ import run
from lab.scenarios.findings import findings_of


def draw(command: str, name: str) -> int:
    """Run a `keplab compare` for its picture. Returns its exit code."""
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        beside = ["--picture", str(PICTURES / f"{name}.svg"), "--report", f"{folder}/page.html", "-o", "json"]
        try:
            return run([*shlex.split(command)[1:], *beside, "--runs", "none", "--workers", "1"])
        except SystemExit as ended:
            return int(ended.code or 0)


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    for folder in folders():
        command = findings_of(folder).picture
        if command and (not sys.argv[1:] or folder.name in sys.argv[1:]):
            sys.stderr.write(f"{folder.name}: {command}: {draw(command, folder.name)}\n")
