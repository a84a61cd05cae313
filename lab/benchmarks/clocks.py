"""Clocks for the parts of a scheduling cycle: methods of classes are wrapped for a while.

Time is exclusive: time spent in a nested clocked method counts for that method only.
"""

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final

POINTS: Final = {
    "pre_enqueue": "PreEnqueue",
    "sort_key": "QueueSort",
    "pre_filter": "PreFilter",
    "add_pod": "PreFilter",
    "remove_pod": "PreFilter",
    "filter": "Filter",
    "filter_all": "Filter",
    "explain_all": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score": "Score",
    "score_in": "Score",
    "score_all": "Score",
    "normalize": "NormalizeScore",
    "reserve": "Reserve",
    "unreserve": "Reserve",
    "permit": "Permit",
    "pre_bind_pre_flight": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
    "row_signature": "Sign",
}
"""Extension point of each plugin method. Sign: the plugin's part of the signature that identifies a pod template."""


class Clocks:
    """Seconds spent, by `(owner, what)`. The calibrated overhead that clocking adds to the caller of a method is
    subtracted.
    """

    def __init__(self) -> None:
        self.spent_s: dict[tuple[str, str], float] = {}
        self._inner_s = [0.0]
        self._own_s = 0.0
        self._own_s = self._calibrate()

    def clock_method(self, method: Callable[..., Any], owner: Callable[[Any], str], what: str) -> Callable[..., Any]:
        """Return the method with a clock around it. `owner(self)` names the plugin or part that its time is charged
        to.
        """
        inner, spent, now = self._inner_s, self.spent_s, time.perf_counter

        @functools.wraps(method)
        def wrapper(self_: Any, *args: Any, **more: Any) -> Any:
            inner.append(0.0)
            began = now()
            try:
                return method(self_, *args, **more)
            finally:
                took = now() - began
                key = (owner(self_), what)
                spent[key] = spent.get(key, 0.0) + took - inner.pop()
                inner[-1] += took + self._own_s

        return wrapper

    def reset(self) -> None:
        """Forget the time spent so far."""
        self.spent_s.clear()

    def _calibrate(self) -> float:
        class Idle:
            def nothing(self) -> None:
                return

        calls = 20_000
        idle, wrapped = Idle(), self.clock_method(Idle.nothing, lambda _: "", "")
        began = time.perf_counter()
        for _ in range(calls):
            wrapped(idle)
        took_s = time.perf_counter() - began - self.spent_s.pop(("", ""))
        self._inner_s[0] = 0.0
        return took_s / calls


def _always(name: str) -> Callable[[Any], str]:
    return lambda _: name


@contextmanager
def clocking(clocks: Clocks, plugins: Iterable[type], parts: Iterable[tuple[type, str]]) -> Iterator[None]:
    """Clock every extension point of the plugin classes, and every public method of the parts, inside the context."""
    before: list[tuple[type, str, Any]] = []

    def wrap(cls: type, name: str, owner: Callable[[Any], str], what: str) -> None:
        method = cls.__dict__.get(name)
        if callable(method) and not isinstance(method, type):
            before.append((cls, name, method))
            setattr(cls, name, clocks.clock_method(method, owner, what))

    try:
        for cls in dict.fromkeys(base for plugin in plugins for base in plugin.__mro__[:-1]):
            for name, point in POINTS.items():
                wrap(cls, name, attrgetter("name"), point)
        for cls, part in parts:
            for name in [n for n in vars(cls) if not n.startswith("_")]:
                wrap(cls, name, _always(part), "")
        yield
    finally:
        for cls, name, method in reversed(before):
            setattr(cls, name, method)
