"""Protocols for everything outside a component: Transport, Clock, Random, Disk; and its observers.

All input and output goes through one of these, passed in by wiring. Processes get the real ones
(`services.runtime.real`), the simulation gets virtual ones (`lab.scenarios.simulation`); a component does not
know which. Shells may await `asyncio` primitives: under simulation the event loop itself is virtual.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from services.api.local_rpc import NoSockets, Sockets
from services.api.switches import Switches
from services.api.wire import Api

T = TypeVar("T")


class Clock(Protocol):
    """Time as one process sees it."""

    def now(self) -> float:
        """Monotonic seconds; durations and deadlines are counted with this (P8)."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; for timestamps that people read, never for decisions."""
        ...


class Random(Protocol):
    """The part of `random.Random` that components use."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float) -> float: ...
    def randrange(self, start: int, stop: int) -> int: ...
    def getrandbits(self, k: int) -> int: ...
    def choice(self, seq: Sequence[T]) -> T: ...
    def gauss(self, mu: float, sigma: float) -> float: ...
    def lognormvariate(self, mu: float, sigma: float) -> float: ...
    def paretovariate(self, alpha: float) -> float: ...


class Disk(Protocol):
    """Small durable files of one process, by name. Errors are OSError (ENOSPC, EIO).

    `write` replaces a file atomically. `append_all` appends to several files with a single wait. When they return,
    the bytes survive SIGKILL and power loss. A call that did not return may leave data lost or torn.
    """

    def read(self, name: str) -> bytes | None: ...
    def names(self) -> list[str]: ...
    async def write(self, name: str, data: bytes) -> None: ...
    async def append_all(self, parts: Mapping[str, bytes]) -> None: ...
    async def remove(self, name: str) -> None: ...


class Transport(Protocol):
    """Connection to the API server."""

    def api(self, identity: str = "") -> Api:
        """Return the API for one of this process's identities; "" is its main one.

        A controller manager holds one identity per controller (controllers 14). Raises: KeyError for an identity
        without a credential in this process.
        """
        ...

    async def node_api(self, node: str) -> Api:
        """Return the API for `system:node:<node>`, over the same connection.

        Raises: `Forbidden` when this process may not host that node; `UnknownOutcome` when no answer came.
        """
        ...


class EventLog(Protocol):
    """The process's own event file (guarantees 1). A line is written before its effect is disclosed."""

    def write(
        self,
        ev: str,
        *,
        obj: tuple[str, str, str, str] | None = None,
        rv: int | None = None,
        rv_seen: int | None = None,
        node: str = "",
        gen: int | None = None,
        req_id: str = "",
        identity: str = "",
        trace_id: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append one line. `obj` is `(kind, namespace, name, uid)`."""
        ...


class Span(Protocol):
    """One unit of work being traced; end it once. An unsampled span costs next to nothing."""

    @property
    def traceparent(self) -> str:
        """The traceparent for a `Request`, so that the write carries this span."""
        ...

    @property
    def trace_id(self) -> str:
        """32 hex characters; empty when unsampled."""
        ...

    def set(self, **attributes: str | int | float | bool) -> None: ...
    def event(self, name: str, **attributes: str | int | float | bool) -> None: ...
    def mark_sent(self, at_s: float) -> None: ...
    def end(self, error: str = "") -> None: ...


class Tracer(Protocol):
    """Starts spans. `parent` and `links` are traceparents; without a parent a new trace begins.

    A reader of a watch starts its own span *linked* to the writer's (decision 0007); when it has exactly one cause
    it may instead continue the writer's trace by passing it as `parent`. `kind`: OpenTelemetry's span kind.
    """

    def start(
        self,
        name: str,
        *,
        kind: Literal["internal", "server", "client", "consumer"] = "internal",
        parent: str = "",
        links: Sequence[str] = (),
        **attributes: str | int | float | bool,
    ) -> Span: ...


@dataclass(frozen=True)
class Seams:
    """Dependencies that wiring passes to a component. `component` is for example `scheduler` or `kubelet/host-1`."""

    component: str
    clock: Clock
    random: Random
    disk: Disk
    transport: Transport
    events: EventLog
    tracer: Tracer
    switches: Switches
    sockets: Sockets = field(default_factory=NoSockets)


class Component(Protocol):
    """Result of every `wiring.build(config, seams)`."""

    async def run(self) -> None:
        """Work until cancelled; returning or raising ends the process."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether informers are synced and the component does its work (`/readyz`)."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return counters and gauges, upstream names, labels in the name as Prometheus writes them."""
        ...
