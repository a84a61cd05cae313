"""Leader election among replicas: the lease holder works; the others keep their caches warm and wait.

A standby follows every change and writes nothing: its queue and cache are those of a leader that has not
begun (upstream's `delayCacheUntilActive: false`). Changes that it saw and did not act on are looked at
again when it leads.
"""

import asyncio
from collections.abc import Container, Iterable
from dataclasses import dataclass

from services.client.client import Client
from services.client.leases import Elector
from services.client.recorder import Recorder
from services.telemetry.metrics import Samples


@dataclass
class Leadership:
    """The role of one replica. Without an elector it is the only one and always leads."""

    elector: Elector | None
    client: Client
    recorder: Recorder
    is_leading: bool = False

    async def begin(self, group: asyncio.TaskGroup) -> None:
        """Return once this replica leads; its writes carry the epoch from then on (C11).

        In the group, a loss of the lease raises LeadershipLost.
        """
        elector = self.elector
        if elector is not None:
            self.client.lead(await elector.acquire(), elector.on_deposed)
            group.create_task(elector.hold())
            self.recorder.event(
                kind="Lease",
                api_version="coordination.k8s.io/v1",
                key=elector.lease,
                uid=elector.lease_uid,
                reason="LeaderElection",
                message=f"{elector.holder} became leader",
            )
        self.is_leading = True

    def metrics(self) -> Samples:
        """Return whether this replica leads; nothing when there is no election."""
        return self.elector.metrics() if self.elector is not None else Samples()


@dataclass
class MissingNodes:
    """Nodes that pods are nominated to and that do not exist (K4).

    A node is missing when two looks in a row did not find it: a nomination may be seen before the node is.
    """

    _suspected: frozenset[str] = frozenset()

    def look(self, nominated: Iterable[str], known: Container[str]) -> list[str]:
        """Return the missing nodes, in the order given."""
        absent = [node for node in nominated if node not in known]
        missing = [node for node in absent if node in self._suspected]
        self._suspected = frozenset(absent)
        return missing
