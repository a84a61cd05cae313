"""The conditions of pod groups, written: one write at a time a group, the newest word on each condition only.

Nothing here decides anything: what is lost is said again after the group's next attempt.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from scheduler.dispatcher.calls import SetCondition
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Document, find_condition
from services.api.resources import resource_of_view
from services.api.seams import Clock
from services.client.client import Client

RESOURCE: Final = resource_of_view(PodGroup).name
log = structlog.get_logger()


@dataclass
class GroupStatusWriter:
    """By group uid. `submit` never blocks."""

    client: Client
    clock: Clock
    _desired: dict[str, dict[str, Document]] = field(default_factory=dict)
    _sending: set[str] = field(default_factory=set)

    def submit(self, group: PodGroup, condition: SetCondition, traceparent: str, tasks: asyncio.TaskGroup) -> None:
        """Ask for one condition, unless the group says so already; an unsent earlier word on it is forgotten."""
        old = find_condition(group.status.conditions, condition.type)
        if not condition.changes(old):
            return
        uid, entry = group.metadata.uid, condition.entry(old, self.clock.wall())
        entry["lastTransitionTime"] = entry.pop("lastTransitionTime")  # comes last in a group's status
        self._desired.setdefault(uid, {})[condition.type] = entry
        if uid not in self._sending:
            self._sending.add(uid)
            tasks.create_task(self._send(group, traceparent))

    async def _send(self, group: PodGroup, traceparent: str) -> None:
        uid = group.metadata.uid
        try:
            while desired := self._desired.pop(uid, None):
                patch: Document = {"status": {"conditions": list(desired.values())}}
                try:
                    await self.client.patch_rv(
                        RESOURCE,
                        group.metadata.key,
                        patch,
                        subresource="status",
                        patch_type="strategic",
                        uid=uid,
                        traceparent=traceparent,
                    )
                except (ApiError, UnknownOutcome) as error:
                    log.info("podgroup.status_dropped", group=str(group.metadata.key), reason=str(error))
        finally:
            self._sending.discard(uid)
