"""A Ctrl-C is not lost, wherever the interpreter is when it comes.

Python raises KeyboardInterrupt in whatever code runs. In a finalizer or in the callback of a weak reference nobody
catches it, and Python goes on. The end of a simulation runs thousands of them.
"""

import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S: Final = 0.05
"""Seconds after which a lost interrupt is raised again, and again until it is not lost."""


def raise_lost_interrupts() -> None:
    """From now on, raise a KeyboardInterrupt in the main thread again when no code could catch it.

    Other exceptions that no code can catch go where they went before.
    """
    show = sys.unraisablehook

    def on_lost(lost: "UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            show(lost)
            return
        # Not at once: it would be raised in here, where it is lost as well.
        main = threading.main_thread().ident
        assert main is not None
        # To the thread, so that a call of the kernel that it waits in ends.
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = on_lost
