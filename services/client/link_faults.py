"""Faults of one link to the API server, as a value. Pure.

Faults have a direction: *requests* go to the server, *replies* come back, watch events among them. `drop` loses
only calls of some sorts, for example the renewals of a Lease.
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
    """Faults of one link. Times are in seconds; probabilities are 0 to 1 per message.

    `slow_s` is added to every message, plus or minus half of it; `watch_delay_s` only to watch events. `loss`: a
    request or its reply vanishes; its caller waits until the deadline. `duplicate`: a request arrives twice, the
    copy up to some seconds later. `drop`: sorts of requests that never arrive, of `SORTS`. `late`: by sort, the
    delay of such a request, as from a queue on the way. It arrives even if its sender is dead by then; the sender
    gets no answer. Only the link of a single node supports `late`.
    """

    cut: str = ""
    slow_s: float = 0.0
    watch_delay_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    drop: tuple[str, ...] = ()
    late: dict[str, float] = {}

    def check(self) -> None:
        """Check the values. Raise ValueError for impossible ones."""
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
        """Whether no request reaches the server."""
        return self.cut in ("requests", "both")

    @property
    def cuts_replies(self) -> bool:
        """Whether no reply comes back."""
        return self.cut in ("replies", "both")

    def data(self) -> dict[str, object]:
        """Return the active faults, for a line of the event log."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name)}

    def check_component(self, component: str) -> None:
        """Check that the faults fit the component. Raise ValueError for faults that only a single node's link
        supports.
        """
        if self.late and not component.startswith("node/"):
            raise ValueError(f"late={','.join(self.late)}: {component} has many callers, want link node/NAME late=…")

    def delay_s(self, random: Random) -> float:
        """Return the extra delay of the next message, in seconds."""
        return self.slow_s * random.uniform(0.5, 1.5) if self.slow_s else 0.0


HEALTHY = LinkFaults()


def sort_of(request: Request) -> str:
    """Return the sort of a call for `drop`; empty for calls of no known sort."""
    return _SORTS.get((request.resource, request.subresource), "")
