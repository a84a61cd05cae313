"""Recording which lines of the product a process executes."""

from __future__ import annotations

import os
from pathlib import Path

import coverage

from tests.mutation.line_map import PRODUCT


def start(folder: Path, *, root: Path, name: str, context: str | None = None) -> coverage.Coverage:
    """Begin to record the product's lines of this process into `folder`; `context` is for one that runs no tests itself."""
    lines = coverage.Coverage(
        data_file=str(folder / f"lines.{name}.{os.getpid()}"),
        config_file=False,
        include=[f"{root}/{top}/*" for top in PRODUCT],
        omit=["*_pb2*"],
        context=context,
        messages=False,
    )
    lines.set_option("run:core", "ctrace")  # the one that knows contexts on every version of Python
    lines.start()
    return lines
