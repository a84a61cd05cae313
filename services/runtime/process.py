"""Entry point of every component's process.

`main` reads the configuration, makes the seams, builds the component, and runs it in one TaskGroup beside its
health server. It reports readiness, and exits with a code that a supervisor understands (P14). A message for
people is one line; a traceback means a bug.
"""

import asyncio
import errno
import gc
import hashlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import structlog

from services.api.errors import UNREADABLE
from services.api.seams import Clock, Component, EventLog, Seams, Transport
from services.api.wire import Api
from services.client.gate import GatedTransport
from services.client.leases import LeadershipLost
from services.client.tracing_transport import TracedTransport
from services.runtime import set_file
from services.runtime.config import (
    EXIT_BUG,
    EXIT_CONFIG,
    EXIT_DEPOSED,
    EXIT_IO,
    EXIT_OK,
    EXIT_USAGE,
    CommonConfig,
    HelpRequested,
    StartError,
    parse,
)
from services.runtime.delegation import Caller, Delegation, Refusal, rights_on_paths
from services.runtime.health import PROCESS_METRICS, Guard, HealthServer, HttpResponse
from services.runtime.machine import ClosableDisk, FailingDisk, Machine, OffClock, StrikingLog
from services.runtime.real import (
    FileDisk,
    MemoryDisk,
    NoTransport,
    RealClock,
    die_with_parent,
    seeded_random,
    write_atomically,
)
from services.runtime.unix_sockets import UnixSockets
from services.runtime.watchdog import LOOK_PERIOD_S, UnderWay, Watchdog
from services.telemetry import kernel, logs
from services.telemetry.eventlog import FileEventLog, NullEventLog, new_incarnation
from services.telemetry.metrics import Samples
from services.telemetry.pieces import PASSING
from services.telemetry.traces import Sampler, Tracer, sinks_from_environment

if TYPE_CHECKING:
    from services.client.rpc import RpcTransport
    from services.client.tls import ClientTls

C = TypeVar("C", bound=CommonConfig)

STOP_MAX_S = 10.0
FLUSH_PERIOD_S = 0.5
READY_POLL_S = 0.02
STALL_S = 0.25
STUCK_S = 3.0
GC_THRESHOLDS = (50_000, 5, 200)
"""Garbage collector thresholds: a collection of the middle generation visits at most a quarter of a million
objects, about 40 ms of the loop.
"""
READY_RETRY_S = 1.0
OUT_OF_MEMORY = "out of memory: this process ends, so that its successor can work"
"""Last message of a process without memory; it is a constant, so that it needs no memory."""


def main(name: str, config_class: type[C], build: Callable[[C, Seams], Component]) -> NoReturn:
    """Run the component until a signal or its end, then exit with its code; never returns."""
    sys.exit(run(name, config_class, build, sys.argv[1:], os.environ))


