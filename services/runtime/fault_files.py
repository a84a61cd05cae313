"""What is wrong with the machines of a mesh: one file a process, written here and read there (`machine`)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from services.client.link_faults import HEALTHY, LinkFaults
from services.runtime.config import MeshError
from services.runtime.machine import READ_AGAIN, MachineFaults
from services.runtime.real import write_atomically


class FaultFiles:
    """The faults of every process's machine. A process that is down finds them when it comes back."""

    def __init__(self, file_of: Callable[[str], Path], send: Callable[[str, int], None]) -> None:
        """`file_of`: a process's file. `send`: sends a process a signal; raises MeshError when it does not run."""
        self._file_of, self._send = file_of, send
        self._faults: dict[str, MachineFaults] = {}

    def set(self, name: str, **faults: Any) -> None:
        """Have the machine of a process suffer from this from now on; what is not named stays as it is. Raises:
        OSError."""
        made = self._faults[name] = msgspec.structs.replace(self._faults.get(name, MachineFaults()), **faults)
        write_atomically(self._file_of(name), msgspec.json.encode(made))
        with suppress(MeshError, ProcessLookupError):
            self._send(name, READ_AGAIN)

    def link(self, name: str, node: str, faults: LinkFaults) -> None:
        """Set the faults of a process's own link, or of one node's. Raises: OSError."""
        links = {**self._faults.get(name, MachineFaults()).links, node: faults}
        self.set(name, links={way: found for way, found in links.items() if found != HEALTHY})
