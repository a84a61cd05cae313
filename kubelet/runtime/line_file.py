"""Lines about pods in a file that only grows, the newest of a pod counts; folded into a snapshot when long.

`NAME.snapshot` begins with the number of the log that continues it; a crash between any two steps of a folding
leaves either the old pair or the new one. What is on disk is changed by the journal alone, which appends to several
such files at once. Source: guarantees N2, N4; FM-K5, FM-K6.
"""

from collections.abc import Iterable

import msgspec

from kubelet.view import WorkerKey
from services.api.errors import UNREADABLE
from services.api.seams import Disk

FOLD_BYTES = 16 << 20
Where = tuple[str, WorkerKey]
"""A node, and one pod for one binding."""


class Lines(msgspec.Struct, frozen=True):
    """What both files have to say of one pod from now on. `is_gone`: nothing any more."""

    where: Where
    runtime: bytes
    checkpoint: bytes
    is_gone: bool


class LineFile:
    """One file's name, length, and the lines in it that still count."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name, self._snapshot = disk, name, f"{name}.snapshot"
        self._number = 0
        self._bytes = 0
        self.live: dict[Where, bytes] = {}

    @property
    def log(self) -> str:
        """Where the next line goes."""
        return f"{self._name}-{self._number}.log"

    @property
    def is_long(self) -> bool:
        """Whether it is to be folded before the next line is added."""
        return self._bytes >= FOLD_BYTES

    def lines(self) -> list[bytes]:
        """Read what is on disk, oldest first; a line may be torn, or be of no use."""
        head, _, rest = (self._disk.read(self._snapshot) or b"").partition(b"\n")
        found: list[bytes] = []
        try:
            self._number = int(msgspec.json.decode(head, type=dict[str, int])["log"])
            found += rest.split(b"\n")
        except (*UNREADABLE, KeyError):
            self._number = 0
        continued = self._disk.read(self.log) or b""
        self._bytes = len(continued)
        if continued and not continued.endswith(b"\n"):
            self.distrust()  # a torn tail would swallow the next line
        return found + continued.split(b"\n")

    def distrust(self) -> None:
        """The end may be torn: go on behind a snapshot, in a new log."""
        self._bytes = FOLD_BYTES

    def added(self, data: bytes, lines: Iterable[tuple[Where, bytes, bool]]) -> None:
        """These bytes were appended, which is to say these lines; an empty one is none. The last: the pod is gone."""
        self._bytes += len(data)
        for where, line, is_gone in lines:
            if line:
                self.live.pop(where, None)
                if not is_gone:
                    self.live[where] = line

    async def fold(self) -> None:
        """Have the file say what counts, and nothing else. Raises: OSError."""
        number = self._number + 1
        old, new = self.log, f"{self._name}-{number}.log"
        head = msgspec.json.encode({"log": number}) + b"\n"
        await self._disk.remove(new)
        await self._disk.write(self._snapshot, head + b"".join(self.live.values()))
        self._number, self._bytes = number, 0
        await self._disk.remove(old)