def run(
    name: str,
    config_class: type[C],
    build: Callable[[C, Seams], Component],
    argv: Sequence[str],
    environ: Mapping[str, str],
) -> int:
    """Run one life of this process and return its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    # Modules live as long as the process; `services.runtime.lean` has imported them without a collection.
    gc.freeze()
    gc.enable()
    os.umask(0o077)  # whatever a process of the mesh writes is for its owner
    if not name.startswith("apiserver"):
        # A client reports handshakes that fail itself (services/client/channel.py); in a server's log the library's own
        # line is the only one about a client that was refused.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        if sys.flags.optimize:
            raise StartError("assertions must stay on: start python without -O", EXIT_USAGE)
        config = parse(config_class, argv, environ, prog=f"python -m {name}")
        if not config.name:
            config = replace(config, name=name)
        from_file = set_file.assignments(config)
        if config.die_with_parent:
            die_with_parent(environ)
        log_file = _log_file(config) if config.log_file else None
        try:
            logs.set_up(config.name, config.log_level)
            sampler = Sampler.from_environment(environ)
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        return asyncio.run(_Process(name, config, sampler, environ, log_file, from_file).live(build))
    except HelpRequested as help_text:
        print(help_text)  # noqa: T201
        return EXIT_OK
    except StartError as error:
        logs.say(f"{name}: {error.message}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        _end_without_memory()


def _end_without_memory() -> NoReturn:
    """End at once: a process that is out of memory can neither serve nor tidy up, and its successor can."""
    logs.say(OUT_OF_MEMORY)
    os._exit(EXIT_BUG)


def _log_file(config: CommonConfig) -> logs.LogFile | None:
    """Return the file that is logged to; None where the disk has no space for it. Raises: StartError naming it."""
    try:
        return logs.LogFile(Path(config.log_file), config.budget())
    except OSError as error:
        if error.errno in PASSING:
            return None
        raise StartError(f"--log-file {config.log_file}: {error.strerror}") from None


def _load_tokens(path: str) -> dict[str, str]:
    """Return {identity: token} of a process, main one first. Raises: StartError that names the file."""
    if not path:
        return {}
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, str])
    except OSError as error:
        raise StartError(f"token file {path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise StartError(f"token file {path}: {error}; want JSON {{identity: token}}") from None


def _client_tls(config: CommonConfig) -> "ClientTls | None":
    """Return the process's certificate, None in the profile without. Raises: StartError naming file and reason."""
    if config.security != "strict":
        return None
    given = {
        "--client-certificate": config.client_certificate,
        "--client-key": config.client_key,
        "--certificate-authority": config.certificate_authority,
    }
    if missing := [flag for flag, path in given.items() if not path]:
        raise StartError(f"--security strict without {' and '.join(missing)}", EXIT_USAGE)
    # Only here: a process without certificates need not load what reads them.
    from services.client.tls import ClientTls, TlsError, TlsFiles

    try:
        return ClientTls(TlsFiles(*map(Path, given.values())))
    except TlsError as error:
        raise StartError(f"--security strict: {error}", EXIT_CONFIG) from None


@dataclass(frozen=True)
class _End:
    """End of a life: the exit code, one word for the reason, and a line for people (empty after a clean end)."""

    code: int
    reason: str
    line: str = ""


