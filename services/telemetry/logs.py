"""Log lines for people: structlog set up once, JSON when piped or in a container, colour on a terminal.

A shell writes one canonical line per unit of work; nothing is formatted into the event, keys come from
`spans.SPAN_NAMES`. The line goes to standard error, so that standard output is left to a command's output. A
disk that refuses lines costs only these lines, which are counted.
"""

import io
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import msgspec
import structlog

from services.api.texts import encodable, json_of, writable
from services.cel import faults
from services.telemetry.pieces import Budget, by_age

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LIBRARY_PERIOD_S, LIBRARY_SENTENCES_MAX = 60.0, 256


def _json(_logger: Any, _method: str, event: Any) -> str:
    # When, how bad, who, what; then the rest as the caller gave it.
    first = {key: event.pop(key) for key in ("timestamp", "level", "comp", "event") if key in event}
    return json_of({**first, **event}).decode()


def set_up(
    component: str, level: str = "info", *, stream: TextIO | None = None, is_plain: bool = False, is_final: bool = True
) -> None:
    """Set up every logger of this process to write one line per event, from `level` upwards.

    `is_plain`: a command for people writes words, not JSON, when piped too. `is_final`: loggers keep the settings
    of their first line, which is faster; False for a process that will do other things later. Raises: ValueError
    for an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: want one of {', '.join(LEVELS)}")
    out = stream or sys.stderr
    lines = _Lines(out, is_plain=is_plain)

    def name_component(_logger: Any, _method: str, event: Any) -> Any:
        event.setdefault("comp", component)
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        *([] if is_plain else [name_component]),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any] = [structlog.processors.format_exc_info, _json]
    if out.isatty() or is_plain:
        last = [structlog.dev.ConsoleRenderer(colors=out.isatty())]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(lines),  # type: ignore[arg-type]
        cache_logger_on_first_use=is_final,
    )
    # Libraries (grpc, asyncio, opentelemetry) speak through `logging`; they get the same shape.
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[_Bridge()], force=True)
    faults.listen(_write_fault)


def _write_fault(subject: str, stack: str) -> None:
    """Write the line of an exception that ended one evaluation or attempt, and nothing else."""
    structlog.get_logger().error("fault.caught", subject=subject, stack=stack)


class _Lines:
    """Standard error for whole lines; a refused line is dropped, and counted in the next accepted line."""

    def __init__(self, out: TextIO, *, is_plain: bool) -> None:
        self._out, self._is_plain = out, is_plain
        self._dropped = 0
        try:
            self._fd = out.fileno()
        except (OSError, AttributeError, io.UnsupportedOperation):
            self._fd = -1

    def write(self, text: str) -> None:
        """Write lines, or drop them."""
        note, text = "", encodable(text)
        if self._dropped:
            dropped = {"level": "warning", "event": "log.dropped", "count": self._dropped}
            note = (
                f"log.dropped count={self._dropped}\n"
                if self._is_plain
                else f"{msgspec.json.encode(dropped).decode()}\n"
            )
        if self._try_write(note + text):
            self._dropped = 0
        else:
            self._dropped += 1

    def flush(self) -> None:
        """Do nothing: what is written is out."""

    def _try_write(self, text: str) -> bool:
        try:
            if self._fd < 0:
                self._out.write(text)
                return True
            self._out.flush()
            left = memoryview(text.encode())
            while left:
                left = left[os.write(self._fd, left) :]
        except (OSError, ValueError):
            return False
        return True


def say(line: str) -> None:
    """Write one line for people to standard error; if that is full, only this line is lost."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "backslashreplace"))


class LogFile:
    """The file for standard output and standard error of this process, in pieces: FILE is the current one;
    `FILE.000001` and so on are closed, the highest number is the youngest.
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        """Redirect both to the file. Raises: OSError when the file cannot be created."""
        self._path, self._budget = path, budget
        self._redirect()

    def rotate(self) -> None:
        """Start a new file if this one is full, and remove the oldest; without space for a new one, continue in this
        one.
        """
        if not self._budget.piece_bytes:
            return
        with suppress(OSError):
            if os.fstat(2).st_size < self._budget.piece_bytes:
                return
            closed = by_age(self._path.parent, f"{self._path.name}.??????")
            number = max((int(path.suffix[1:]) for path in closed if path.suffix[1:].isdigit()), default=0) + 1
            self._path.rename(f"{self._path}.{number:06d}")
            self._redirect()
            if self._budget.kept:
                for path in closed[: max(0, len(closed) + 1 - self._budget.kept)]:
                    path.unlink()

    def _redirect(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)


class _Bridge(logging.Handler):
    """Forwards messages of libraries, the same one at most once a minute, so that a lost trace collector does not
    fill a disk overnight.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        # The sentence without its arguments: a retry says every time how long it waits.
        sentence = (record.name, str(record.msg))
        said_at, kept_back = self._said.get(sentence, (-LIBRARY_PERIOD_S, 0))
        if record.created - said_at < LIBRARY_PERIOD_S:
            self._said[sentence] = said_at, kept_back + 1
            return
        if len(self._said) >= LIBRARY_SENTENCES_MAX:
            self._said.clear()
        self._said[sentence] = record.created, 0
        logger = structlog.get_logger()
        method = logger.error if record.levelno >= logging.ERROR else logger.warning
        more = {"kept_back": kept_back} if kept_back else {}
        method("library.spoke", library=record.name, message=_sentence(record), exc_info=record.exc_info, **more)


def _sentence(record: logging.LogRecord) -> str:
    """Return what a library says; its arguments apart where they do not fit its own form."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} {writable(record.args)}"
