"""The conversion of a plugin's exception into the error of the attempt in which it was called. Pure.

The pod of that attempt fails with the message, and is tried again as after any other error; the queue goes
on. Out of memory is not a plugin's error: it ends the process.

The messages are those of upstream, where a panic ends the process. Source: upstream
`pkg/scheduler/framework/runtime/framework.go`.
"""

from collections.abc import Mapping
from typing import Any, Final

from scheduler.framework.status import Status, error_status
from services.cel import faults

_RUNNING: Final = {
    "pre_score": 'running PreScore plugin "{}"',
    "post_filter": 'running PostFilter plugin "{}"',
    **dict.fromkeys(("filter", "filter_all", "explain_all"), 'running "{}" filter plugin'),
    **dict.fromkeys(("score", "score_all"), 'running Score plugins: plugin "{}" failed with'),
    "normalize": 'running Normalize on Score plugins: plugin "{}" failed with',
}


def failure_of(error: Exception, point: str, plugin: str) -> Status:
    """Report a plugin's exception at an extension point, and return the plugin's answer. Raises: MemoryError."""
    if isinstance(error, MemoryError):
        raise error
    faults.report(f'{point} of the plugin "{plugin}"', error)
    return error_status(f"internal error: {faults.fault_text(error)}")


def failure_in(error: Exception, plugins: Mapping[str, Any]) -> Status:
    """Return the error status of a cycle that an exception has ended, with the plugin that raised it, if any.

    Raises: MemoryError.
    """
    plugin, method = _culprit(error, plugins)
    status = failure_of(error, method or "scheduling cycle", plugin)
    running = _RUNNING.get(method, 'running plugin "{}"').format(plugin) if plugin else ""
    return error_status(f"{running}: {status.message}" if running else status.message)


def _culprit(error: Exception, plugins: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first plugin on the way to where the exception was raised, and its method; empty without one."""
    plugin_name, step = "", error.__traceback__
    method = ""
    while step is not None:
        code, names = step.tb_frame.f_code, step.tb_frame.f_locals
        own = names.get(code.co_varnames[0]) if code.co_argcount else None
        plugin_name = plugin_name or next((name for name, plugin in plugins.items() if plugin is own), "")
        if (
            plugin_name and own is plugins[plugin_name] and method not in _RUNNING
        ):  # what decorates it comes before the method
            method = code.co_name
        step = step.tb_next
    return plugin_name, method
