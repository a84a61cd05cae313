"""The durations of plugins, measured in one attempt in ten: the observer of a runner whose calls are timed.

The other nine attempts go through the plain runner and pay nothing. Cached answers need no call and so are
not timed. Upstream samples plugins at 10 %, too. Source: scheduler-queue-and-cycles 10.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

from scheduler.framework.status import Code, Status

EVERY: Final = 10
"""One attempt, hint or event out of this number is timed; a counter decides, so that a run can be repeated."""
STATUSES: Final = {code: code.name.title().replace("_", "") for code in Code}
"""Upstream's label values."""


class Watch(Protocol):
    """Receives the durations of plugins, points, hints and events. `now`: monotonic seconds."""

    def now(self) -> float: ...  # noqa: D102
    def plugin(self, plugin: str, point: str, status: str, took_s: float) -> None: ...  # noqa: D102
    def point(self, point: str, status: str, profile: str, took_s: float) -> None: ...  # noqa: D102
    def hint(self, plugin: str, event: str, hint: str, took_s: float) -> None: ...  # noqa: D102
    def event(self, event: str, took_s: float) -> None: ...  # noqa: D102


class Turns:
    """Selects every `EVERY`-th call, the first included."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = -1

    def is_next(self) -> bool:
        """Count one more; return whether it is to be timed."""
        self._count += 1
        return self._count % EVERY == 0


def status_of(answer: Any) -> str:
    """Return the status label of an answer of a plugin or a point; masks, scores and calls are successes.

    Results other than a bare status have one as their `status`.
    """
    if isinstance(answer, tuple):
        answer = next((part for part in answer if isinstance(part, Status)), None)
    elif not isinstance(answer, Status):
        answer = getattr(answer, "status", None)
    return STATUSES[answer.code] if isinstance(answer, Status) else STATUSES[Code.SUCCESS]


_PLUGIN_CALLS: Final = {
    "pre_enqueue": "PreEnqueue",
    "pre_filter": "PreFilter",
    "filter_all": "Filter",
    "filter": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score_all": "Score",
    "score": "Score",
    "normalize": "ScoreExtensionNormalize",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "post_bind": "PostBind",
}
_RUNNER_CALLS: Final = {
    "pre_enqueue": ("PreEnqueue", ""),
    "filter": ("Filter", "PreFilter"),
    "score": ("Score", "PreScore"),
    "post_filter": ("PostFilter", ""),
    "reserve": ("Reserve", ""),
    "permit": ("Permit", ""),
    "pre_bind": ("PreBind", ""),
    "post_bind": ("PostBind", ""),
}
"""A runner's methods, each with its point, and an earlier point that the method also runs."""


class Observer(Protocol):
    """Observes the calls of a runner."""

    def of_plugin(self, plugin: str, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to call instead of a plugin's method."""
        ...

    def points(self, runner: Any) -> None:
        """Take the runner that is observed."""
        ...


class Observed:
    """A plugin whose calls are observed; in all else it is the plugin."""

    def __init__(self, plugin: Any, observer: Observer) -> None:
        self._plugin = plugin
        self.name: str = plugin.name
        for method, point in _PLUGIN_CALLS.items():
            call = getattr(plugin, method, None)
            if call is not None:
                setattr(self, method, observer.of_plugin(self.name, point, call))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)


class PluginTimes:
    """Measures the duration of each plugin and each extension point of a runner, for the watch."""

    def __init__(self, watch: Watch, profile: str) -> None:
        self._watch, self._profile = watch, profile
        self._spent: dict[str, float] = {}

    def points(self, runner: Any) -> None:
        """Time the runner's methods."""
        for method, (point, first) in _RUNNER_CALLS.items():
            setattr(runner, method, self._of_point(point, first, getattr(runner, method)))

    def of_plugin(self, plugin: str, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the plugin's method, timed."""
        now, spent = self._watch.now, self._spent

        def timed_call(*args: Any) -> Any:
            began = now()
            answer = call(*args)
            took_s = now() - began
            spent[point] = spent.get(point, 0.0) + took_s
            self._watch.plugin(plugin, point, status_of(answer), took_s)
            return answer

        return timed_call

    def _of_point(self, point: str, first: str, call: Callable[..., Any]) -> Callable[..., Any]:
        watch, profile, spent = self._watch, self._profile, self._spent

        def timed_call(*args: Any) -> Any:
            spent.clear()
            began = watch.now()
            answer = call(*args)
            took_s = watch.now() - began
            if first in spent:
                took_s -= spent[first]
                watch.point(first, STATUSES[Code.SUCCESS], profile, spent[first])
            watch.point(point, status_of(answer), profile, took_s)
            return answer

        async def timed_while_waiting(*args: Any) -> Any:
            began = watch.now()  # other attempts come in between, so nothing is taken off
            answer = await call(*args)
            watch.point(point, status_of(answer), profile, watch.now() - began)
            return answer

        return timed_while_waiting if inspect.iscoroutinefunction(call) else timed_call
