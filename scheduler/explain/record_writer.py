"""Writes the decision record onto pods, under kube-scheduler-simulator's annotation keys, if a switch asks for it.

A failed attempt is written at once, a successful one when the watch shows the pod bound: before that it is not
known whether the bind succeeds. One write follows the other; only the newest state of a pod is ever written.
Source: kubernetes-sigs/kube-scheduler-simulator.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.core import Core
from scheduler.cycle.profiles import Profile
from scheduler.cycle.result import ScheduleResult, Unschedulable
from scheduler.explain.simulator_record import SimulatorRecords, answers_of
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Key
from services.client.client import Client

log = structlog.get_logger()


@dataclass
class RecordWriter:
    """`records` keeps everything; what waits to be written is a pod's key and uid."""

    core: Core
    client: Client
    _due: dict[str, Key] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    records: SimulatorRecords = field(default_factory=SimulatorRecords)

    def note(self, info: PodInfo, profile: Profile, result: object, now: float) -> None:
        """Ask every plugin again about the attempt that just ended; the cache must not have changed since."""
        node = result.node_name if isinstance(result, ScheduleResult) else ""
        post = result.post_filter if isinstance(result, Unschedulable) else None
        nominated = (post.nominated_node or "") if post is not None else ""
        columns = self.core.cache.columns
        self.records.keep(info.uid, answers_of(profile, info, columns, now, node=node, nominated=nominated))
        if not node:
            self._write(info.key, info.uid)

    def bound(self, key: Key, uid: str) -> None:
        """Write what is known of a pod that has its node now."""
        if self.records.whole(uid):
            self._write(key, uid)

    def _write(self, key: Key, uid: str) -> None:
        self._due[uid] = key
        self._work.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._work.clear()
            for uid in list(self._due):
                key = self._due.pop(uid)
                patch = {"metadata": {"annotations": self.records.fitting(uid)}}
                try:
                    await self.client.patch_rv("pods", key, patch, uid=uid)
                except (ApiError, UnknownOutcome) as error:
                    log.info("record.dropped", pod=str(key), reason=str(error))
            await self._work.wait()
