"""Pods whose Permit said Wait: their binding goes on when every waiting plugin allowed it, or one rejected."""

from __future__ import annotations

import asyncio

from scheduler.framework.interface import SUCCESS, Status, unschedulable
from scheduler.node_info import PodInfo


class WaitingPods:
    """By pod uid."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[PodInfo, dict[str, float], asyncio.Future[Status]]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def pods(self) -> list[PodInfo]:
        """Return the waiting pods, longest first."""
        return [pod for pod, _, _ in self._pods.values()]

    def allow(self, uid: str, plugin: str) -> None:
        """Say yes for one plugin; the last yes lets the binding go on."""
        found = self._pods.get(uid)
        if found is not None:
            found[1].pop(plugin, None)
            if not found[1] and not found[2].done():
                found[2].set_result(SUCCESS)

    def reject(self, uid: str, plugin: str, message: str) -> None:
        """Say no; the binding is undone."""
        found = self._pods.get(uid)
        if found is not None and not found[2].done():
            status = unschedulable(message)
            found[2].set_result(Status(status.code, status.reasons, plugin))

    async def wait(self, pod: PodInfo, timeouts_s: dict[str, float]) -> Status:
        """Return how it ended; the shortest plugin timeout counts as its no."""
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._pods[pod.uid] = (pod, dict(timeouts_s), future)
        plugin, limit_s = min(timeouts_s.items(), key=lambda item: item[1])
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            return Status(unschedulable().code, (f"timeout of {limit_s:g} s reached waiting on permit",), plugin)
        finally:
            del self._pods[pod.uid]
