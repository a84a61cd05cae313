"""The answer of a plugin: one of seven codes, and reasons for people."""

from enum import IntEnum

import msgspec


class Code(IntEnum):
    """The seven answers. Unschedulable: preemption may help; UnschedulableAndUnresolvable: it may not.

    Skip: this plugin has no part in this cycle. Wait: only from Permit and PlacementFeasible. Pending: waits
    for an external actor, and once woken skips the back-off. Error: a bug or a refused call, never a rejection.
    """

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def is_rejected(self) -> bool:
        """Whether the code is a rejection, as opposed to an error."""
        return self in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


class Status(msgspec.Struct, frozen=True):
    """A plugin's answer; `reasons` are for people; `plugin` is filled in by the runner."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the plugin agrees."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons, joined."""
        return ", ".join(self.reasons)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """Return a rejection that preemption may resolve."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return a rejection that preemption cannot resolve."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error_status(*reasons: str) -> Status:
    """Return an error."""
    return Status(Code.ERROR, reasons)
