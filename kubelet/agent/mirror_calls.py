"""The calls one node makes about the mirrors of its static pods. Each is a task of its own.

Source: kubelet 3.1.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from kubelet.agent.host import Host, Tenant
from kubelet.effects import CreateMirror, DeleteMirror
from kubelet.kubelet import Kubelet
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Key
from services.client.client import Client, delete_request

log = structlog.get_logger()


class Owner(Tenant, Protocol):
    """What the calls need of the node they are made for."""

    kubelet: Kubelet
    client: Client | None


class MirrorCalls:
    """Makes and removes mirrors in the node's name."""

    def __init__(self, host: Host, node: Owner) -> None:
        self._host, self._node = host, node

    async def create(self, effect: CreateMirror) -> None:
        """Create the mirror; whatever comes of it is reported."""
        assert self._node.client is not None
        try:
            await self._node.client.create("pods", effect.document, namespace=effect.name.namespace)
            code = 201
        except ApiError as error:
            log.warning("mirror.create_failed", node=self._node.name, pod=effect.name.name, reason=str(error))
            code = error.code
        except UnknownOutcome:
            code = 0
        self._answered(effect.name, code)

    async def delete(self, effect: DeleteMirror) -> None:
        """Delete exactly this mirror; that it is gone already is as good."""
        assert self._node.client is not None
        meta = effect.pod.metadata
        try:
            code = (await self._node.client.call(delete_request("pods", meta.key, uid=meta.uid, grace_period_s=0))).code
        except UnknownOutcome:
            code = 0
        self._answered(meta.key, code)

    def _answered(self, name: Key, code: int) -> None:
        self._node.kubelet.static_pods.mirrors.answered(name, code, self._host.clock.now())
        self._node.drain()
