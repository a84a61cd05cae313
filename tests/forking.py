"""Processes of Python that tests start, forked from one that has imported what they run.

While an `Importer` is installed, `subprocess` and asyncio fork a process for `python -m MODULE …` where MODULE is one of
MODULES, and execute every other command. It is a child of its caller as an executed one is, with the pipes, the folder, the
environment, the session and the arguments that were asked for; `tests/process/test_forking.py` holds the two equal. An
executed process imports for 0.2 to 1 s of CPU; a forked one shares what the importer has.

`python -m tests.forking FD BLANKS` is the importer. A command that starts processes itself has an importer of its own, forked
beside it, since the kernel gives orphans only to their ancestors. Decision 0103 has the same for a mesh that starts.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import inspect
import io
import itertools
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from services.runtime.mesh.nursery import LOADED
from services.telemetry import kernel

ROOT = Path(__file__).resolve().parents[1]
COMMAND_LINE: Final = "lab.cli"
NURSERY: Final = "services.runtime.mesh.nursery"
MODULES: Final = frozenset((*LOADED, COMMAND_LINE, NURSERY, "lab.simulator"))
PACKAGES: Final = ("apiserver_fake", "claim_controller", "kubelet", "lab", "protos", "scheduler", "services", "tests")
LATER: Final[Mapping[str, Sequence[str]]] = {
    "": ("cryptography.hazmat.backends.openssl.backend", "encodings.idna", "importlib.metadata", "prometheus_client", "zipfile"),
    "apiserver_fake": ("apiserver_fake.extensions.customresources.definitions", "apiserver_fake.storage.sqlite"),
    "up": ("lab.cli.up_process",),
    "ui": ("lab.ui.run",),
}  # fmt: skip
"""What is imported when a module of MODULES or a command of `keplab` runs, beside its own module; "": by most of them."""
STARTING: Final = frozenset(("up", "run", "compare", "chaos"))
"""Commands that start processes of Python."""
USUAL: Final = {
    "executable": None, "preexec_fn": None, "close_fds": True, "shell": False, "restore_signals": True,
    "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""Arguments of `Popen._execute_child` that a forked process has; with any other the process is executed."""
STANDARD: Final = ("p2cread", "c2pwrite", "errwrite")
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
AT_START: Final = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "COV")
"""Beginnings of the names of variables that are read while Python starts, or a library is loaded."""
UNBUFFERED: Final = "PYTHONUNBUFFERED"
ALSO_LATER: Final = frozenset(("PYTHONPATH", UNBUFFERED, "PYTHONDONTWRITEBYTECODE"))
"""Those of them that a forked process obeys too."""
REQUEST_BYTES_MAX: Final = 1 << 18
DESCRIPTORS_MAX: Final = 64
ANSWER_MAX_S: Final = 60.0
ADOPTED_POLL_S: Final = 0.0002
HIGH: Final = 512
"""Above the descriptors that any caller passes on."""


