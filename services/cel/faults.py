"""Faults: exceptions of keplab's own code or of a plugin's, which end one evaluation or attempt and no process.
Pure.

    except Exception as error:
        faults.report("the expression null.ip()", error)

Code that catches a fault gives its caller an error of a known kind, and reports the exception here. The process
writes it to its log with the stack, the same fault of the same subject once (`services.telemetry.logs`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Final

from services.api.lru import LRU

REMEMBERED_MAX: Final = 1024
Listener = Callable[[str, str], None]
"""Function that takes the subject of a fault, and its stack as text."""


class _Faults:
    """The faults of one process. `listener`: receives each new fault."""

    def __init__(self) -> None:
        self.listener: Listener = lambda subject, stack: None
        self._known: LRU[tuple[str, str], bool] = LRU(REMEMBERED_MAX)

    def report(self, subject: str, error: BaseException) -> None:
        """Hand the fault on, unless the same one of that subject was."""
        place = traceback.extract_tb(error.__traceback__)[-1:]
        key = subject, f"{type(error).__name__} {place}"
        if self._known.use(key) is not None:
            return
        self._known.put(key, True)
        stack = "".join(traceback.format_exception(error))
        self.listener(_escape(subject), _escape(stack))

    def forget(self) -> None:
        """Remember no fault."""
        self._known.clear()


def _escape(text: str) -> str:
    """Return the text with escapes in the place of what UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode()


def fault_text(error: BaseException) -> str:
    """Return a fault in one line, for messages to users."""
    lines = _escape(str(error)).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


_FAULTS: Final = _Faults()
report: Final = _FAULTS.report


def listen(listener: Listener) -> None:
    """Set the listener that receives every new fault of this process."""
    _FAULTS.listener = listener


def forget() -> None:
    """Forget reported faults, so that they are reported again."""
    _FAULTS.forget()
