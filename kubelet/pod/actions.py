"""What a pod's worker asks of its kubelet: one value for each thing. Pure."""

from __future__ import annotations

import msgspec


class Persist(msgspec.Struct, frozen=True):
    """Make the worker's record durable, then call `persisted(seq)`."""

    seq: int


class LogStart(msgspec.Struct, frozen=True):
    """The pod's first container starts now."""

    container: str


class LogStop(msgspec.Struct, frozen=True):
    """The pod's last container has stopped; `container` is the one that `LogStart` named."""

    container: str


class Told(msgspec.Struct, frozen=True):
    """Tell people (an Event)."""

    reason: str
    message: str
    type: str = "Normal"


class Reached(msgspec.Struct, frozen=True):
    """A stage of the start ended; for traces."""

    stage: str


class Poke(msgspec.Struct, frozen=True):
    """The status is worth writing."""


class Finished(msgspec.Struct, frozen=True):
    """Nothing of the pod runs or is held any more."""


class StartFailed(msgspec.Struct, frozen=True):
    """The start has failed so often, for this reason, that the pod may be given back if that is wanted."""

    reason: str
    message: str


class Refused(msgspec.Struct, frozen=True):
    """What the pod needs cannot be had here after all: reject it."""

    reason: str
    message: str


class Resized(msgspec.Struct, frozen=True):
    """An attempt to carry a resize out took so long. When it succeeded others may have found room."""

    took_s: float
    succeeded: bool = True


class AskDevices(msgspec.Struct, frozen=True):
    """A container is about to start: its devices have to be prepared, then call `devices_ready`."""

    container: str


class Prepare(msgspec.Struct, frozen=True):
    """Read the pod's claims, then call `claims_listed`."""


class CallDrivers(msgspec.Struct, frozen=True):
    """The pod's claims are durable: have their devices prepared, then call `prepared` or `not_prepared`.

    `is_broken`: somebody said that it fails this time.
    """

    is_broken: bool


class Unprepare(msgspec.Struct, frozen=True):
    """Nothing of the pod runs: have its devices given back, then call `unprepared`."""


Action = (
    Persist | LogStart | LogStop | Told | Reached | Poke | Finished | Resized | StartFailed | AskDevices
    | Prepare | CallDrivers | Unprepare | Refused
)  # fmt: skip
