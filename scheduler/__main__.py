"""`python -m scheduler`."""

import services.runtime.lean  # noqa: F401, I001  before the others

from functools import partial

from scheduler.config import SchedulerConfig
from scheduler.extenders.http import HttpTransport
from scheduler.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("scheduler", SchedulerConfig, partial(build, to_extenders=HttpTransport))
