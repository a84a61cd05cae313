"""The calls one node makes about its pods: write a status, unbind, read, delete. Each is a task of its own.

What an answer means is the machine's affair; here it is only carried there. Source: kubelet 4; kubelet-unbinding 6.2.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
import structlog

from kubelet.admission.predicates import NodeFacts
from kubelet.agent.host import Host, Tenant
from kubelet.agent.pod_traces import PodTraces
from kubelet.agent.requests import status_request, unbind_request
from kubelet.effects import CallUnbind, ReadNode
from kubelet.kubelet import Kubelet
from kubelet.status.versions import Write
from kubelet.view import KubeletPod, WorkerKey
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.unbind import spelling
from services.api.wire import Api, Request, Response
from services.client.client import Client, delete_request
from services.runtime.config import EXIT_LOCKED, StartError

log = structlog.get_logger()

_POD = msgspec.json.Decoder(KubeletPod)
_NODE = msgspec.json.Decoder(Node)


class Caller(Tenant, Protocol):
    """What the calls need of the node they are made for."""

    kubelet: Kubelet
    traces: PodTraces
    session: str
    api: Api | None
    client: Client | None


class PodCalls:
    """The calls of one node. Invariant: serial status writing is one task at most (kubelet 4)."""

    def __init__(self, host: Host, node: Caller) -> None:
        self._host, self._node = host, node
        self._is_writing = False
        self._spelling = spelling(host.seams.switches)
        self._tokens, self._tokens_at_s = 2 * host.config.status_qps, 0.0
        self.status_writes = self.status_failures = 0

    def _now(self) -> float:
        return self._host.clock.now()

    async def call(self, request: Request) -> Response | None:
        """Return the answer, or None when the outcome is unknown."""
        assert self._node.api is not None
        try:
            return await self._node.api.call(request)
        except UnknownOutcome:
            return None

    # --- statuses ---

    def write_statuses(self) -> None:
        """Write what the machine has to say, unless that is being done already."""
        if self._node.api is None:
            return
        kubelet = self._node.kubelet
        if kubelet.switches.writes_at_once:
            while (write := kubelet.statuses.next_write(self._now())) is not None:
                self._node.spawn(self._write_status(write))
        elif not self._is_writing:
            self._is_writing = True
            self._node.spawn(self._write_serially())

    async def _write_serially(self) -> None:
        """Write one after the other until the API server has everything."""
        try:
            while (write := self._node.kubelet.statuses.next_write(self._now())) is not None:
                if self._host.config.status_qps > 0 and (wait_s := self._spend_token()) > 0:
                    await asyncio.sleep(wait_s)
                await self._write_status(write)
        finally:
            self._is_writing = False
        self._node.drain()  # what turned out to be known already may have been waited for: a delete, a start

    def _spend_token(self) -> float:
        """Take one token of the write rate; return how long to wait for it."""
        qps, now = self._host.config.status_qps, self._now()
        self._tokens = min(2 * qps, self._tokens + (now - self._tokens_at_s) * qps)
        self._tokens_at_s = now
        self._tokens -= 1
        return max(0.0, -self._tokens / qps)

    async def _write_status(self, write: Write) -> None:
        kubelet = self._node.kubelet
        pod = kubelet.shown(write.key)
        if pod is None:
            return
        response = await self.call(status_request(pod, write, self._node.traces.traceparent(write.key)))
        code, reason = _outcome(response)
        self.status_writes += 1
        if not 200 <= code < 300:
            self.status_failures += 1
        kubelet.statuses.status_written(write, code, reason, self._now())
        self._node.drain()

    # --- one pod ---

    async def unbind(self, call: CallUnbind) -> None:
        """Have the pod unbound."""
        node = self._node
        traceparent = node.traces.stage_traceparent(call.key)
        switches = self._host.switches
        request = unbind_request(
            call, node.name, node.session, traceparent, fence=switches.fence, spelling=self._spelling
        )
        response = await self.call(request)
        code, reason = _outcome(response)
        retry_after_s: float | None = None
        names_pod = True
        if response is not None and not response.is_ok:
            error = response.error()
            retry_after_s = error.retry_after_s
            names_pod = error.details.get("name") == call.pod.metadata.name
        node.kubelet.admission.unbind_answered(
            call.key,
            code,
            reason,
            self._now(),
            retry_after_s=retry_after_s,
            names_pod=names_pod,
            jitter=self._host.random.random(),
        )
        node.drain()

    async def read_pod(self, key: WorkerKey, pod: KubeletPod) -> None:
        """Read the pod live, for as long as it takes."""
        assert self._node.client is not None
        found: KubeletPod | None = None
        while True:
            try:
                found = _POD.decode(await self._node.client.get_raw("pods", pod.metadata.key))
                break
            except (ApiError, msgspec.DecodeError) as error:
                if isinstance(error, ApiError) and error.code in (429, 503, 504):
                    await asyncio.sleep(1.0)
                    continue
                break
            except UnknownOutcome:
                await asyncio.sleep(1.0)
        self._node.kubelet.pod_read(key, found, self._now())
        self._node.drain()

    async def delete(self, key: WorkerKey, pod: KubeletPod, grace_s: int | None) -> None:
        """Delete exactly this pod."""
        node = self._node
        assert node.client is not None
        request = delete_request(
            "pods", pod.metadata.key, uid=key.uid, grace_period_s=grace_s, traceparent=node.traces.traceparent(key)
        )
        code = 0
        try:
            code = (await node.client.call(request)).code
        except UnknownOutcome as error:
            log.warning("pod.delete_failed", node=node.name, pod=pod.metadata.name, reason=str(error))
        node.kubelet.statuses.delete_answered(key, code, self._now())
        node.drain()

    # --- what a pod's decision depends on ---

    async def read_node(self, read: ReadNode) -> None:
        """Read the own Node. Raises: StartError when another kubelet opened a session of it."""
        caller = self._node
        assert caller.client is not None
        node: Node | None = None
        try:
            node = _NODE.decode(await caller.client.get_raw("nodes", Key("", caller.name)))
        except (ApiError, UnknownOutcome, msgspec.DecodeError) as error:
            log.warning("node.read_failed", node=caller.name, reason=str(error))
        admission, now = caller.kubelet.admission, self._now()
        if not read.for_session:
            admission.node_read(None if node is None else facts(node), now)
            if node is not None:
                caller.kubelet.node_seen(node, now)
        elif node is None:
            await asyncio.sleep(1.0)
            self._node.spawn(self.read_node(read))
            return
        else:
            theirs = node.status.node_info.kubelet_session
            if theirs != caller.session:
                raise StartError(f"node {caller.name}: another kubelet opened session {theirs}", EXIT_LOCKED)
            admission.session_read(read.key, True, now)
        caller.drain()


def facts(node: Node) -> NodeFacts:
    """Return what admission asks of a Node."""
    return NodeFacts(
        node.metadata.name,
        node.metadata.labels,
        node.spec.taints,
        node.metadata.labels.get("kubernetes.io/os", "linux"),
    )


def _outcome(response: Response | None) -> tuple[int, str]:
    if response is None:
        return 0, ""
    return response.code, "" if response.is_ok else response.error().reason
