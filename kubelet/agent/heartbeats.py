"""The heartbeats of one node: its Lease, renewed every quarter of its duration, and its status.

Source: kubelet 2.
"""

import asyncio
import math
from functools import partial

import msgspec
import structlog

from kubelet.agent.node import NodeShell
from kubelet.node.status import LEASE_NAMESPACE, REPORT_PERIOD_S, lease_document
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.times import format_micro_time
from services.api.wire import Request, Response, encode

LEASES = "leases.coordination.k8s.io"
SPREAD_ABOVE_NODES = 20
LEASE_TRIES = 5
BEAT_S = 0.25
"""Time within which a large host renews due Leases together; seconds.

Requests that are sent at once are cheap.
"""
RETRY_S = 10.0
log = structlog.get_logger()


class Heartbeats:
    """The Lease renewals and status reports of one node.

    Invariant: at most one renewal and one report are under way.
    """

    def __init__(self, node: NodeShell) -> None:
        self._host, self._node = node.host, node
        self._about = partial(Request, resource=LEASES, namespace=LEASE_NAMESPACE, name=node.name)
        self._is_reporting = self._reports_again = self._is_renewing = False
        self._has_begun = self._is_doubted = self._is_looking = False
        self.lease_renewals = 0

    def begin(self, now: float, *, is_new: bool) -> None:
        """Renew the Lease at once (a new node creates it), and report within the period.

        A second call changes nothing.
        """
        if self._has_begun:
            return
        self._has_begun = True
        host = self._host
        self._node.spawn(self._renew(is_new=is_new))
        # Nodes that start together should not beat together for ever.
        phase_s = host.random.uniform(0.5, 1.0) if self._is_crowded else 1.0
        self._renew_at(now + phase_s * host.switches.lease_duration_s / 4)
        self._node.set_timer(now + host.random.uniform(0.5, 1.0) * REPORT_PERIOD_S, "report")

    def fire(self, what: str, now: float) -> None:
        """Handle a timer: lease, report or retry-report."""
        match what:
            case "lease":
                self._renew_at(now + self._host.switches.lease_duration_s / 4)
                if not self._is_renewing:
                    self._node.spawn(self._renew())
            case "report":
                self._node.set_timer(now + REPORT_PERIOD_S, "report")
                self.report_soon()
            case _:
                self.report_soon()

    @property
    def _is_crowded(self) -> bool:
        return len(self._host.agents) > SPREAD_ABOVE_NODES

    def _renew_at(self, at_s: float) -> None:
        if self._is_crowded:
            at_s = math.floor(at_s / BEAT_S) * BEAT_S
        self._node.set_timer(at_s, "lease")

    async def _renew(self, *, is_new: bool = False) -> None:
        """Renew the Lease, trying a few times; what fails now is tried again at the next beat."""
        self._is_renewing = True
        try:
            for attempt in range(LEASE_TRIES):
                response = await self._create_lease() if is_new and not attempt else await self._renew_once()
                if response is not None and response.code == 409:
                    response = await self._renew_once()
                elif response is not None and response.code == 404:
                    response = await self._create_lease()
                if response is not None and response.is_ok:
                    self.lease_renewals += 1
                    if self._is_doubted:
                        # We were cut off: the control plane may think us dead.
                        self._is_doubted = False
                        self.report_soon()
                    return
                self._is_doubted = True
                self._look_soon()
                await asyncio.sleep(0.2 * 2**attempt)
        finally:
            self._is_renewing = False

    async def _renew_once(self) -> Response | None:
        """Patch the Lease; give up long before it ends."""
        host = self._host
        body = encode({"spec": {"renewTime": format_micro_time(host.clock.wall())}})
        deadline_s = host.switches.lease_duration_s / 4
        return await self._node.call(self._about(verb="patch", patch_type="merge", body=body, deadline_s=deadline_s))

    async def _create_lease(self) -> Response | None:
        host, node = self._host, self._node
        lease = lease_document(node.name, node.node_uid, host.switches.lease_duration_s, host.clock.wall())
        return await node.call(self._about(verb="create", body=encode(lease)))

    def _look_soon(self) -> None:
        # What is said of a node whose Lease cannot be renewed is corrected where that can be done. Upstream looks
        # every 10 s at any time; as long as the Lease is renewed there is nothing to see.
        if self._node.is_registered and self._node.writes_status and not self._is_looking:
            self._is_looking = True
            self._node.spawn(self._look())

    async def _look(self) -> None:
        node = self._node
        try:
            stored = msgspec.json.decode(await node.client.get_raw("nodes", Key("", node.name)), type=Node)
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.read_failed", node=node.name, reason=str(error))
        else:
            statuses = {condition.type: condition.status for condition in stored.status.conditions}
            ours = node.report.status(self._host.clock.wall())["conditions"]
            if any(statuses.get(condition["type"]) != condition["status"] for condition in ours):
                self.report_soon()
        finally:
            self._is_looking = False

    def report_soon(self) -> None:
        """Write the node's status, unless a write is under way already."""
        if not self._node.is_registered or not self._node.writes_status:
            return
        if self._is_reporting:
            self._reports_again = True
            return
        self._is_reporting = True
        self._node.spawn(self._report())

    async def _report(self) -> None:
        try:
            self._reports_again = True
            while self._reports_again:
                self._reports_again = False
                await self._report_once()
        finally:
            self._is_reporting = False

    async def _report_once(self) -> None:
        host, node = self._host, self._node
        status = node.report.status(host.clock.wall())
        try:
            stored = await node.client.patch(
                "nodes", Key("", node.name), {"status": status}, subresource="status", patch_type="strategic"
            )
        except NotFound:
            node.node_gone()
            return
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.report_failed", node=node.name, reason=str(error))
            host.set_timer(host.clock.now() + RETRY_S, node, "retry-report")
            return
        node.node_writes += 1
        node.take_node(msgspec.convert(stored, Node))
