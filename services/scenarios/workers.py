"""Many runs over the machine's cores: their outcomes in the order of asking, or as they come."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 8
"""So many runs a worker are asked for before the first is taken: enough to keep it busy, few to throw away."""


def runs_of(run: Callable[[A], B], inputs: Iterable[A], workers: int = 0, *, in_order: bool = True) -> Iterator[B]:
    """Yield `run(input)` for each input, in their order or as soon as it is there.

    `workers`: 0 as many as there are cores; 1 is this process itself. A caller that stops taking, because of an
    interrupt or because it has seen enough, ends the workers at once.
    """
    count = workers or os.cpu_count() or 1
    left = iter(inputs)
    if count == 1:
        yield from map(run, left)
        return
    with _pool(count) as pool:
        asked = _submit(pool, run, islice(left, AHEAD * count))
        while asked:
            done = wait(asked, return_when=FIRST_COMPLETED).done if not in_order else asked[:1]
            first = next(future for future in asked if future in done)
            asked.remove(first)
            asked += [pool.submit(run, each) for each in islice(left, 1)]
            yield first.result()


@contextmanager
def _pool(count: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(count, get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            worker.terminate()
        raise
    pool.shutdown()


def _submit(pool: ProcessPoolExecutor, run: Callable[[A], B], inputs: Iterable[A]) -> list[Future[B]]:
    # Workers, who begin now, inherit this and leave interrupts to us: their tracebacks would say nothing useful.
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return [pool.submit(run, each) for each in inputs]
    finally:
        signal.signal(signal.SIGINT, ours)
