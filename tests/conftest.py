"""For every layer: what is slow is left out unless it is named or `--slow` is given; property tests try the same examples everywhere, and a slow machine is no failure.

`--repeats 10` runs the acceptance scenarios that take several seeds as often as guarantees 13 asks for, and more.
"""

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog._config import BoundLoggerLazyProxy

from tests.forking import Importer

ROOT = Path(__file__).parents[1]
SLOW = Path(__file__).with_name("slow.txt")
"""Tests that take over a quarter of a second on two quiet cores, one a line; `make slow` writes it."""
SLOW_S = 0.25
SLOW_LAYERS = frozenset(("scenarios", "process", "durability", "interop", "browser", "compose"))
"""Layers of which every test is slow."""
FORKING_LAYERS = frozenset(("process", "interop", "durability", "browser"))
"""Layers whose processes of Python are forked."""

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


@pytest.fixture(autouse=True, scope="session")
def _importer() -> Iterator[Importer]:
    """What processes of these tests are forked from; it begins with the first of them."""
    importer = Importer(os.environ)
    yield importer
    importer.close()


@pytest.fixture(autouse=True, scope="module")
def _forked(request: pytest.FixtureRequest, _importer: Importer) -> Iterator[None]:
    """Fork processes of Python in the layers that start many."""
    is_forked = layer_of(request.node.nodeid) in FORKING_LAYERS and not request.config.getoption("--executed")
    with _importer.installed() if is_forked else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True)
def _executed(request: pytest.FixtureRequest, _forked: None, _importer: Importer) -> Iterator[None]:
    """Execute them for a test that is about how they start."""
    with _importer.paused() if request.node.get_closest_marker("executed") else contextlib.nullcontext():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take how often scenarios with a `repeat` run."""
    parser.addoption("--slow", action="store_true", help="run tests that take over a quarter of a second as well")
    parser.addoption("--record-slow", metavar="FILE", help="write which tests take over a quarter of a second")
    parser.addoption("--executed", action="store_true", help="execute each process that could be forked")
    parser.addoption("--repeats", type=int, default=1, help="run acceptance scenarios so many times, a seed each")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow tests, and leave out those that were not named."""
    slow = frozenset(SLOW.read_text().split()) if SLOW.exists() else frozenset()
    for item in items:
        if layer_of(item.nodeid) in SLOW_LAYERS or item.nodeid.partition("[")[0] in slow:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--slow") or config.option.markexpr:
        return
    named = [path_of(str(word)) for word in config.args]
    left_out = [item for item in items if item.get_closest_marker("slow") and not is_named(item.nodeid, named)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]


def layer_of(node_id: str) -> str:
    """Return the folder below `tests` that a test is in."""
    parts = node_id.split("/")
    return parts[1] if len(parts) > 1 else ""


def path_of(word: str) -> str:
    """Return the path that a word of the command line names, from the root of the repository."""
    path = Path(word.partition("::")[0]).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def is_named(node_id: str, paths: Sequence[str]) -> bool:
    """Whether one of these paths means this slow test: its file, or a folder within its slow layer."""
    file = node_id.partition("::")[0]
    is_layer = layer_of(node_id) in SLOW_LAYERS
    return any(file == path or (is_layer and "/" in path and file.startswith(f"{path}/")) for path in paths)


class SlowTests:
    """Remembers how long each test took, and writes which are slow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a phase of a test took; fixtures of a module count for the test that set them up."""
        if report.when in ("setup", "call"):
            self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the functions of which a case took too long."""
        slow = {name.partition("[")[0] for name, seconds in self._seconds.items() if seconds > SLOW_S}
        self._path.write_text("".join(f"{name}\n" for name in sorted(slow) if layer_of(name) not in SLOW_LAYERS))


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and remember durations where that is wanted."""
    config.addinivalue_line("markers", "slow: takes over a quarter of a second; `--slow` runs it")
    config.addinivalue_line("markers", "executed: tests how processes start, so what it starts is not forked")
    if (path := config.getoption("--record-slow")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowTests(Path(path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: nearly all that comes into being lives to the end.

    It is taken out of every collection that a test sets off.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests that want it a `repeat`: 0, 1, …"""
    if "repeat" in metafunc.fixturenames:
        metafunc.parametrize("repeat", range(metafunc.config.getoption("repeats")))
