"""Record the lines of processes that tests start: Python imports this first in each of them (see `tests.mutation.lines`)."""

import atexit
import os
import sys
from pathlib import Path

if "KEPLAB_LINES" in os.environ and "KEPLAB_TEST" in os.environ:
    root = Path(__file__).parents[3]
    sys.path.insert(0, str(root))
    from tests.mutation.recording import start

    recording = start(Path(os.environ["KEPLAB_LINES"]), root=root, name="child", context=os.environ["KEPLAB_TEST"])

    def _end() -> None:
        recording.stop()
        recording.save()

    atexit.register(_end)
