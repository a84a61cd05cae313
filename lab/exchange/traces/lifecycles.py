"""Give pods of a trace their run times: each waits at a scheduling gate until its run time is written on it.

A pod that restarts always is deleted when its time is over, and its owner makes another, which lives as the
next lifecycle. Source: simulator 6.2.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from lab.exchange.stream import Runtime
from lab.exchange.traces.runs import GATE, LIFECYCLE, SEQUENCE, Lifecycles, run_of
from services.api.errors import ApiError, Conflict, NotFound
from services.api.kinds.pod import RUN, Pod
from services.api.meta import Key
from services.api.seams import Clock, Random
from services.api.wire import Api
from services.client.client import Client
from services.client.informer import Informer
from services.reconcile.controller import Change

PODS: Final = "pods"


class LifecycleGate:
    """Writer of run times, which opens the gate of each pod. `speed`: as of the player; `assigned`: number of pods."""

    def __init__(
        self, api: Api, clock: Clock, random: Random, runtimes: Sequence[Runtime], *, speed: float = 1.0
    ) -> None:
        self._client = Client(api, clock, random, field_manager="keplab-play")
        self._speed = speed if math.isfinite(speed) else 1.0
        self._lifecycles = Lifecycles.of(runtimes)
        self._informer: Informer[Pod] = Informer(api, Pod, clock=clock, random=random)
        self._informer.on_change(self._on_change)
        self._ends: dict[str, float] = {}
        self._known: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        self.assigned = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        """Assign run times until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await self._informer.run()

    async def wait_until_synced(self) -> None:
        """Return once every pod is known."""
        await self._informer.wait_until_synced()

    def _on_change(self, change: Change[Pod]) -> None:
        pod, before = change.new, change.old
        if before is not None and (pod is None or pod.metadata.uid != before.metadata.uid):
            self._known.discard(before.metadata.uid)
            self._ends.pop(before.metadata.uid, None)
        if pod is None or LIFECYCLE not in pod.metadata.annotations:
            return
        uid = pod.metadata.uid
        if uid not in self._known:
            self._known.add(uid)
            if any(gate.name == GATE for gate in pod.spec.scheduling_gates):
                self._spawn(self._assign(pod))
        elif uid in self._ends and pod.status.phase == "Running":
            self._spawn(self._end(pod.metadata.key, uid, self._ends.pop(uid)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None, "changes come while it runs"
        self._group.create_task(work)

    async def _assign(self, pod: Pod) -> None:
        number, life = self._lifecycles.next(pod.metadata.annotations[LIFECYCLE])
        start, end = life if life is not None else (0.0, None)
        length = None if end is None else (end - start) / self._speed
        does = "forever"
        if length is not None and pod.spec.restart_policy == "Always":
            self._ends[pod.metadata.uid] = length
        elif length is not None:
            does = run_of(0.0, length)
        others = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != GATE]
        patch = {
            "metadata": {"annotations": {RUN: does, SEQUENCE: str(number)}},
            "spec": {"schedulingGates": others or None},
        }
        self.assigned += 1
        try:
            await self._client.patch(PODS, pod.metadata.key, patch, patch_type="merge")
        except NotFound:
            return
        except ApiError as error:
            self.failures.append(f"Pod {pod.metadata.key}: {error.message}")

    async def _end(self, key: Key, uid: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._client.delete(PODS, key, uid=uid)
        except (NotFound, Conflict):
            return  # it has gone, and another may have its name by now
        except ApiError as error:
            self.failures.append(f"Pod {key}: {error.message}")
