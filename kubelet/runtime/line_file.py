"""Append-only files of lines about pods; a pod's newest line counts. Long files are folded into a snapshot.

`NAME.snapshot` begins with the number of the log that continues it; a crash between any two steps of a
folding leaves either the old pair or the new one. Only the journal changes the files on disk; it appends to
several such files at once. Source: guarantees N2, N4; FM-K5, FM-K6.
"""

from collections.abc import Iterable

import msgspec

from kubelet.view import WorkerKey
from services.api.errors import UNREADABLE
from services.api.seams import Disk

FOLD_BYTES = 16 << 20
Where = tuple[str, WorkerKey]
"""A node's name, and one pod for one binding."""


class Lines(msgspec.Struct, frozen=True):
    """A pod's new lines in both files. `is_gone`: the pod's lines are erased."""

    where: Where
    runtime: bytes
    checkpoint: bytes
    is_gone: bool


class LineFile:
    """One file's name and length, and its lines that still count."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name, self._snapshot = disk, name, f"{name}.snapshot"
        self._number = 0
        self._bytes = 0
        self.live: dict[Where, bytes] = {}

    @property
    def log(self) -> str:
        """The name of the file to which the next line is appended."""
        return f"{self._name}-{self._number}.log"

    @property
    def is_long(self) -> bool:
        """Whether the file has to be folded before the next line is added."""
        return self._bytes >= FOLD_BYTES

    def lines(self) -> list[bytes]:
        """Return the lines on disk, oldest first; a line may be torn or useless."""
        head, _, rest = (self._disk.read(self._snapshot) or b"").partition(b"\n")
        lines: list[bytes] = []
        try:
            self._number = int(msgspec.json.decode(head, type=dict[str, int])["log"])
            lines += rest.split(b"\n")
        except (*UNREADABLE, KeyError):
            self._number = 0
        continued = self._disk.read(self.log) or b""
        self._bytes = len(continued)
        if continued and not continued.endswith(b"\n"):
            self.distrust()  # a torn tail would swallow the next line
        return lines + continued.split(b"\n")

    def distrust(self) -> None:
        """Require a snapshot and a new log before the next line, because the log's end may be torn."""
        self._bytes = FOLD_BYTES

    def on_appended(self, data: bytes, lines: Iterable[tuple[Where, bytes, bool]]) -> None:
        """Count appended bytes and keep their lines; an empty line is skipped. The third item: the pod is gone."""
        self._bytes += len(data)
        for where, line, is_gone in lines:
            if line:
                self.live.pop(where, None)
                if not is_gone:
                    self.live[where] = line

    async def fold(self) -> None:
        """Rewrite the file with only the lines that count. Raises: OSError."""
        number = self._number + 1
        old, new = self.log, f"{self._name}-{number}.log"
        head = msgspec.json.encode({"log": number}) + b"\n"
        await self._disk.remove(new)
        await self._disk.write(self._snapshot, head + b"".join(self.live.values()))
        self._number, self._bytes = number, 0
        await self._disk.remove(old)
