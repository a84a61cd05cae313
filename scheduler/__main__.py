"""`python -m scheduler`."""

import services.runtime.lean  # noqa: F401, I001  before the others

import importlib
from functools import partial

from scheduler.config import SchedulerConfig
from scheduler.configuration.plugins import plugins
from scheduler.extenders.extended_cycle import ExtenderTransport
from scheduler.wiring import build
from services.api.seams import Tracer
from services.runtime.process import main


def _to_extenders(tracer: Tracer) -> ExtenderTransport:
    """Return the way to extenders; only a scheduler that has some pays for an HTTP library."""
    from scheduler.extenders.http import HttpTransport

    return HttpTransport(tracer)


def load() -> None:
    """Import what a scheduler opens while it starts."""
    importlib.import_module("services.client.rpc")
    plugins()


if __name__ == "__main__":
    main("scheduler", SchedulerConfig, partial(build, to_extenders=_to_extenders))
