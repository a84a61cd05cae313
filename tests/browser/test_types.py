"""The JSDoc types of the page's modules hold: `tsc --checkJs`, where a TypeScript compiler is (`make browser` installs the locked one)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "types" / "tsconfig.json"
COMPILER = Path(sys.prefix) / "typescript" / "node_modules" / ".bin" / "tsc"


def test_types_in_comments_hold():
    compiler = os.environ.get("KEPLAB_TSC") or shutil.which("tsc", path=str(COMPILER.parent))
    if not compiler or not shutil.which("node"):
        pytest.skip("no TypeScript compiler: make browser installs one where npm is, or name its tsc in KEPLAB_TSC")
    done = subprocess.run(["node", compiler, "-p", str(PROJECT)], capture_output=True, text=True, timeout=100)

    assert (0, "") == (done.returncode, done.stdout)