class _Process:
    """One life of the process: seams, component, health, signals."""

    def __init__(
        self,
        service: str,
        config: CommonConfig,
        sampler: Sampler,
        environ: Mapping[str, str],
        log_file: logs.LogFile | None,
        from_file: tuple[str, ...] = (),
    ) -> None:
        self._log_file, self._from_file = log_file, from_file
        self._service, self._sampler, self._environ = service, sampler, environ
        self._config = replace(config, set=(*config.set, *from_file))
        self._random = seeded_random(config.seed)
        self._machine = Machine(config.faults_file, self._random) if config.faults_file else None
        self._clock: Clock = RealClock() if self._machine is None else OffClock(RealClock(), self._machine)
        # Never from the seed: two lives with one seed are still two lives.
        self._incarnation = new_incarnation(seeded_random(None))
        self._started_wall = self._clock.wall()
        self._log = structlog.get_logger()
        self._transport: RpcTransport | None = None
        self._tracer: Tracer | None = None
        self._events: EventLog = NullEventLog()
        self._event_file: FileEventLog | None = None
        self._stop_signal = ""
        self._watcher: _StallWatcher | None = None

    async def live(self, build: Callable[[Any, Seams], Component]) -> int:
        config = self._config
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_on_loop_error)
        end = _End(EXIT_OK, "done")
        store: ClosableDisk | None = None
        try:
            store = FileDisk(Path(config.data_dir)) if config.data_dir else MemoryDisk()
            if config.events_dir:
                folder, budget = Path(config.events_dir), config.budget()
                self._event_file = FileEventLog(folder, config.name, self._clock, self._incarnation, budget)
                self._events = self._event_file
            if self._machine is not None:
                # What is wrong with the machine comes in through the seams; no component knows.
                self._machine.follow(self._loop)
                store, self._events = FailingDisk(store, self._machine), StrikingLog(self._events, self._machine)
            service, name, clock, random = self._service, config.name, self._clock, self._random
            sinks = sinks_from_environment(
                self._environ,
                service=service,
                instance=name,
                spans_dir=config.spans_dir,
                incarnation=self._incarnation,
                budget=config.budget(),
                server="" if service.startswith("apiserver") else config.server,
            )
            self._tracer = Tracer(
                service, clock=clock, random=random, instance=name, sampler=self._sampler, sinks=sinks
            )
            self._events.write("proc.start", data=self._birth())
            transport = self._make_transport()
            if self._tracer.records and self._transport is not None:
                transport = TracedTransport(transport, self._tracer)
            seams = Seams(
                component=name,
                clock=clock,
                random=random,
                disk=store,
                transport=transport,
                events=self._events,
                tracer=self._tracer,
                switches=config.switches(),
                sockets=UnixSockets(),
            )
            end = await self._work(build(config, seams))
        except BaseException as error:
            end = self._judge(error)
        finally:
            await self._close(end, store)
        if end.line:
            # One line, whatever a library put into its message.
            logs.say(f"{config.name}: {' '.join(end.line.split())}")
        return end.code

    def _make_transport(self) -> Transport:
        if self._service.startswith("apiserver"):
            # Its token file is the list of all tokens, not credentials of its own.
            return NoTransport()
        from services.client.channel import targets_of
        from services.client.rpc import RpcTransport

        try:
            targets_of(self._config.server)
        except ValueError as error:
            raise StartError(f"--server {error}", EXIT_USAGE) from None
        tokens = _load_tokens(self._config.token_file)
        tls = _client_tls(self._config)
        self._transport = RpcTransport(self._config.server, tokens, clock=self._clock, random=self._random, tls=tls)
        return self._transport if self._machine is None else GatedTransport(self._transport, self._machine.gates)

    async def _work(self, component: Component) -> _End:
        """Run the component and what belongs to every process, until a signal or the component's own end."""
        config = self._config
        health = HealthServer(
            is_ready=lambda: component.is_ready,
            stalled_s=lambda: self._watcher.stalled_s() if self._watcher is not None else 0.0,
            metrics=lambda: self._metrics(component),
            configuration=lambda: {**self._configuration(component), **getattr(component, "configz", dict)()},
            routes=[("/rates", lambda _: self._rates(component)), *getattr(component, "http_routes", list)()],
            guard=self._guard(component),
            allowed_hosts=config.health_allowed_hosts,
        )
        if config.health_port >= 0:
            await health.start(config.health_host, config.health_port)
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number, stopping)
        try:
            async with asyncio.TaskGroup() as group:
                # Before the component: what it does first may take long, too.
                stalls = group.create_task(self._watch_for_stalls())
                work = group.create_task(component.run(), name="component")
                others = [
                    stalls,
                    group.create_task(self._announce(component, health)),
                    group.create_task(self._flush_files()),
                    group.create_task(self._follow_switches(stopping)),
                    group.create_task(self._watch_work(getattr(component, "under_way", dict))),
                ]
                waiting = asyncio.ensure_future(stopping.wait())
                await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if stopping.is_set():
                    work.cancel()
                    await asyncio.wait([work], timeout=STOP_MAX_S)
                    if not work.done():
                        # A task that swallows its cancellation would keep this group, and us, for ever.
                        self._log.error("process.stop_overdue", after_s=STOP_MAX_S)
                        self._events.write("proc.stop", data={"exit_code": EXIT_BUG, "reason": "stop_overdue"})
                        os._exit(EXIT_BUG)
                for task in others:
                    task.cancel()
        finally:
            await health.stop()
        return _End(EXIT_OK, self._stop_signal or "done")

    def _guard(self, component: Component) -> Guard:
        """Return who may ask this process for more than its health: as the API server says, which asks itself."""
        delegation = Delegation(getattr(component, "reviews", self._own_api), self._clock)

        async def refusal(caller: Caller) -> Refusal | None:
            rights = rights_on_paths(caller)
            return None if rights is None else await delegation.refusal(caller, None, rights)

        return refusal

    def _own_api(self) -> Api | None:
        transport = self._transport
        return transport.api() if transport is not None and transport.has_credentials else None

    def _on_signal(self, number: int, stopping: asyncio.Event) -> None:
        if stopping.is_set():
            os._exit(128 + number)  # asked twice: do not wait any longer
        self._stop_signal = signal.Signals(number).name
        stopping.set()

    async def _follow_switches(self, stopping: asyncio.Event) -> None:
        """End in good order when the file with switches has others than this life began with.

        Source: kubernetes/cmd/kube-proxy/app/options.go, which ends for a changed configuration, too."""
        if not self._config.set_file:
            return
        await set_file.wait_until_changed(self._config.set_file, self._from_file)
        self._log.info("process.switches_changed", file=self._config.set_file)
        self._stop_signal = "switches changed"
        stopping.set()

    async def _announce(self, component: Component, health: HealthServer) -> None:
        """Write the ready file once the component does its work, and tidy memory for the long run."""
        while not component.is_ready:  # noqa: ASYNC110  a component offers a fact, not an event
            await asyncio.sleep(READY_POLL_S)
        ports: dict[str, int] = dict(getattr(component, "ports", dict)())
        if self._config.health_port >= 0:
            ports["health"] = health.port
        gc.collect()
        # What start-up made lives as long as the process: no collection need look at it again.
        gc.freeze()
        self._events.write("proc.ready", data={"ports": ports})
        took_ms = round((self._clock.wall() - self._started_wall) * 1000)
        self._log.info("process.ready", pid=os.getpid(), ports=ports, duration_ms=took_ms)
        if self._config.ready_file:
            note = msgspec.json.encode({"name": self._config.name, "pid": os.getpid(), "ports": ports})
            while not self._is_written(Path(self._config.ready_file), note):  # noqa: ASYNC110  a disk sends no event
                await asyncio.sleep(READY_RETRY_S)

    def _is_written(self, path: Path, data: bytes) -> bool:
        """Write the file, or find that the disk has no space for it yet. Raises: OSError for any other reason."""
        try:
            write_atomically(path, data)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            self._log.warning("ready_file.failed", error=str(error))
            return False
        return True

    async def _flush_files(self) -> None:
        while self._tracer is not None:
            await asyncio.sleep(FLUSH_PERIOD_S)
            self._tracer.flush()
            if self._log_file is not None:
                self._log_file.rotate()

    async def _watch_for_stalls(self) -> None:
        """Write `loop.stall` whenever the loop stood still for over 250 ms, with what it was doing (P12)."""
        watcher = self._watcher = _StallWatcher(threading.get_ident())
        try:
            while True:
                await asyncio.sleep(watcher.PERIOD_S)
                stall = watcher.beat()
                if stall is not None:
                    stalled_s, stack = stall
                    self._events.write("loop.stall", data={"ms": round(stalled_s * 1000), "stack": stack})
                    self._log.warning("loop.stalled", duration_ms=round(stalled_s * 1000), frames=stack[-1:])
        finally:
            watcher.stop()

    async def _watch_work(self, under_way: Callable[[], UnderWay]) -> None:
        """Report work that takes too long (P15)."""
        watchdog = Watchdog()
        while True:
            await asyncio.sleep(LOOK_PERIOD_S)
            watchdog.look(under_way(), time.monotonic())

    def _rates(self, component: Component) -> HttpResponse:
        """Return the few counters that are asked for each second, named as in /metrics, at a tenth of its cost."""
        found: dict[str, float] = dict(self._transport.metrics()) if self._transport is not None else {}
        found["process_cpu_seconds_total"] = time.process_time()
        found["process_resident_memory_bytes"] = kernel.resident_bytes()
        return 200, "application/json", msgspec.json.encode({**found, **getattr(component, "rates", dict)()})

    def _metrics(self, component: Component) -> Samples:
        own = PROCESS_METRICS.of(None)
        for source in (self._tracer, self._transport, self._event_file):
            if source is not None:
                own |= source.metrics()
        return own | component.metrics()

    def _configuration(self, component: Component) -> dict[str, Any]:
        return {
            "name": self._config.name,
            "incarnation": self._incarnation,
            "config": asdict(self._config),
            "certificates": self._certificates(component),
            "switches": dict(self._config.switches()),
            "set": list(self._config.switches().assignments),
            "set_file": list(self._from_file),
        }

    def _certificates(self, component: Component) -> list[dict[str, str]]:
        """Return what this process connects and serves with at present."""
        tls = self._transport.tls if self._transport is not None else None
        own = [tls.material.describe(tls.files)] if tls is not None else []
        return [*own, *getattr(component, "certificates", list)()]

    def _birth(self) -> dict[str, Any]:
        settings = msgspec.json.encode({**asdict(self._config), **self._config.switches()}, enc_hook=str)
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "settings_sha256": hashlib.sha256(settings).hexdigest(),
            "boot_id": kernel.boot_id(),
            "set": list(self._config.switches().assignments),
        }

    def _judge(self, error: BaseException) -> _End:
        """Return the exit code for what ended the component; only a bug is logged with its traceback."""
        leaves = list(_leaves(error))
        for leaf in leaves:
            if isinstance(leaf, MemoryError):
                _end_without_memory()
            if isinstance(leaf, StartError):
                return _End(leaf.exit_code, "start_error", leaf.message)
            if isinstance(leaf, LeadershipLost):
                return _End(EXIT_DEPOSED, "leadership_lost", f"leadership lost: {leaf}")
        for leaf in leaves:
            if isinstance(leaf, OSError):
                return _judge_os_error(leaf)
            if isinstance(leaf, RuntimeError) and "bind to address" in str(leaf):
                return _End(EXIT_CONFIG, "address_in_use", f"{str(leaf).split(';')[0]}: is the port taken?")
        if all(isinstance(leaf, KeyboardInterrupt | asyncio.CancelledError) for leaf in leaves):
            return _End(130, "interrupted")
        self._log.error("process.crashed", error=repr(leaves[0]), exc_info=error)
        return _End(EXIT_BUG, type(leaves[0]).__name__)

    async def _close(self, end: _End, store: Any) -> None:
        if self._transport is not None:
            await self._transport.close()
        self._events.write("proc.stop", data={"exit_code": end.code, "reason": end.reason})
        if not end.line:
            self._log.info("process.stopped", exit_code=end.code, reason=end.reason)
        if store is not None:
            store.close()
        if self._tracer is not None:
            self._tracer.close()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End the process when a task or a callback ran out of memory; anything else is logged."""
    error = context.get("exception")
    if error is not None and any(isinstance(leaf, MemoryError) for leaf in _leaves(error)):
        _end_without_memory()
    loop.default_exception_handler(context)


def _judge_os_error(error: OSError) -> _End:
    what = f"{error.filename}: {error.strerror}" if error.filename else (error.strerror or str(error))
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return _End(EXIT_CONFIG, "address_in_use", str(error.strerror or error))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT):
        # Trying again will not change who may write there.
        return _End(EXIT_CONFIG, "not_permitted", what)
    return _End(EXIT_IO, "io_error", what)


class _StallWatcher:
    """Thread that detects a stalled loop during the stall; its stack would be gone afterwards."""

    PERIOD_S = 0.1

    def __init__(self, loop_thread: int) -> None:
        self._loop_thread = loop_thread
        self._last = time.monotonic()
        self._late_s = 0.0
        self._stack: list[str] = []
        self._is_reported = False
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name="stall-watcher", daemon=True).start()

    def beat(self) -> tuple[float, list[str]] | None:
        """Say that the loop turns; return how long it had not and what it did then, if that was too long."""
        now = time.monotonic()
        late_s, self._last = now - self._last - self.PERIOD_S, now
        self._late_s = late_s
        stack, self._stack = self._stack, []
        self._is_reported = False
        return (late_s, stack) if late_s > STALL_S else None

    def stalled_s(self) -> float:
        """Return how long the loop has not turned, or did not before it turned last."""
        return max(self._late_s, time.monotonic() - self._last - self.PERIOD_S)

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self.PERIOD_S):
            late_s = time.monotonic() - self._last - self.PERIOD_S
            if late_s > STALL_S and not self._stack:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._stack = [
                        f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_stack(frame, limit=12)
                    ]
            if late_s > STUCK_S and not self._is_reported:
                # The loop may never turn again to say it itself.
                self._is_reported = True
                structlog.get_logger().error("loop.stuck", duration_ms=round(late_s * 1000), frames=self._stack)
