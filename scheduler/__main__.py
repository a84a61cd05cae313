"""`python -m scheduler`."""

from scheduler.config import SchedulerConfig
from scheduler.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("scheduler", SchedulerConfig, build)
