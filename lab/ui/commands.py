"""Commands of the page to a mesh: each is a line of the event log, and faults go to the supervisor."""

from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from lab.ui.access import Place
from lab.ui.lines import Entry
from lab.ui.live import Live
from services.api.errors import ApiError, BadRequest, Conflict
from services.runtime.config import MeshError
from services.runtime.faults.breaking import FaultOrder
from services.runtime.real import RealClock, seeded_random
from services.telemetry.eventlog import FileEventLog, MemoryEventLog, encode, new_incarnation
from services.telemetry.pieces import DEFAULT

COMPONENT: Final = "ui"
EVENT: Final = "ui.command"
_log = structlog.get_logger()


class CommandLog:
    """Log of the page's own commands: in the mesh's event folder, or on the page only, if that is not writable."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._file: FileEventLog | None = None
        self._memory = MemoryEventLog(COMPONENT, RealClock(), new_incarnation(seeded_random(None)))

    def write(self, command: str, **data: Any) -> None:
        """Log a command before it is performed."""
        fields = {"command": command, **{name: value for name, value in data.items() if value not in ("", None)}}
        folder = self._live.place.access.events
        if self._file is None and folder is not None:
            self._file = self._open_log(folder)
        if self._file is not None:
            self._file.write(EVENT, data=fields)
            return
        self._memory.write(EVENT, data=fields)
        line = self._memory.events.lines.pop()
        self._live.take_lines([Entry(encode(line).rstrip(b"\n"), line)])

    @staticmethod
    def _open_log(folder: Path) -> FileEventLog | None:
        try:
            return FileEventLog(folder, COMPONENT, RealClock(), new_incarnation(seeded_random(None)), DEFAULT)
        except OSError as error:
            _log.info("ui.commands_not_logged", folder=str(folder), error=error.strerror)
            return None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class NotHere(Conflict):
    """409: this fault cannot be injected here; `details.command` is the command line that does it by hand."""

    reason = "NotHere"


async def perform(place: Place, body: bytes) -> tuple[FaultOrder, list[str]]:
    """Inject or end the fault in a request's body; return it and the actions taken, in words. Raises: ApiError."""
    try:
        wanted = msgspec.json.decode(body, type=FaultOrder)
        wanted.check()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest(f"body: {error}") from None
    if not place.can_kill:
        command = place.how_to_break(wanted.target, wanted.action)
        what = f"run `{command}`" if command else f"{wanted.action} needs a mesh of `keplab up --faults`"
        raise NotHere(f"this process cannot reach the container's engine: {what}", details={"command": command})
    try:
        answer = await place.command({"verb": "break", **msgspec.to_builtins(wanted)})
    except MeshError as error:
        raise Conflict(str(error)) from None
    if "error" in answer:
        refusal: type[ApiError] = BadRequest if answer.get("is_usage") else Conflict
        raise refusal(str(answer["error"]))
    return wanted, [str(each) for each in answer["done"]]
