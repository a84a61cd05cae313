"""Pods on their way to a bind that can still be rejected: waiting at Permit, or in PreBind.

At Permit the binding goes on when every waiting plugin allowed it, or ends when one rejected. A preemptor
that chooses such a pod as a victim rejects it in memory, without any API call. Source:
scheduler-queue-and-cycles 4; preemption 3.5.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import SUCCESS, Code, Status
from services.api.times import Duration

PREEMPTED: Final = "preempted"


@dataclass(slots=True)
class _Waiting:
    plugins: dict[str, float]
    decision: asyncio.Future[Status]


@dataclass(slots=True)
class WaitingPods:
    """The waiting and pre-binding pods, by uid."""

    _permits: dict[str, _Waiting] = field(default_factory=dict)
    _pre_binds: dict[str, asyncio.Future[Status]] = field(default_factory=dict)
    _turned_back: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    def is_waiting(self, uid: str) -> bool:
        """Whether the pod waits at Permit."""
        return uid in self._permits

    def is_pre_binding(self, uid: str) -> bool:
        """Whether the pod's PreBind plugins are running."""
        return uid in self._pre_binds

    def allow(self, uid: str, plugin: str) -> None:
        """Allow the pod for one plugin; the last allowing plugin lets the binding go on."""
        found = self._permits.get(uid)
        if found is not None:
            found.plugins.pop(plugin, None)
            if not found.plugins and not found.decision.done():
                found.decision.set_result(SUCCESS)

    def reject(self, uid: str, plugin: str, message: str) -> bool:
        """Reject the pod, so that its binding is undone; return False if it does not wait at Permit any more."""
        found = self._permits.get(uid)
        return found is not None and _refuse(found.decision, plugin, message)

    def turn_back(self, uid: str, plugin: str) -> asyncio.Future[None] | None:
        """Preempt the pod where it waits or prepares; the future is done when its capacity is free. None: too late."""
        permit = self._permits.get(uid)
        decision = permit.decision if permit is not None else self._pre_binds.get(uid)
        if decision is None or not _refuse(decision, plugin, PREEMPTED):
            return None
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turned_back[uid] = left
        return left

    def leave(self, uid: str) -> None:
        """Note that the pod's binding cycle ended, with whatever result."""
        self._permits.pop(uid, None)
        left = self._turned_back.pop(uid, None)
        if left is not None and not left.done():
            left.set_result(None)

    def enter(self, pod: PodInfo, timeouts_s: dict[str, float]) -> None:
        """Let the pod wait from now on; `wait` returns the result."""
        decision: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._permits[pod.uid] = _Waiting(dict(timeouts_s), decision)

    async def wait(self, pod: PodInfo, timeouts_s: dict[str, float]) -> Status:
        """Return the result of the wait at Permit; the shortest plugin timeout counts as its rejection."""
        plugin, limit_s = min(timeouts_s.items(), key=lambda item: item[1])
        try:
            async with asyncio.timeout(limit_s):
                return await self._permits[pod.uid].decision
        except TimeoutError:
            text = f"rejected due to timeout after waiting {Duration(limit_s).text} at plugin {plugin}"
            return Status(Code.UNSCHEDULABLE, (text,), plugin)
        finally:
            del self._permits[pod.uid]

    async def prepare(self, pod: PodInfo, work: Coroutine[Any, Any, Status]) -> Status:
        """Return the result of the PreBind work; if the pod is preempted meanwhile, the work is cancelled."""
        decision: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._pre_binds[pod.uid] = decision
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, decision), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else decision.result()
        finally:
            del self._pre_binds[pod.uid]
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))


def _refuse(decision: asyncio.Future[Status], plugin: str, message: str) -> bool:
    if decision.done():
        return False
    decision.set_result(Status(Code.UNSCHEDULABLE, (message,), plugin))
    return True
