"""An event loop in virtual time, whose order is decided by a seed.

Waiting moves virtual time straight to the next timer. Among callbacks that are ready at the same moment,
a seeded generator picks one. So one seed gives one schedule, days pass in milliseconds, and a deadlock is
an error instead of a hang. Real time and randomness are excluded: sockets, threads, the wall clock and
the system's randomness raise while a simulated task runs (guarantees T-SIM).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

TIMERS_CANCELLED_MAX = 100
"""Number of cancelled timers above which they are removed from the heap."""


OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""Owner of the callbacks in a context: tasks and timers inherit it from their creator."""


class Deadlock(RuntimeError):
    """All tasks wait: no callback is ready and no timer is set."""


class RealityLeak(RuntimeError):
    """Simulated code used something real, such as a socket or the wall clock."""


class _SimFuture(asyncio.Future[Any]):
    """A future whose hash is its creation number, so that sets of futures iterate alike in every run."""

    _birth: int

    def __hash__(self) -> int:
        return self._birth


class _SimTask(asyncio.Task[Any]):
    """A task whose hash is its creation number: `TaskGroup` keeps its children in a set."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, **kwargs: Any) -> None:
        self._birth = loop.next_birth()
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self._birth


class _Due(float):
    """A timer's moment in the heap, with its timer.

    Two are compared as floats, so that the heap, which compares a dozen for each timer, calls no function. Timers
    compare by their moments alone, too: a heap of them has the same order.
    """

    __slots__ = ("timer",)

    timer: asyncio.TimerHandle


class SimLoop(asyncio.BaseEventLoop):
    """An asyncio loop in virtual seconds, starting at 0.

    Invariant: callbacks that become ready at different virtual times run in time order; those of one
    pass run in an order that depends on the seed alone.
    """

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._order = random.Random(f"order/{seed}")
        self.is_interrupted = False
        """Set to end it: the next pass raises KeyboardInterrupt instead of running anything."""
        self._clock_resolution = 0.0
        self._births = 0
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        """Callbacks of stopped owners that have become ready meanwhile."""
        self._timer_cancelled_count: int = 0
        self._timers: list[_Due] = []
        self.set_task_factory(lambda loop, coro, **kwargs: _SimTask(coro, loop=self, **kwargs))

    get_debug = staticmethod(bool)
    """Never: every future, task and handle asks, and `bool()` answers without a frame."""

    def next_birth(self) -> int:
        """Return the next number for a task or future."""
        self._births += 1
        return self._births

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future with a reproducible hash."""
        future = _SimFuture(loop=self)
        future._birth = self.next_birth()
        return future

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._virtual_now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Have the callback run in the next pass."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Have the callback run so many seconds from now."""
        return self.call_at(self._virtual_now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Have the callback run at that moment."""
        due = _Due(when)
        due.timer = timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, due)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def freeze(self, owner: str) -> None:
        """Stop all callbacks of that owner until `thaw`, like SIGSTOP; events for it continue to arrive."""
        self._frozen.setdefault(owner, [])

    def thaw(self, owner: str) -> None:
        """Resume the owner, and run everything that became ready in the meantime. Without a freeze it does nothing."""
        self._ready.extend(self._frozen.pop(owner, ()))  # type: ignore[attr-defined]

    def run_for(self, context: contextvars.Context | None, callback: Callable[..., None], *args: Any) -> None:
        """Run a callback in another owner's context at once, or, while that owner is stopped, when it goes on."""
        if context is None:
            callback(*args)
        elif self._frozen and context.get(OWNER, "") in self._frozen:
            self.call_soon(callback, *args, context=context)
        else:
            context.run(callback, *args)

    def _is_held(self, handle: asyncio.Handle) -> bool:
        held = self._frozen.get(handle._context.get(OWNER, ""))  # type: ignore[attr-defined]
        if held is None:
            return False
        held.append(handle)
        return True

    def _run_once(self) -> None:
        if self.is_interrupted:
            self.is_interrupted = False
            raise KeyboardInterrupt
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        cancelled: int = self._timer_cancelled_count
        if cancelled > TIMERS_CANCELLED_MAX and cancelled * 2 > len(timers):
            # Most timers are deadlines of calls that were answered; they would slow every push and pop.
            for due in timers:
                due.timer._scheduled = not due.timer._cancelled  # type: ignore[attr-defined]
            timers[:] = [due for due in timers if not due.timer._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].timer._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers).timer._scheduled = False  # type: ignore[attr-defined]
        if not ready:
            if not timers:
                if self._stopping:  # type: ignore[attr-defined]
                    return
                raise Deadlock(f"nothing is ready and no timer is set at {self._virtual_now:.6f} s")
            self._virtual_now = max(self._virtual_now, timers[0].timer._when)  # type: ignore[attr-defined]
        now = self._virtual_now
        while timers and timers[0] <= now:
            timer = heapq.heappop(timers).timer
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer._cancelled:
                ready.append(timer)
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            shuffle(batch, self._order.getrandbits)
        for handle in batch:
            if not handle._cancelled and not (self._frozen and self._is_held(handle)):
                handle._run()

    def _write_to_self(self) -> None:
        """The loop never sleeps in a selector, so it needs no waking."""

    def _process_events(self, event_list: list[Any]) -> None:
        """No events come from a selector."""

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        """Refuse: a thread would run in real time."""
        raise RealityLeak("run_in_executor in simulation")


