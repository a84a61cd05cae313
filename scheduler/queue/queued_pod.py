"""A pod in the scheduling queue, and the pools it can be in."""

from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.cache.node_info import PodInfo
from services.api.meta import Key


class Pool(StrEnum):
    """The pool of a queued pod; the values are upstream's metric labels."""

    NONE = ""
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error_backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod with its history in the queue.

    `timestamp`: when it was added or last came back from an attempt. `initial_attempt`: when it was first
    ready. `unschedulable_count` and `consecutive_errors` determine the back-off; `backoff_max_s`: its limit, if
    not the queue's. `not_before`: no attempt before this time, whatever happens (kubelet-unbinding 7.2).
    `moved_by` names the event that last moved it, `is_rescued` says that it was the periodic flush,
    `rescued_from` which plugins had rejected it before. `reported`: the PreEnqueue rejection that the pod's
    status shows, or soon will (KEP-5501); `gate_logged`: the plugin and message that the event log has last.
    `key` and `uid` are the pod's: another form of the pod has the same.
    """

    info: PodInfo
    timestamp: float
    initial_attempt: float | None = None
    attempts: int = 0
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    gating_plugin: str = ""
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_expiration: float | None = None
    backoff_max_s: float | None = None
    not_before: float = 0.0
    pool: Pool = Pool.NONE
    ticket: int = 0
    moved_by: str = ""
    is_rescued: bool = False
    rescued_from: tuple[str, ...] = ()
    traceparent: str = ""
    reported: str = ""
    gate_logged: tuple[str, str] = ("", "")
    key: Key = field(init=False)
    uid: str = field(init=False)

    def __post_init__(self) -> None:
        self.key, self.uid = self.info.key, self.info.uid

    @property
    def rejectors(self) -> set[str]:
        """The plugins whose events may wake it."""
        return self.unschedulable_plugins | self.pending_plugins
