"""`python -m tests.process.own_state [CODE]`: print what a process knows of itself, as JSON, and end with this code. With BRIEF in the
environment it is only its id, which is printed when the process ends."""

import gc
import json
import os
import resource
import signal
import sys
import threading


def own_state():
    """Return what the one who starts a process decides."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "arguments": sys.argv,
        "words": sys.orig_argv,
        "module": [__name__, __package__, __spec__.name],
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "input": sys.stdin.read(),
        "descriptors": {each: os.readlink(f"/proc/self/fd/{each}").partition(":")[0] for each in inherited()},
        "limits": [resource.getrlimit(each) for each in range(16)],
        "umask": [os.umask(0o22), os.umask(0o22)],
        "signals": {
            each.name: repr(signal.getsignal(each)).partition(" at ")[0]
            for each in signal.valid_signals()
            if isinstance(each, signal.Signals)
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "streams": [
            (each.encoding, each.errors, each.line_buffering, each.write_through) for each in (sys.stdout, sys.stderr)
        ],
        "buffers": [type(each.buffer).__name__ for each in (sys.stdout, sys.stderr)],
        "bytecode": sys.dont_write_bytecode,
        "threads": threading.active_count(),
        "collector": [gc.isenabled(), gc.get_threshold()],
    }


def inherited():
    """Yield the descriptors that an executed process has."""
    for each in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            if os.get_inheritable(each):
                yield each
        except OSError:
            continue  # of the folder that was listed


if __name__ == "__main__":
    sys.stdout.write(str(os.getpid()) if "BRIEF" in os.environ else json.dumps(own_state(), sort_keys=True))
    sys.exit(int(sys.argv[1]) if sys.argv[1:] else None)
