"""Configuration of a process: flags and environment become one frozen dataclass, once, at its entry.

A component subclasses `CommonConfig` and adds fields with `setting(default, help)`. The field `health_port` is
the flag `--health-port` and the environment variable `KEPLAB_HEALTH_PORT`; the flag takes precedence. Simulated
components construct the dataclass directly and never come here.
"""

import argparse
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from services.api.switches import SwitchError, Switches
from services.telemetry.pieces import MIB, PIECE_MIB_MAX, PIECES_KEPT, Budget

C = TypeVar("C", bound="CommonConfig")

EXIT_OK = 0
EXIT_DEPOSED = 1
"""Exit code after another process took the lead (upstream's code); a supervisor restarts this one as a standby."""
EXIT_USAGE = 64
EXIT_BUG = 70
EXIT_IO = 74
EXIT_LOCKED = 75
EXIT_CONFIG = 78

PREFIX = "KEPLAB_"
PARENT_VARIABLE = PREFIX + "PARENT_PID"
"""Environment variable with the pid of the parent; the process ends with its parent."""
PORT_MAX = 65535


class StartError(Exception):
    """Error: the process cannot start or go on; it is printed for a person as one line, without traceback.

    `exit_code` follows P14: 64 usage, 74 I/O, 75 lock held, 78 corrupt or bad configuration.
    """

    def __init__(self, message: str, exit_code: int = EXIT_CONFIG) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


class MeshError(Exception):
    """Error: a mesh of processes cannot start or be reached; one line that says why."""


class HelpRequested(Exception):
    """Signal that `--help` was given; carries the text."""


def setting(default: Any, help: str) -> Any:  # noqa: A002
    """Return a dataclass field with a default and its `--help` sentence."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class CommonConfig:
    """Flags of every process of the mesh."""

    name: str = setting("", "name of this instance in logs, events and traces, for example kubelet/host-1")
    server: str = setting(
        "127.0.0.1:7443", "gRPC address of the API server, HOST:PORT; several addresses are separated by commas"
    )
    security: Literal["tokens", "strict"] = setting(
        "tokens", "tokens: gRPC is plain, callers authenticate by tokens; strict: mutual TLS on every gRPC connection"
    )
    client_certificate: str = setting("", "certificate of this process for the API server, with --security strict")
    client_key: str = setting("", "private key of the client certificate")
    certificate_authority: str = setting("", "authority that signed the API server's certificate")
    token_file: str = setting(
        "", "file with credentials, JSON {identity: token}; for the API server the list of all tokens"
    )
    data_dir: str = setting("", "directory for the process's own state; empty: no state is kept")
    events_dir: str = setting("", "directory of event logs; empty: no event log is written")
    spans_dir: str = setting("", "directory of span files for `keplab trace`; empty: no spans are written")
    telemetry_maxsize: int = setting(
        PIECE_MIB_MAX, "size in MiB at which an event, span or log file is closed and a new one begun; 0: never"
    )
    telemetry_maxbackup: int = setting(PIECES_KEPT, "number of closed files of each sort that are kept; 0: all")
    log_file: str = setting("", "file for standard output and standard error, rotated; empty: both stay as they are")
    health_host: str = setting("127.0.0.1", "address of /healthz, /readyz, /metrics and /configz")
    health_port: int = setting(
        0, "port of /healthz and the other endpoints at --health-host; 0: any free port, -1: none"
    )
    health_allowed_hosts: tuple[str, ...] = setting(
        (), "host name by which callers may reach it, besides the loopback names; may be repeated"
    )
    set: tuple[str, ...] = setting((), "set a switch, NAME=VALUE; may be repeated (see `keplab switches`)")
    set_file: str = setting(
        "",
        "file with more switches, NAME=VALUE,NAME=VALUE, which win over --set; when it changes the process ends, so "
        "that its supervisor starts it with the new switches; empty: no file",
    )
    log_level: str = setting("info", "debug, info, warning or error")
    seed: int | None = setting(None, "seed of the process's random numbers; empty: a new seed at each start")
    ready_file: str = setting("", "file that the process writes once it is ready, JSON {name, pid, ports}")
    die_with_parent: bool = setting(False, "end when the process that started this one ends")
    faults_file: str = setting(
        "", "file with the faults of the process's machine, JSON (docs/how-to/faults.md); empty: no faults"
    )

    def budget(self) -> Budget:
        """Return the size limits of the process's files."""
        return Budget(self.telemetry_maxsize * MIB, self.telemetry_maxbackup)

    def switches(self) -> Switches:
        """Return all switches with this process's assignments. Raises: SwitchError."""
        return Switches.parse(self.set)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartError(f"{message} (try --help)", EXIT_USAGE)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _scalar(kind: Any, text: str) -> Any:
    """Return `text` as the field's type. Raises: ValueError that says what was wanted."""
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"want true or false, not {text!r}")
        return text.lower() in ("true", "1")
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"want {'an integer' if kind is int else 'a number'}, not {text!r}") from None
    if get_origin(kind) is Literal:
        values = get_args(kind)
        if text not in values:
            raise ValueError(f"want one of {', '.join(map(str, values))}, not {text!r}")
        return text
    return text


