"""A process that ends with the one that started it."""

import ctypes
import os
import signal
from collections.abc import Mapping

from services.runtime.config import EXIT_OK, PARENT_VARIABLE, StartError

_PR_SET_PDEATHSIG = 1


def die_with_parent(environ: Mapping[str, str]) -> None:
    """Have the kernel kill us when our parent dies: a supervisor that was SIGKILLed leaves no orphan.

    Raises: StartError when it is dead already.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the line above; then another process is our parent by now.
    expected = environ.get(PARENT_VARIABLE, "")
    if expected.isdigit() and os.getppid() != int(expected):
        raise StartError("the process that started this one is gone", EXIT_OK)
