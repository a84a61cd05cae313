"""The writer of decision records onto pods, under kube-scheduler-simulator's annotation keys, by a switch.

A failed attempt is written when it failed, one that waits at Permit when it begins to wait, a successful
one when the watch shows the pod bound: before that it is not known whether the bind succeeds. One write
follows the other; only the newest state of a pod is ever written. The simulator writes when it sees the
pod's next update. Source: kubernetes-sigs/kube-scheduler-simulator,
`simulator/scheduler/storereflector/storereflector.go`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.core import Core
from scheduler.cycle.profiles import Profile
from scheduler.cycle.result import Result
from scheduler.explain.record_rules import RecordRules
from scheduler.explain.record_store import SimulatorRecords
from scheduler.explain.record_text import ANNOTATIONS_MAX_BYTES, TRUNCATED, size_of
from scheduler.explain.simulator_record import answers_of
from scheduler.framework.cycle_state import CycleError
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.client.client import Client

SPARE_BYTES: Final = 8 * 1024
"""Bytes left for annotations that other clients add to the pod."""
log = structlog.get_logger()


@dataclass
class RecordWriter:
    """Writes records onto pods. `records` keeps everything; pending writes are pod keys and uids.

    `pod_of`: returns the informer's copy.
    """

    core: Core
    client: Client
    pod_of: Callable[[Key], Pod | None]
    rules: RecordRules
    _due: dict[str, Key] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.records = SimulatorRecords(self.rules)

    def note(self, info: PodInfo, profile: Profile, result: Result, now: float) -> None:
        """Call every plugin again for the cycle that just ended; the cache must not have changed since."""
        if isinstance(result, CycleError) and result.is_rejection:
            return  # there is no node: no plugin was asked
        core, uid, records = self.core, info.uid, self.records
        nominator = core.queue.nominator
        records.keep(uid, answers_of(profile, info, core.cache.columns, now, nominator, result, self.rules))
        if isinstance(result, CycleError):
            return
        result.state.record = records.of(uid)

    def add_extender_answer(self, info: PodInfo, verb: str, url: str, answer: Any) -> None:
        """Record an extender's answer about the pod."""
        self.records.add_extender_answer(info.uid, verb, url, answer)

    def add_custom_result(self, pod: PodInfo, key: str, text: str) -> None:
        """Record a plugin's own result."""
        self.records.custom(pod.uid, key, text)

    def waits(self, info: PodInfo) -> None:
        """Write the record of a pod that waits at Permit."""
        self._write(info.key, info.uid)

    def on_failed(self, info: PodInfo) -> None:
        """End the attempt and write its record."""
        self.records.close(info.uid)
        self._write(info.key, info.uid)

    def on_bound(self, key: Key, uid: str) -> None:
        """Write the record of a pod that has its node now."""
        self._write(key, uid)

    def _write(self, key: Key, uid: str) -> None:
        if self.records.is_known(uid):
            self._due[uid] = key
            self._work.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._work.clear()
            for uid in list(self._due):
                key = self._due.pop(uid)
                patch = {"metadata": {"annotations": self._annotations(key, uid)}}
                try:
                    await self.client.patch_rv("pods", key, patch, uid=uid)
                except (ApiError, UnknownOutcome) as error:
                    log.info("record.dropped", pod=str(key), reason=str(error))
            await self._work.wait()

    def _annotations(self, key: Key, uid: str) -> dict[str, str | None]:
        """Return what is to be patched: what fits beside the pod's other annotations."""
        live = self.pod_of(key)
        written = live.metadata.annotations if live is not None else {}
        others = {k: v for k, v in written.items() if k not in self.records.keys(uid)}
        annotations: dict[str, str | None] = {}
        annotations.update(self.records.fitting(uid, ANNOTATIONS_MAX_BYTES - SPARE_BYTES - size_of(others)))
        if TRUNCATED in written and TRUNCATED not in annotations:
            annotations[TRUNCATED] = None
        return annotations
