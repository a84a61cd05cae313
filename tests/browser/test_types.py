"""The JSDoc types of the page's modules hold: `tsc --checkJs`, where a TypeScript compiler is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "types" / "tsconfig.json"


def test_types_in_comments_hold():
    compiler = os.environ.get("KEPLAB_TSC") or shutil.which("tsc")
    if not compiler or not shutil.which("node"):
        pytest.skip("no TypeScript compiler: npm install -g typescript, or name its tsc in KEPLAB_TSC")
    done = subprocess.run(["node", compiler, "-p", str(PROJECT)], capture_output=True, text=True, timeout=100)

    assert (0, "") == (done.returncode, done.stdout)
