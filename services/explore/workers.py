"""Many runs over the machine's cores, their outcomes in the order of asking."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import active_children, get_context
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 8
"""So many runs a worker are asked for before the first is taken: enough to keep it busy, few to throw away."""


def in_order(run: Callable[[A], B], inputs: Iterable[A], workers: int = 0) -> Iterator[B]:
    """Yield `run(input)` for each input. `workers`: 0 as many as there are cores; 1 is this process itself.

    Whoever stops taking, by an interrupt or because it has seen enough, ends the workers at once.
    """
    count = workers or os.cpu_count() or 1
    if count == 1:
        yield from map(run, inputs)
        return
    left = iter(inputs)
    first = list(islice(left, AHEAD * count))
    if not first:
        return
    pool = ProcessPoolExecutor(count, get_context("spawn"))
    # Workers, who begin now, inherit this and leave interrupts to us: their tracebacks would say nothing useful.
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asked: deque[Future[B]] = deque(pool.submit(run, each) for each in first)
    finally:
        signal.signal(signal.SIGINT, ours)
    try:
        while asked:
            done = asked.popleft().result()
            asked.extend(pool.submit(run, each) for each in islice(left, 1))
            yield done
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            worker.terminate()
        raise
    pool.shutdown()
