"""Record the lines of processes that tests start: Python imports this first in each of them (see `tests.mutation.lines`)."""

import atexit
import os
import sys
from pathlib import Path

if "RECORDED_LINES" in os.environ and "RECORDED_TEST" in os.environ:
    root = Path(__file__).parents[3]
    sys.path.insert(0, str(root))
    from tests.mutation.recording import start

    recording = start(Path(os.environ["RECORDED_LINES"]), root=root, name="child", context=os.environ["RECORDED_TEST"])

    def _end() -> None:
        recording.stop()
        recording.save()

    atexit.register(_end)
