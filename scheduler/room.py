"""What wiring puts together and the loops share: the pure machines, and what reaches the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.cache import Cache
from scheduler.decisions import Decisions
from scheduler.dispatcher.dispatch import Dispatcher
from scheduler.event_handlers import EventHandlers
from scheduler.exclusions import Exclusions
from scheduler.extenders.asking import Extenders
from scheduler.metrics import Metrics
from scheduler.pod_groups.cycle import GroupCycle
from scheduler.queue import SchedulingQueue
from scheduler.resize.queueing import ResizeQueueing
from scheduler.runners import Profiles
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import View
from services.client.client import Client
from services.client.informer import Informer
from services.client.leases import Elector
from services.client.recorder import Recorder


@dataclass(frozen=True)
class Hearts:
    """The pure machines."""

    cache: Cache
    queue: SchedulingQueue
    exclusions: Exclusions
    profiles: Profiles
    handlers: EventHandlers
    decisions: Decisions
    metrics: Metrics
    group_cycle: GroupCycle | None = None
    """Schedules groups; None while pods are scheduled one by one."""
    resizes: ResizeQueueing | None = None
    """Follows deferred resizes; None while the scheduler leaves them to their nodes."""


@dataclass(frozen=True)
class Wires:
    """What reaches the API server.

    `others`: informers of the kinds that plugins ask about. `elector`: when replicas are to agree who works.
    """

    client: Client
    pods: Informer[Pod]
    nodes: Informer[Node]
    others: Mapping[type[View], Informer[Any]]
    recorder: Recorder
    dispatcher: Dispatcher
    elector: Elector | None = None
    extenders: Extenders | None = None
