"""A file with further switches of one process, written from outside while it runs."""

import asyncio
from pathlib import Path
from typing import Final

from services.api.switches import SwitchError, Switches
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError

LOOK_S: Final = 0.5


def assignments(config: CommonConfig) -> tuple[str, ...]:
    """Return the assignments in the process's switch file. Raises: StartError that names the file."""
    file_words = words(config.set_file) if config.set_file else ()
    try:
        Switches.parse((*config.set, *file_words))
    except SwitchError as error:
        raise StartError(f"--set-file {config.set_file}: {error}", EXIT_USAGE) from None
    return file_words


def words(path: str) -> tuple[str, ...]:
    """Return the assignments in a file, `NAME=VALUE,NAME=VALUE`; empty if the file is missing or unreadable."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    return words_of(text)


def words_of(text: str) -> tuple[str, ...]:
    """Return the assignments in a text of that form."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


async def wait_until_changed(path: str, known: tuple[str, ...]) -> None:
    """Wait until the file has assignments other than `known`."""
    while words(path) == known:  # noqa: ASYNC110  a volume that another container writes to sends no event
        await asyncio.sleep(LOOK_S)
