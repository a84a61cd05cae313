"""Log lines for people: structlog set up once, JSON when piped or in a container, colour on a terminal.

A shell writes one canonical line per unit of work; nothing is formatted into the event, keys come from
`spans.SPAN_NAMES`. The line goes to standard error, so that standard output stays a command's own.
"""

import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LIBRARY_PERIOD_S, LIBRARY_SENTENCES_MAX = 60.0, 256


def _json(_logger: Any, _method: str, event: Any) -> str:
    # When, how bad, who, what; then the rest as the caller gave it.
    first = {key: event.pop(key) for key in ("timestamp", "level", "comp", "event") if key in event}
    return msgspec.json.encode({**first, **event}, enc_hook=str).decode()


def set_up(
    component: str, level: str = "info", *, stream: TextIO | None = None, is_plain: bool = False, is_final: bool = True
) -> None:
    """Make every logger of this process write one line an event, from `level` upwards.

    `is_plain`: a command that people read writes words, not JSON, when piped too. `is_final`: loggers keep
    what was set at their first line, which is faster; False for a process that will go on to other things.
    Raises: ValueError when there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: want one of {', '.join(LEVELS)}")
    out = stream or sys.stderr

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
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=is_final,
    )
    # Libraries (grpc, asyncio, opentelemetry) speak through `logging`; they get the same shape.
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[_Bridge()], force=True)


class _Bridge(logging.Handler):
    """Hands on what libraries say, the same sentence at most once a minute: a trace collector that is gone for a
    night fills no disk.
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
        method("library.spoke", library=record.name, message=record.getMessage(), exc_info=record.exc_info, **more)
