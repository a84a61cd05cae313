"""A benchmark run in an interpreter of its own, so that none inherits another's memory."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_own_interpreter(run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a new interpreter and return its result. Raises: whatever it raises."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, *args, **kwargs).result()
