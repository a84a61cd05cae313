"""Where a measured mesh lives: in a folder that goes away, tracing nothing unless the environment asks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SAMPLER: Final = "OTEL_TRACES_SAMPLER"


@contextmanager
def surroundings() -> Iterator[Path]:
    """Give a folder for the mesh's data; its processes sample no trace, and both is undone at the end."""
    was_set = SAMPLER in os.environ
    if not was_set:
        os.environ[SAMPLER] = "parentbased_always_off"
    try:
        with tempfile.TemporaryDirectory(prefix="keplab-bench-") as folder:
            yield Path(folder)
    finally:
        if not was_set:
            del os.environ[SAMPLER]