def _read(kind: Any, texts: Sequence[str]) -> Any:
    """Return the value of one field from its texts (several only for tuples)."""
    if get_origin(kind) is tuple:
        member = get_args(kind)[0]
        return tuple(_scalar(member, text) for text in texts)
    if get_origin(kind) in (Union, types.UnionType):
        if texts[-1] in ("", "none"):
            return None
        return _scalar(next(k for k in get_args(kind) if k is not type(None)), texts[-1])
    return _scalar(kind, texts[-1])


def parse(cls: type[C], argv: Sequence[str], environ: Mapping[str, str], *, prog: str = "") -> C:
    """Parse the configuration from flags (first) and environment (second). Raises: StartError with exit code 64
    that names the flag or variable; HelpRequested.
    """
    hints = get_type_hints(cls)
    parser = _Parser(prog=prog or None, description=(cls.__doc__ or "").strip(), add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this text")
    for f in fields(cls):
        default = "" if f.default in (MISSING, "", (), None, False) else f" (default {f.default})"
        text = f"{f.metadata.get('help', '')}{default} [{PREFIX}{f.name.upper()}]".replace("%", "%%")
        add = partial(parser.add_argument, dest=f.name)
        if hints[f.name] is bool:
            add(_flag(f.name), nargs="?", const=["true"], type=lambda t: [t], metavar="true|false", help=text)
            add(_flag(f"no_{f.name}"), action="store_const", const=["false"], help=argparse.SUPPRESS)
        else:
            add(_flag(f.name), action="append", metavar=_metavar(hints[f.name]), help=text)
    arguments = vars(parser.parse_args(list(argv)))
    if arguments["help"]:
        raise HelpRequested(parser.format_help())
    values: dict[str, Any] = {}
    for f in fields(cls):
        variable = PREFIX + f.name.upper()
        origin, texts = _flag(f.name), arguments[f.name]
        if texts is None and variable in environ:
            raw = environ[variable]
            origin = variable
            texts = [t for t in raw.split(",") if t] if get_origin(hints[f.name]) is tuple else [raw]
        if texts is None:
            continue
        try:
            values[f.name] = _read(hints[f.name], texts)
            lowest = -1 if f.name == "health_port" else 0
            if f.name.startswith("telemetry_") and values[f.name] < 0:
                raise ValueError(f"want 0 or more, not {texts[-1]}")
            if f.name.endswith("port") and not lowest <= (values[f.name] or 0) <= PORT_MAX:
                raise ValueError(f"want a port from 0 to {PORT_MAX}, not {texts[-1]!r}")
        except ValueError as error:
            raise StartError(f"{origin}: {error}", EXIT_USAGE) from None
    config = cls(**values)
    try:
        config.switches()
    except SwitchError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    return config


def _metavar(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "VALUE"
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) in (Union, types.UnionType):
        return _metavar(next(k for k in get_args(kind) if k is not type(None)))
    return {int: "N", float: "X"}.get(kind, "TEXT")
