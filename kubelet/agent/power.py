"""The power of one process's nodes: their tasks run only while it is on, and a boot starts a node anew.

Users shut a node down, switch it off or boot it with the file `nodes/NODE/power`: `shutdown`, `off` or `on
BOOT`, with a boot id of their own; without the file it is on. A node without power makes no call, takes
none and renews nothing; its containers end. Source: kubelet 6; guarantees N4.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, MutableSequence
from typing import Any

from kubelet.agent.journal import Journal
from kubelet.runtime.boots import Boot, after_boot
from kubelet.runtime.records import PodRecord, lines_of
from kubelet.view import WorkerKey
from services.api.seams import Clock, Disk

BOOTED_FILE = "nodes/{}/booted"
"""The file with the boot to which a node's part of the runtime's record belongs.

It exists only if the node was ever booted by itself.
"""


class Tenant(ABC):
    """A node of a host; `Agent` is one."""

    name: str
    is_off: bool

    @abstractmethod
    async def live(self) -> None:
        """Run the node until cancelled."""

    @abstractmethod
    def fire(self, what: str, key: WorkerKey, now: float) -> None:
        """Handle a timer of this node."""

    @abstractmethod
    def drain(self) -> None:
        """Perform the machine's effects, in order."""

    @abstractmethod
    def begins(self, boot: Boot) -> None:
        """Set the machine's boot; after a new boot nothing that ran before runs any more."""

    @abstractmethod
    def recover(self, record: PodRecord, key: WorkerKey) -> None:
        """Take a pod's record that the runtime still holds from before this process, or this boot, began."""

    @abstractmethod
    def files_changed(self, files: Mapping[str, bytes]) -> None:
        """Take the manifests of static pods as they are now."""

    @abstractmethod
    def faults_changed(self, text: str) -> None:
        """Replace the node's faults. `text`: faults in the syntax of `kubelet/node/health.py`."""

    @abstractmethod
    def stages_changed(self) -> None:
        """Apply the host's present stages."""

    @abstractmethod
    def capacity_changed(self, text: str) -> None:
        """Replace the machine's capacity: a JSON object as `kubelet/node/definition.py` reads it, or nothing."""

    @abstractmethod
    def shut_down(self) -> None:
        """Shut the node down gracefully: end its pods, then request the power-off."""

    @abstractmethod
    def disk_changed(self, *, has_error: bool) -> None:
        """Report that the disk began to fail, or no longer fails."""

    @abstractmethod
    def was_away(self) -> None:
        """Read the pods before acting: the process was frozen for longer than the grace period (N6)."""


class Power:
    """The power of a process's nodes; `make(place)` makes the node with this index anew.

    Invariant: a node that is off has no task.
    """

    def __init__(
        self,
        nodes: MutableSequence[Tenant],
        make: Callable[[int], Tenant],
        *,
        journal: Journal,
        disk: Disk,
        clock: Clock,
        on_new: Callable[[Tenant], None],
    ) -> None:
        self._nodes, self._make, self._on_new = nodes, make, on_new
        self._journal, self._disk, self._clock = journal, disk, clock
        self.machine = Boot("", False, ())
        """The boot of the machine that all of them share."""
        self._said: dict[str, str] = {}
        self._coming: dict[str, str] = {}
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start every node that has power."""
        self._group = group
        for node in self._nodes:
            self.start(node, self._come_up(node))

    def end(self) -> None:
        """Start no more work, because the process ends."""
        self._group = None

    def start(self, node: Tenant, work: Coroutine[Any, Any, None]) -> None:
        """Run work of a node in a task that ends with its power; without power it is not started."""
        if self._group is None or node.is_off:
            work.close()
            return
        try:
            task = self._group.create_task(work)
        except RuntimeError:
            work.close()  # a task failed, and the process is ending with it
            return
        held = self._tasks.setdefault(node.name, {})
        held[task] = None
        task.add_done_callback(lambda done: held.pop(done, None))

    def set_power(self, name: str, text: str) -> None:
        """Apply the text of a node's power file, if it changed."""
        if text == self._said.get(name, ""):
            return
        self._said[name] = text
        node = next(each for each in self._nodes if each.name == name)
        match text.split():
            case ["shutdown"] if self._group is None:
                node.is_off = True  # its kubelet was killed over it, and the machine went on
            case ["shutdown"]:
                node.shut_down()
            case ["off"]:
                self.cut(node)
            case ["on", boot_id] if boot_id != (self._disk.read(BOOTED_FILE.format(name)) or b"").decode():
                self.cut(node)
                self._boot(node, boot_id)
            case ["on", boot_id] if self._group is None:
                node.begins(Boot(f"{self.machine.id}/{boot_id}", self.machine.is_new, ()))

    def cut(self, node: Tenant) -> None:
        """Cut the node's power: cancel its tasks at once."""
        node.is_off = True
        for task in list(self._tasks.pop(node.name, {})):
            task.cancel()

    def _boot(self, node: Tenant, boot_id: str) -> None:
        place = next(index for index, each in enumerate(self._nodes) if each is node)
        fresh = self._nodes[place] = self._make(place)
        self._coming[node.name] = boot_id
        records = after_boot(self._journal.of(node.name), self._clock.now())
        fresh.begins(Boot(f"{self.machine.id}/{boot_id}", True, ()))
        for (_, key), record in records.items():
            self._journal.put(lines_of(record))
            fresh.recover(record, key)
        self._on_new(fresh)
        self.start(fresh, self._come_up(fresh))

    async def _come_up(self, node: Tenant) -> None:
        """Live; after a boot once it is on disk that what ran before does not run any more."""
        boot_id = self._coming.pop(node.name, "")
        if boot_id:
            await self._journal.flush()
            await self._journal.keep({BOOTED_FILE.format(node.name): boot_id.encode()})
        await node.live()