class Importer:
    """The caller's side of an importer; after a failure everything is executed."""

    def __init__(
        self,
        environment: Mapping[str, str],
        connection: socket.socket | None = None,
        modules: Collection[str] = MODULES,
    ) -> None:
        """`environment`: the importer's. `connection`: to it; None for one that begins with the first request."""
        # Its streams are those of all that it forks.
        self._environment = {name: value for name, value in environment.items() if name != UNBUFFERED}
        self._connection, self._modules = connection, modules
        self._process: Any = None
        self._lock = threading.Lock()
        self._is_usable = kernel.can_adopt()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have `subprocess`, and asyncio with it, ask for a fork first, until the end."""
        execute = subprocess.Popen._execute_child
        signature = inspect.signature(execute)

        @functools.wraps(execute)
        def start(popen: Any, *values: object) -> None:
            given = signature.bind(popen, *values).arguments
            if not (pid := self._fork_for(given)):
                execute(popen, *values)
                return
            popen.pid, popen._child_created = pid, True
            popen._close_pipe_fds(*(given[name] for name in PIPES))

        subprocess.Popen._execute_child = start
        try:
            yield
        finally:
            subprocess.Popen._execute_child = execute

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have everything executed until the end."""
        usable, self._is_usable = self._is_usable, False
        try:
            yield
        finally:
            self._is_usable = usable

    def close(self) -> None:
        """End the importer; what was forked lives on."""
        with self._lock:
            self._is_usable = False
            if self._connection is not None:
                self._connection.close()
            if self._process is not None:
                self._process.wait()

    def _fork_for(self, given: Mapping[str, Any]) -> int:
        """Return the id of a child that is what these arguments of `Popen._execute_child` ask for; 0 if it cannot be."""
        request = self.request_of(given)
        if request is None:
            return 0
        descriptors = [given[name] if given[name] != -1 else number for number, name in enumerate(STANDARD)]
        # What a terminal changes is decided by imports.
        if any(os.isatty(each) for each in descriptors):
            return 0
        with self._lock:
            return self._ask(request, [*descriptors, *request["passed"]]) if self._is_usable else 0

    def request_of(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what to ask the importer for; None if the command is not Python's, or has to be executed."""
        if any(given[name] != usual for name, usual in USUAL.items()) or not isinstance(given["args"], list | tuple):
            return None
        words = [os.fsdecode(word) for word in given["args"]]
        is_safe_path = words[1:2] == ["-P"]
        rest = words[1 + is_safe_path :]
        if words[:1] != [sys.executable] or rest[:1] != ["-m"] or rest[1:2] == [] or rest[1] not in self._modules:
            return None
        variables = os.environ if given["env"] is None else given["env"]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
        names = {name for name in {*environment, *self._environment} - ALSO_LATER if name.startswith(AT_START)}
        if any(environment.get(name) != self._environment.get(name) for name in names):
            return None
        folder = os.path.abspath(given["cwd"] or os.curdir)
        path = [*([] if is_safe_path else [folder]), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        if not os.path.isdir(folder) or not _has_our_sources(path):
            return None
        return {
            "parent": os.getpid(),
            "words": words,
            "module": rest[1],
            "arguments": rest[2:],
            "path": path,
            "environment": environment,
            "folder": folder,
            "has_session": bool(given["start_new_session"]),
            "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
            "passed": list(given["pass_fds"]),
        }

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        try:
            connection = self._connection = self._connection or self._open()
            kernel.adopt_orphans(True)
            socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
            pid = int(json.loads(connection.recv(REQUEST_BYTES_MAX)))
        except (OSError, ValueError):
            self._is_usable = False
            return 0
        finally:
            kernel.adopt_orphans(False)
        # Another thread may have ended the adoption: then the process has ended itself.
        known = kernel.state_and_parent(pid) if pid else None
        return pid if known is not None and known[1] == os.getpid() else 0

    def _open(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(its.fileno()), " " * kernel.LINE_BYTES_MAX],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(its.fileno(),), env=self._environment | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        ours.settimeout(ANSWER_MAX_S)
        return ours


def _has_our_sources(path: Sequence[str]) -> bool:
    """Whether what is imported by this path is what the importer has."""
    before = list(itertools.takewhile(lambda entry: entry != str(ROOT), path))
    return len(before) < len(path) and not any((Path(entry) / name).exists() for entry in before for name in PACKAGES)


# The importer's side.


def load(module: str, arguments: Sequence[str]) -> None:
    """Import what a process will."""
    word = arguments[0] if arguments and module == COMMAND_LINE else ""
    for name in (*LATER[""], *LATER.get(module, ()), *LATER.get(word, ())):
        importlib.import_module(name)
    if module == COMMAND_LINE:
        importlib.import_module("lab.cli.__main__")
        commands = importlib.import_module("lab.cli.command_table").COMMANDS
        if word in commands:
            importlib.import_module(commands[word].path)
    if module == NURSERY or word in STARTING:
        for each in LOADED:
            load(each, ())
    elif module != COMMAND_LINE and hasattr(main := importlib.import_module(main_of(module)), "load"):
        main.load()
    if module == "apiserver_fake":
        _fill_tables()


def _fill_tables() -> None:
    """Have the tables of an API server that are the same in each."""
    from apiserver_fake.registry.authorization.authorizer import roles
    from apiserver_fake.registry.schema.schemas import shape_of
    from services.api.resources import resources

    for resource in resources().values():
        shape_of(resource.api_version, resource.kind)
    roles()


def main_of(module: str) -> str:
    """Return the module that `python -m` runs."""
    package = importlib.import_module(module)
    return f"{module}.__main__" if hasattr(package, "__path__") else module


def serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Answer requests until there are none; return request and descriptors in the process that was forked for it."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            return None
        request = json.loads(data)
        pid = 0
        try:
            load(request["module"], request["arguments"])
        except Exception:  # whatever a module raises while it is imported: the executed process raises it again
            is_loaded = False
        else:
            is_loaded = True
            pid = _fork(request["parent"])
            if pid == 0:
                return request, descriptors
        for each in descriptors:
            os.close(each)
        connection.send(json.dumps(pid if is_loaded else 0).encode())


def _fork(parent: int) -> int:
    """Return the process id of a child that `parent`, our parent, adopts; 0 in that child."""
    gc.freeze()
    reader, writer = os.pipe()
    if middle := os.fork():
        os.close(writer)
        os.waitpid(middle, 0)
        with open(reader, "rb") as pipe:
            return int(pipe.read())
    middle = os.getpid()
    if child := os.fork():
        os.write(writer, str(child).encode())
        os._exit(0)
    os.close(reader)
    os.close(writer)
    while (adopter := os.getppid()) == middle:
        time.sleep(ADOPTED_POLL_S)
    if adopter != parent:
        os._exit(0)
    return 0


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Make this process what was asked for, as far as Python and the kernel know."""
    # A descriptor may be wanted where another one is now.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, HIGH) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, wanted in zip(moved, (0, 1, 2, *request["passed"]), strict=True):
        os.dup2(each, wanted)
        os.close(each)
    if request["has_session"]:
        os.setsid()
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["ignores_interrupts"] else signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if os.environ.get(UNBUFFERED):
        sys.stdout, sys.stderr = (_unbuffered(each) for each in (sys.stdout, sys.stderr))
    sys.path[:] = [*request["path"], *sys.path[1:]]
    sys.orig_argv[:] = request["words"]
    sys.argv[:] = ["-m", *request["arguments"]]
    random.seed()
    kernel.rename_process(request["words"])
    # The modules of the mesh begin with `services.runtime.lean`.
    if request["module"] in MODULES - {COMMAND_LINE}:
        gc.disable()
        sys.modules["rich"] = None
    else:
        gc.enable()
        sys.modules.pop("rich", None)


def _unbuffered(stream: Any) -> io.TextIOWrapper:
    raw = open(stream.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115  for life
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _end(code: int) -> None:
    """End as Python does, but leave memory to the kernel: to free each object would copy what the importer shares."""
    threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # Python says so in its own words
    os._exit(code & 0xFF)


def main() -> None:
    """Serve; in a process that was forked run its module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    connection = socket.socket(fileno=int(sys.argv[1]))
    own = dict(os.environ)
    with contextlib.ExitStack() as to_the_end:
        while True:
            with connection:
                asked = serve(connection)
            if asked is None:
                return
            request, descriptors = asked
            if request["module"] != COMMAND_LINE or not STARTING.intersection(request["arguments"][:1]):
                break
            ours, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork():
                connection.close()
                high = socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, HIGH))
                high.settimeout(ANSWER_MAX_S)
                ours.close()
                to_the_end.enter_context(Importer(own, high).installed())
                break
            ours.close()
            for each in descriptors:
                os.close(each)
        _run(request, descriptors)


def _run(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    _become(request, descriptors)
    sys.modules.pop(main_of(request["module"]), None)
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            _end(ended.code or 0)
        raise
    _end(0)


if __name__ == "__main__":
    main()
