"""Pytest plugin: run the tests that a file lists, in its order, and no others (`-p tests.mutation.chosen`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

CHOSEN = "KEPLAB_CHOSEN"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the chosen ones."""
    order = {test: place for place, test in enumerate(json.loads(Path(os.environ[CHOSEN]).read_text()))}
    left_out = [item for item in items if item.nodeid not in order]
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
    config.hook.pytest_deselected(items=left_out)
