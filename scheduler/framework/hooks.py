"""Hooks around another plugin's calls: they may answer instead of the plugin, or change its answer.

A hook is a method `before_POINT` or `after_POINT` of any object; the hooked plugin itself is unchanged.
With a hook at Filter or Score the plugin is called node by node, and its answers are not cached. Source:
kubernetes-sigs/kube-scheduler-simulator, `simulator/scheduler/plugin/wrappedplugin.go` (PluginExtenders).
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

from scheduler.framework.plugin import PostFilterResult, PreFilterResult
from scheduler.framework.status import Status

POINTS: Final[dict[str, str]] = {
    "pre_filter": "pre_filter",
    "filter": "filter",
    "post_filter": "post_filter",
    "pre_score": "pre_score",
    "score": "score",
    "normalize": "normalize_score",
    "reserve": "reserve",
    "unreserve": "unreserve",
    "permit": "permit",
    "pre_bind": "pre_bind",
    "bind": "bind",
    "post_bind": "post_bind",
}
"""The hooks' names by a plugin's method: `before_normalize_score`."""
_BY_ROW: Final = ("row_signature", "sign")
_FOR_ALL: Final = {"filter": ("filter_all", "explain_all", *_BY_ROW), "score": ("score_all", *_BY_ROW)}


def hooks_of(hooks: Any) -> list[str]:
    """Return the names of an object's hooks."""
    names = [f"{when}_{name}" for name in POINTS.values() for when in ("before", "after")]
    return [name for name in names if callable(getattr(hooks, name, None))]


class HookedPlugin:
    """A plugin with hooks around its calls; in all else it is the plugin.

    A before hook gets the method's arguments. Its result is the answer, and the plugin is not called, unless
    the result is None or a success. An after hook gets the answer as an additional last argument, and returns
    the final answer.
    """

    def __init__(self, plugin: Any, hooks: Any) -> None:
        self._plugin, self.name = plugin, plugin.name
        self._absent: set[str] = set()
        # Its own methods, for `isinstance` with a protocol: from Python 3.12 on, that does not call __getattr__.
        for name in dir(plugin):
            if not name.startswith("_") and callable(inspect.getattr_static(plugin, name)):
                setattr(self, name, getattr(plugin, name))
        for method, point in POINTS.items():
            before, after = getattr(hooks, f"before_{point}", None), getattr(hooks, f"after_{point}", None)
            call = getattr(plugin, method, None)
            if call is None or not (before or after):
                continue
            for name in _FOR_ALL.get(method, ()):
                self._absent.add(name)
                self.__dict__.pop(name, None)
            wrap = _around_waiting if method == "pre_bind" else _around
            setattr(self, method, wrap(call, before, after, method))

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_absent", ()):
            raise AttributeError(name)
        return getattr(self._plugin, name)


def _around(call: Any, before: Any, after: Any, method: str) -> Callable[..., Any]:
    def hooked_call(*args: Any) -> Any:
        instead = _instead(before(*args), method) if before is not None else None
        if instead is not None:
            return instead
        answer = call(*args)
        return after(*args, answer) if after is not None else answer

    return hooked_call


def _around_waiting(call: Any, before: Any, after: Any, method: str) -> Callable[..., Any]:
    async def hooked_call(*args: Any) -> Any:
        instead = _instead(before(*args), method) if before is not None else None
        if instead is not None:
            return instead
        answer = await call(*args)
        return after(*args, answer) if after is not None else answer

    return hooked_call


def _instead(answer: Any, method: str) -> Any:
    """Return what a before hook answers instead of the plugin, in the form of the method; None: the plugin is asked."""
    if isinstance(answer, Status):
        if answer.is_success:
            return None
        match method:
            case "pre_filter":
                return PreFilterResult(answer)
            case "post_filter":
                return PostFilterResult(answer)
            case "permit":
                return answer, 0.0
    return answer
