"""Machines that come, go and change in a stream: their nodes' kubelets are switched on and off accordingly.

Each machine's events are handled one after the other, beside everything else of the stream: the mesh learns
that a machine is gone a moment after it lost its power. Source: simulator 10; kubelet 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from lab.exchange.stream import Change
from services.api.meta import Document, Key, metadata_of

_SAID = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage", "pods": "pods"}


class MachinePower(Protocol):
    """Power switch of the mesh's machines, by the names of their nodes."""

    def has(self, node: str) -> bool:
        """Return whether the node is a machine of the mesh."""

    async def on(self, node: str, capacity: Document) -> None:
        """Boot the machine with these resources; if it is already on, change its resources to these."""

    async def off(self, node: str) -> None:
        """Switch the machine off, and return once nothing of it acts any more."""

    async def resize(self, node: str, capacity: Document) -> None:
        """Change the machine's resources from now on."""


def capacity_of(node: Document) -> Document:
    """Return the capacity in a Node or a patch of one, in the form of a node definition; {} if it has none."""
    status = node.get("status")
    capacity = status.get("capacity") if isinstance(status, dict) else None
    if not isinstance(capacity, dict):
        return {}
    definition: Document = {field: str(capacity[name]) for name, field in _SAID.items() if name in capacity}
    if "pods" in definition:
        definition["pods"] = int(definition["pods"])
    if extended := {name: int(text) for name, text in capacity.items() if "/" in name and str(text).isdigit()}:
        definition["extended"] = extended
    return definition


class Machines:
    """The machines of a stream that is played. `delete`: deletes a Node, as a cloud's controller does once a machine
    is gone; `change`: applies a change of the stream to a Node.
    """

    def __init__(
        self,
        power: MachinePower,
        *,
        delete: Callable[[Key], Awaitable[bool]],
        change: Callable[[Change], Awaitable[object]],
    ) -> None:
        self._power, self._delete, self._change = power, delete, change
        self._last: dict[str, asyncio.Task[None]] = {}
        self._capacities: dict[str, Document] = {}

    def take(self, change: Change) -> bool:
        """Handle a change of a Node; return False if the caller must also, or only, apply it to the object."""
        if not self._power.has(change.name):
            return False
        document = change.document or {}
        if change.method == "delete":
            self._then(change.name, self._remove_node(change.name))
            return True
        capacity = capacity_of(document)
        is_other = bool(capacity) and capacity != self._capacities.get(change.name)
        if capacity:
            self._capacities[change.name] = capacity
        if change.method == "create":
            self._then(change.name, self._power.on(change.name, capacity))
            return True
        if is_other:
            self._then(change.name, self._power.resize(change.name, capacity))
        if capacity and not metadata_of(document) and set(document) <= {"status", "apiVersion", "kind"}:
            return True
        if (last := self._last.get(change.name)) is None or last.done():
            return False
        self._then(change.name, self._apply_change(change))
        return True

    async def _apply_change(self, change: Change) -> None:
        await self._change(change)

    async def _remove_node(self, node: str) -> None:
        await self._power.off(node)
        await self._delete(Key("", node))

    def _then(self, node: str, work: Coroutine[Any, Any, None]) -> None:
        before = self._last.get(node)

        async def in_turn() -> None:
            try:
                if before is not None:
                    await before
            except BaseException:
                work.close()
                raise
            await work

        self._last[node] = asyncio.create_task(in_turn())

    async def wait_for_all(self) -> None:
        """Return once all accepted changes are done. Raises: the error that one of them raised."""
        await asyncio.gather(*self._last.values())

    async def cancel(self) -> None:
        """Cancel the changes that are not done."""
        for task in self._last.values():
            task.cancel()
        await asyncio.gather(*self._last.values(), return_exceptions=True)
