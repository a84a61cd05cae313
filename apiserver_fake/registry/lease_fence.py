"""A leader's writes stop counting the moment another leads: the check of a write's lease epoch.

Leader election is a hint: a leader that was frozen, or whose packets were, does not know that it was
replaced. So each of its writes names the Lease and the `leaseTransitions` at which it took it, and a write made
under an older one is refused inside the commit, where the stored Lease is the newest there is. What such a write
wanted does not matter; it is not looked at. Source: guarantees C11 and 15.5 (client-go does not fence).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from apiserver_fake.storage.store import Staged
from services.api.errors import BadRequest, Conflict
from services.api.wire import STALE_LEASE_EPOCH, LeaseEpoch, Response

LEASES = "leases.coordination.k8s.io"

Plan = Callable[[Staged], Response]


class _Spec(msgspec.Struct, rename="camel"):
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_LEASE = msgspec.json.Decoder(_Lease)


def fenced(plan: Plan, text: str) -> Plan:
    """Return the write, refused when the Lease it was made under has been taken again since.

    `text`: `<namespace>/<name>/<transitions>`. A Lease that is not stored fences no writer.
    Raises: BadRequest for a text of another form; from the plan, Conflict with reason StaleLeaseEpoch.
    """
    try:
        epoch = LeaseEpoch.parse(text)
    except ValueError as error:
        raise BadRequest(f"x-lease-epoch: {error}") from None

    def checked(staged: Staged) -> Response:
        stored = staged.get(LEASES, epoch.namespace, epoch.name)
        if stored is not None:
            transitions = _LEASE.decode(stored.body).spec.lease_transitions or 0
            if transitions > epoch.transitions:
                raise Conflict(
                    f"lease {epoch.namespace}/{epoch.name} was taken again: it is at {transitions} transitions, "
                    f"this write was made at {epoch.transitions}",
                    reason=STALE_LEASE_EPOCH,
                    details={"name": epoch.name, "group": "coordination.k8s.io", "kind": "leases"},
                )
        return plan(staged)

    return checked
