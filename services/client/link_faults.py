"""What may be wrong with one way to the API server, as a value. Pure.

Faults are given by direction: *requests* go to the server, *replies* come back, watch events among them. `drop` loses
calls of some sorts and no others, for example the renewals of a Lease.
"""

import msgspec

from services.api.seams import Random
from services.api.wire import Request

CUTS = ("", "requests", "replies", "both")
_SORTS = {
    ("leases.coordination.k8s.io", ""): "lease",
    ("nodes", "status"): "node-status",
    ("pods", "status"): "pod-status",
    ("pods", "unbind"): "unbind",
}
SORTS = tuple(_SORTS.values())


class LinkFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Faults of one link. Seconds; chances are 0 to 1 a message.

    `slow_s` is added to every message, more or less by half; `watch_delay_s` to watch events alone. `loss`: a request
    or its reply vanishes and its caller learns nothing until the deadline. `duplicate`: a request arrives twice, the
    copy up to some seconds later. `drop`: sorts of requests that never arrive, of `SORTS`. `late`: by sort, how much
    later such a request arrives, as from a queue on its way: also when its sender is dead by then, who learns nothing
    of it. Only the way of a single node has that.
    """

    cut: str = ""
    slow_s: float = 0.0
    watch_delay_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    drop: tuple[str, ...] = ()
    late: dict[str, float] = {}

    def check(self) -> None:
        """Raise ValueError for what no link can have."""
        if self.cut not in CUTS:
            raise ValueError(f"cut={self.cut}: want requests, replies or both")
        for name, sorts in (("drop", self.drop), ("late", self.late)):
            if unknown := [sort for sort in sorts if sort not in SORTS]:
                raise ValueError(f"{name}={unknown[0]}: want of {', '.join(SORTS)}")
        for name, chance in (("loss", self.loss), ("duplicate", self.duplicate)):
            if not 0.0 <= chance <= 1.0:
                raise ValueError(f"{name}={chance:g}: want a chance, 0 to 1")

    @property
    def cuts_requests(self) -> bool:
        """Whether nothing reaches the server."""
        return self.cut in ("requests", "both")

    @property
    def cuts_replies(self) -> bool:
        """Whether nothing comes back."""
        return self.cut in ("replies", "both")

    def data(self) -> dict[str, object]:
        """Return what is wrong, for a line of the event log."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name)}

    def check_component(self, component: str) -> None:
        """Raise ValueError for what only the way of a single node can have."""
        if self.late and not component.startswith("node/"):
            raise ValueError(f"late={','.join(self.late)}: {component} has many callers, want link node/NAME late=…")

    def delay_s(self, random: Random) -> float:
        """Return how much longer the next message takes."""
        return self.slow_s * random.uniform(0.5, 1.5) if self.slow_s else 0.0


HEALTHY = LinkFaults()


def sort_of(request: Request) -> str:
    """Return what sort of call `drop` takes this for, "" for all that it knows no word for."""
    return _SORTS.get((request.resource, request.subresource), "")