def shuffle(batch: list[Any], draw_bits: Callable[[int], int]) -> None:
    """Shuffle as `random.Random.shuffle` does with the same bits, without a call for each place: each pass does it."""
    for last in range(len(batch) - 1, 0, -1):
        places = last + 1
        bits = places.bit_length()
        place = draw_bits(bits)
        while place >= places:
            place = draw_bits(bits)
        batch[last], batch[place] = batch[place], batch[last]


def _forbid(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def guard(*args: Any, **kwargs: Any) -> Any:
        if isinstance(asyncio._get_running_loop(), SimLoop):
            raise RealityLeak(f"{name} called in simulation")
        return real(*args, **kwargs)

    return guard


_REAL: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")),
    (random, ("random", "uniform", "choice")),
    (os, ("urandom",)),
    (threading.Thread, ("start",)),
    (socket.socket, ("connect",)),
)


@contextmanager
def _seal() -> Iterator[None]:
    """Make the real clock, randomness, threads and sockets raise inside simulated tasks."""
    saved = [(owner, name, getattr(owner, name)) for owner, names in _REAL for name in names]
    try:
        for owner, name, real in saved:
            setattr(owner, name, _forbid(f"{getattr(owner, '__name__', owner)}.{name}", real))
        yield
    finally:
        for owner, name, real in saved:
            setattr(owner, name, real)


@contextmanager
def _interruptible(loop: SimLoop) -> Iterator[None]:
    """Have Ctrl-C end the loop between two passes; the second one does not wait for that.

    Raised wherever the interpreter is just then, inside a task or a generator's end, it may be lost.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    interrupts = 0

    def on_interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupts
        interrupts += 1
        loop.is_interrupted = True
        if interrupts > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if loop.is_interrupted:
        raise KeyboardInterrupt


def run(main: Coroutine[Any, Any, T], *, seed: int | str = 0) -> T:
    """Run a coroutine to its end in virtual time and return its result.

    Raises: Deadlock, RealityLeak, KeyboardInterrupt, and whatever `main` raises.
    """
    loop = SimLoop(seed)
    with without_collection(), _interruptible(loop), _seal():
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            _cancel_all(loop)
            asyncio.set_event_loop(None)
            loop.close()


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch the garbage collector off in this block: its timing depends on allocation counts, and finalizers must not
    affect the outcome of a run.

    A block that has dropped its world before it ends has it freed in one collection; of a world that still lives, the
    first collection frees nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _cancel_all(loop: SimLoop) -> None:
    """Cancel what is left, so that no task outlives its loop."""
    for _ in range(3):
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        for task in left:
            task.cancel()
        try:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        except Deadlock:
            return
