"""For every layer: property tests try the same examples everywhere, and a slow machine is no failure.

`--repeats 10` runs the acceptance scenarios that take several seeds as often as guarantees 13 asks for, and more.
"""

import gc
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog._config import BoundLoggerLazyProxy

settings.register_profile("keplab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keplab")


@pytest.fixture(autouse=True, scope="session")
def _runs_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests run leaves no records where they were begun; the processes that they start inherit that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEPLAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(autouse=True)
def _collector_on() -> Iterator[None]:
    """No test leaves garbage to all that follow it, which `services.runtime.lean` has whoever imports it do."""
    yield
    if not gc.isenabled():
        gc.enable()
        pytest.fail("this test left the collector off")


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    """No test's log lines go where an earlier one had its own."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        for module in list(sys.modules.values()):
            # A logger that was set up for good (`logs.set_up`) keeps the stream of its first line, which is closed now.
            if isinstance(log := getattr(module, "__dict__", {}).get("log"), BoundLoggerLazyProxy):
                vars(log).pop("bind", None)
    # `logs.set_up` also takes what libraries say, which goes to the test's own lines.
    for handler in [each for each in logging.root.handlers if type(each).__module__ == "services.telemetry.logs"]:
        logging.root.removeHandler(handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take how often scenarios with a `repeat` run."""
    parser.addoption("--repeats", type=int, default=1, help="run acceptance scenarios so many times, a seed each")


def pytest_collection_finish() -> None:
    """Take what was imported and collected, which lives to the end, out of every collection that a test sets off."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests that want it a `repeat`: 0, 1, …"""
    if "repeat" in metafunc.fixturenames:
        metafunc.parametrize("repeat", range(metafunc.config.getoption("repeats")))
