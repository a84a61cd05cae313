"""`python docs/_sphinx/pictures.py [FOLDER…]`: draw the picture of each experiment whose README.md names the command for it.

`Picture: keplab compare …` in experiments/FOLDER/README.md becomes docs/pictures/experiments/FOLDER.svg, and FOLDER-dark.svg.
"""

import os
import subprocess
import sys
from pathlib import Path

from indexes import PICTURES, folders

from services.scenarios.findings import findings_of

ROOT = Path(__file__).parents[2]


def draw(command: str, name: str) -> None:
    """Run a `keplab compare` with its picture. Raises: CalledProcessError."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    subprocess.run(
        ["bash", "-c", f"{command} --picture {PICTURES / name}.svg -o json > /dev/null"], cwd=ROOT, env=environ, check=True
    )


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    for folder in folders():
        command = findings_of(folder).picture
        if command and (not sys.argv[1:] or folder.name in sys.argv[1:]):
            draw(command, folder.name)
            sys.stdout.write(f"{folder.name}: {command}\n")
