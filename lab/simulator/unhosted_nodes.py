"""Keeper of nodes that no kubelet hosts, such as imported ones: they stay ready and their pods run, as kwok
does for the simulator.

A node whose kubelet reports itself is left alone. Source: simulator 4.1.
"""

import asyncio
from typing import Any, Final

import structlog

from services.api.errors import AlreadyExists, ApiError, NotFound, UnknownOutcome
from services.api.kinds.lease import Lease
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key, find_condition
from services.api.seams import Clock, Random
from services.api.times import format_micro_time, format_time
from services.api.wire import Api
from services.client.client import Client
from services.client.informer import Informer

LEASES: Final = "kube-node-lease"
LEASE_KIND: Final = "leases.coordination.k8s.io"
HOLDER: Final = "keplab-simulator-api"
TICK_S: Final = 1.0
GRACE_S: Final = 3.0
"""Seconds that a kubelet has for its lease after it has created its node."""
RENEW_S: Final = 10.0
READY: Final = ("KubeletReady", "no kubelet hosts this node; the simulator API keeps it ready")
log = structlog.get_logger()


class UnhostedNodes:
    """Controller that renews leases, and reports nodes ready and pods running."""

    def __init__(self, api: Api, client: Client, clock: Clock, random: Random) -> None:
        self._client, self._clock = client, clock
        self._nodes: Informer[Node] = Informer(api, Node, clock=clock, random=random, keep_documents=False)
        self._pods: Informer[Pod] = Informer(api, Pod, clock=clock, random=random, keep_documents=False)
        self._leases: Informer[Lease] = Informer(
            api, Lease, clock=clock, random=random, keep_documents=False, namespace=LEASES
        )
        self._since: dict[str, float] = {}
        self._renewed: dict[str, float] = {}

    async def run(self) -> None:
        """Run the controller until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            group.create_task(self._leases.run())
            await self._leases.wait_until_synced()
            await self._nodes.wait_until_synced()
            await self._pods.wait_until_synced()
            while True:
                await self._tick()
                await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        now = self._clock.now()
        nodes = {node.metadata.name: node for node in self._nodes.lister.all() if self._is_unhosted(node, now)}
        for name, node in nodes.items():
            if now - self._renewed.get(name, -RENEW_S) >= RENEW_S:
                self._renewed[name] = now
                await self._quietly(self._keep(node))
        for pod in self._pods.lister.all() if nodes else ():
            if pod.spec.node_name in nodes:
                await self._quietly(self._run_pod(pod))
        self._renewed = {name: at for name, at in self._renewed.items() if name in nodes}

    def _is_unhosted(self, node: Node, now: float) -> bool:
        """Whether no kubelet has renewed the node's lease, for as long as one takes to begin."""
        lease = self._leases.lister.get(Key(LEASES, node.metadata.name))
        if lease is not None and lease.spec.holder_identity != HOLDER:
            self._since.pop(node.metadata.uid, None)
            return False
        return now - self._since.setdefault(node.metadata.uid, now) >= GRACE_S

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except (ApiError, UnknownOutcome) as error:
            log.info("node.not_kept", reason=str(error))

    async def _keep(self, node: Node) -> None:
        name, wall = node.metadata.name, self._clock.wall()
        ready = find_condition(node.status.conditions, "Ready")
        if ready is None or ready.status != "True":
            patch = {"status": {"conditions": [_condition("Ready", *READY, wall)]}}
            await self._client.patch_rv("nodes", Key("", name), patch, subresource="status", patch_type="strategic")
        key, renewed = Key(LEASES, name), {"renewTime": format_micro_time(wall), "holderIdentity": HOLDER}
        try:
            await self._client.patch_rv(LEASE_KIND, key, {"spec": renewed})
        except NotFound:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": LEASES},
                "spec": {**renewed, "leaseDurationSeconds": 40},
            }
            try:
                await self._client.create(LEASE_KIND, lease)
            except AlreadyExists:
                return

    async def _run_pod(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            await self._client.delete("pods", pod.metadata.key, grace_period_s=0, uid=pod.metadata.uid)
        elif pod.status.phase == "Pending":
            wall = self._clock.wall()
            at = format_time(wall)
            states = [
                {
                    "name": each.name,
                    "image": each.image,
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": at}},
                }
                for each in pod.spec.containers
            ]
            conditions = [_condition(each, "", "", wall) for each in ("Initialized", "Ready", "ContainersReady")]
            status = {"phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": states}
            await self._client.patch_rv(
                "pods",
                pod.metadata.key,
                {"status": status},
                subresource="status",
                patch_type="strategic",
                uid=pod.metadata.uid,
            )


def _condition(kind: str, reason: str, message: str, wall: float) -> Document:
    found = {"type": kind, "status": "True", "lastTransitionTime": format_time(wall)}
    return {**found, **({"reason": reason, "message": message} if reason else {})}
