"""The states of a pod and of its containers on a node, and the transitions between them. Pure.

Transitions are written only here: `Pod` and `Container` change their state by `become`, which checks the
table, so a transition that is missing here raises where it is tried.
"""

from enum import IntEnum
from typing import Final


class PodState(IntEnum):
    """The progress of a pod for one binding; it only moves forward."""

    STARTING = 0
    """Admitted. Volumes, claims and the sandbox are prepared, then containers start one by one."""
    HELD = 1
    """Admitted, and waiting until a predecessor of the same name has ended (kubelet 3.1). No timer is due."""
    RUNNING = 2
    """The node has noticed that a main container runs, or ran."""
    TERMINATING = 3
    """Being ended: `termination` has the cause and the deadline; no container starts any more."""
    STOPPED = 4
    """No container runs. The record of that is not durable yet, or devices of claims are still being unprepared."""
    TERMINATED = 5
    """Nothing of the pod is held here any more; `PodEnded` was emitted, once. Only its status still matters."""


class ContainerState(IntEnum):
    """The state of one container: its activity, or what it waits for."""

    WAITING = 0
    """Waits for its turn: never started, or to be started again by a kubelet that found it lost; `due_s` None."""
    IMAGE = 1
    """Its image is looked up at `due_s`."""
    PULLING = 2
    """Its image is being pulled until `due_s`; `pull` has the start of the pull."""
    STUCK = 3
    """Waits for the next sync of the pod, at `due_s`; `waiting_reason` says what failed."""
    DEVICES = 4
    """Waits for device plugins, which prepare its devices; `due_s` None."""
    CONFIG = 5
    """Waits for the objects to which its variables refer, which are being read; `due_s` None."""
    CREATE = 6
    """The runtime creates it at `due_s`."""
    RECORDING = 7
    """Created, and waiting for the record `record_seq` to be durable (N2); `started_s` is set, `due_s` None."""
    RUNNING = 8
    """Its process exists since `started_s`; `due_s` is its next change: end, hook, probe, readiness."""
    BACKOFF = 9
    """It ended, and is started again at `due_s`; `ended` is set."""
    EXITED = 10
    """It ended and will not start again; `ended` is set."""


class IllegalTransition(AssertionError):
    """Error: a pod or container was to change to a state that does not follow from its present one. A defect."""


_P, _C = PodState, ContainerState

POD_TRANSITIONS: Final[dict[PodState, tuple[PodState, ...]]] = {
    _P.STARTING: (_P.HELD, _P.RUNNING, _P.TERMINATING, _P.STOPPED),  # stopped: by a record of one that had ended
    _P.HELD: (_P.STARTING, _P.TERMINATING),
    _P.RUNNING: (_P.TERMINATING,),
    _P.TERMINATING: (_P.STOPPED,),
    _P.STOPPED: (_P.TERMINATED,),
    _P.TERMINATED: (),
}

_ON_THE_WAY = (_C.WAITING, _C.EXITED)  # the pod is being ended: it goes back to where it was before this start
CONTAINER_TRANSITIONS: Final[dict[ContainerState, tuple[ContainerState, ...]]] = {
    _C.WAITING: (_C.IMAGE, _C.RUNNING, _C.EXITED),  # running, exited: by what a record or the API server says of it
    _C.IMAGE: (_C.PULLING, _C.STUCK, _C.DEVICES, _C.CONFIG, _C.CREATE, *_ON_THE_WAY),
    _C.PULLING: (_C.STUCK, _C.DEVICES, _C.CONFIG, _C.CREATE, *_ON_THE_WAY),
    _C.STUCK: (_C.PULLING, _C.STUCK, _C.DEVICES, _C.CONFIG, _C.CREATE, *_ON_THE_WAY),
    _C.DEVICES: (_C.STUCK, _C.CONFIG, _C.CREATE, *_ON_THE_WAY),
    _C.CONFIG: (_C.STUCK, _C.CREATE, *_ON_THE_WAY),
    _C.CREATE: (_C.STUCK, _C.RECORDING, *_ON_THE_WAY),
    _C.RECORDING: (_C.RUNNING,),
    _C.RUNNING: (_C.EXITED,),
    _C.BACKOFF: (_C.IMAGE, _C.EXITED),
    _C.EXITED: (_C.IMAGE, _C.BACKOFF, _C.WAITING),
}
