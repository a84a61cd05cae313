"""The API calls that one node makes about its pods and their devices.

It writes statuses, unbinds, reads and deletes pods, and creates and deletes mirror pods. For devices it
reads the claims of a pod, and deletes the slices of drivers that are gone. Each call is a task of its own.
The machine decides what an answer means; here the answer is only passed on. Source: kubelet 3.1, 4;
kubelet-unbinding 4.2, 6.2; dra-core 7 (prepare reads live, slices are wiped at start-up and when a driver
is gone).
"""

import asyncio
from contextlib import suppress

import msgspec
import structlog

from kubelet.admission.handler import AdmissionHandler
from kubelet.agent.claim_volumes import volume_of
from kubelet.agent.node import NodeShell
from kubelet.dra.manager import ClaimManager
from kubelet.effects import (
    CallUnbind,
    CreateMirror,
    DeleteMirror,
    DeletePod,
    ReadAttached,
    ReadClaims,
    ReadVolumes,
    WipeSlices,
    WriteStatuses,
)
from kubelet.runtime.volumes import claims_of
from kubelet.static_pods.manager import StaticPodManager
from kubelet.status.manager import StatusManager
from kubelet.status.versions import Write
from kubelet.timers import CALL_DEADLINE_S
from kubelet.unbind.unbinding import UnbindAnswer, unbind_body
from kubelet.view import KubeletPod
from kubelet.volumes.manager import VolumeManager
from services.api.errors import UNREADABLE, ApiError, NotFound, UnknownOutcome
from services.api.kinds.csidriver import DRIVERS, CSIDriver
from services.api.kinds.node import Node
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key
from services.api.unbind import UnbindSwitches
from services.api.wire import Request, Response, encode
from services.client.client import delete_request

log = structlog.get_logger()

SLICES_RETRY_MIN_S, SLICES_RETRY_MAX_S = 1.0, 300.0
_NODE, _DRIVER = msgspec.json.Decoder(Node), msgspec.json.Decoder(CSIDriver)
_POD, _CLAIM = msgspec.json.Decoder(KubeletPod), msgspec.json.Decoder(ResourceClaim)


class PodCalls:
    """The calls of one node. Invariant: at most one task writes statuses serially (kubelet 4)."""

    def __init__(
        self,
        node: NodeShell,
        statuses: StatusManager,
        admission: AdmissionHandler,
        static_pods: StaticPodManager,
        claims: ClaimManager,
        volumes: VolumeManager | None = None,
    ) -> None:
        self._node, self._statuses, self._admission, self._static_pods = node, statuses, admission, static_pods
        self._claims, self._volumes = claims, volumes
        self._is_writing = False
        self._writes_at_once = node.switches.writes_at_once
        self._spelling = node.host.seams.switches.of(UnbindSwitches).spelling
        self._qps = node.host.config.status_qps
        self._tokens, self._tokens_at_s = 2 * self._qps, 0.0
        self.status_writes = self.status_failures = 0

    def write_statuses(self, effect: WriteStatuses) -> None:
        """Write the pending statuses, unless a write is under way already."""
        if self._node.api is None:
            return
        if self._writes_at_once:
            while (write := self._statuses.next_write(self._node.now())) is not None:
                self._node.spawn(self._write_status(write))
        elif not self._is_writing:
            self._is_writing = True
            self._node.spawn(self._write_serially())

    async def _write_serially(self) -> None:
        """Write one after the other until the API server has everything."""
        try:
            while (write := self._statuses.next_write(self._node.now())) is not None:
                if self._qps > 0 and (wait_s := self._spend_token()) > 0:
                    await asyncio.sleep(wait_s)
                await self._write_status(write)
        finally:
            self._is_writing = False
        self._node.drain()  # what turned out to be known already may have been waited for: a delete, a start

    def _spend_token(self) -> float:
        """Take one token of the write rate; return how long to wait for it."""
        now = self._node.now()
        self._tokens = min(2 * self._qps, self._tokens + (now - self._tokens_at_s) * self._qps) - 1
        self._tokens_at_s = now
        return max(0.0, -self._tokens / self._qps)

    async def _write_status(self, write: Write) -> None:
        pod = self._statuses.shown(write.key)
        if pod is None:
            return
        request = Request(
            verb="patch",
            resource="pods",
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            subresource="status",
            patch_type="strategic",
            uid=write.uid,
            body=encode(write.patch),
            traceparent=self._node.traces.traceparent(write.key),
            field_manager="kubelet",
            deadline_s=CALL_DEADLINE_S,
        )
        code, reason = _outcome(await self._node.call(request))
        self.status_writes += 1
        if not 200 <= code < 300:
            self.status_failures += 1
        self._statuses.status_written(write, code, reason, self._node.now())
        self._node.drain()

    async def unbind(self, call: CallUnbind) -> None:
        """Unbind the pod from its node, in the name of the kubelet's current session."""
        node, switches = self._node, self._node.switches
        verb, subresource = self._spelling
        body = unbind_body(call.pod, call.key, node.name, node.session, call.reason, call.message, fence=switches.fence)
        request = Request(
            verb=verb,
            resource="pods",
            namespace=call.pod.metadata.namespace,
            name=call.pod.metadata.name,
            subresource=subresource,
            uid=call.key.uid,
            body=encode(body),
            traceparent=node.traces.stage_traceparent(call.key),
            deadline_s=CALL_DEADLINE_S,
        )
        response = await node.call(request)
        code, reason = _outcome(response)
        error = None if response is None or response.is_ok else response.error()
        answer = UnbindAnswer(
            code,
            reason,
            retry_after_s=None if error is None else error.retry_after_s,
            names_pod=error is None or error.details.get("name") == call.pod.metadata.name,
            jitter=node.host.random.random(),
        )
        self._admission.unbind_answered(call.key, answer, node.now())
        node.drain()

    async def read(self, name: Key) -> KubeletPod | None:
        """Read a pod live, however long it takes; None: it does not exist or the node may not read it."""
        while True:
            try:
                return _POD.decode(await self._node.client.get_raw("pods", name))
            except UnknownOutcome:
                pass
            except (ApiError, *UNREADABLE) as error:
                if not isinstance(error, ApiError) or error.code not in (429, 503, 504):
                    return None
            await asyncio.sleep(1.0)

    async def delete(self, wanted: DeletePod) -> None:
        """Delete exactly this pod."""
        node, name, code = self._node, wanted.pod.metadata.key, 0
        traceparent = node.traces.traceparent(wanted.key)
        try:
            request = delete_request(
                "pods", name, uid=wanted.key.uid, grace_period_s=wanted.grace_s, traceparent=traceparent
            )
            code = (await node.client.call(request)).code
        except UnknownOutcome as error:
            log.warning("pod.delete_failed", node=node.name, pod=name.name, reason=str(error))
        self._statuses.delete_answered(wanted.key, code, node.now())
        node.drain()

    async def create_mirror(self, wanted: CreateMirror) -> None:
        """Create the mirror pod and report the outcome."""
        try:
            await self._node.client.create("pods", wanted.document, namespace=wanted.name.namespace)
            code = 201
        except ApiError as error:
            log.warning("mirror.create_failed", node=self._node.name, pod=wanted.name.name, reason=str(error))
            code = error.code
        except UnknownOutcome:
            code = 0
        self._mirror_answered(wanted.name, code)

    async def delete_mirror(self, wanted: DeleteMirror) -> None:
        """Delete exactly this mirror pod; one that is gone already counts as deleted."""
        meta = wanted.pod.metadata
        try:
            code = (await self._node.client.call(delete_request("pods", meta.key, uid=meta.uid, grace_period_s=0))).code
        except UnknownOutcome:
            code = 0
        self._mirror_answered(meta.key, code)

    def _mirror_answered(self, name: Key, code: int) -> None:
        self._static_pods.on_answer(name, code, self._node.now())
        self._node.drain()

    async def read_claims(self, wanted: ReadClaims) -> None:
        """Read the claims live, and hand them, or the error, to the machine."""
        claims: list[ResourceClaim] = []
        problem = ""
        for name in wanted.names:
            key = Key(wanted.pod.metadata.namespace, name)
            try:
                claims.append(_CLAIM.decode(await self._node.client.get_raw(CLAIMS, key)))
            except (ApiError, UnknownOutcome, *UNREADABLE) as error:
                problem = f"fetch ResourceClaim {name}: {error}"
                break
        self._claims.claims_read(wanted.key, wanted.pod, problem or claims, self._node.now())
        self._node.drain()

    async def read_volumes(self, wanted: ReadVolumes) -> None:
        """Read which volumes the pod's claims are bound to.

        The machine gets the names of the attached volumes, or the error.
        """
        volume_names: dict[Key, str] = {}
        problem = ""
        for claim in claims_of(wanted.pod):
            try:
                volume = await volume_of(self._node.client, claim)
                if volume.spec.csi is not None and await self._is_attached(volume.spec.csi.driver):
                    volume_names[claim] = volume.unique_name
            except (ApiError, UnknownOutcome, *UNREADABLE, ValueError) as error:
                problem = f"error processing PVC {claim}: {error}"
                break
        assert self._volumes is not None
        self._volumes.volumes_read(wanted.key, problem or volume_names, self._node.now())
        self._node.drain()

    async def _is_attached(self, driver: str) -> bool:
        """Whether the controller attaches volumes of this CSI driver; it does when there is no CSIDriver."""
        try:
            found = _DRIVER.decode(await self._node.client.get_raw(DRIVERS, Key("", driver)))
        except NotFound:
            return True
        return found.spec.attach_required

    async def read_attached(self, wanted: ReadAttached) -> None:
        """Read which volumes are attached to the node."""
        assert self._volumes is not None
        try:
            node = _NODE.decode(await self._node.client.get_raw("nodes", Key("", self._node.name)))
            self._volumes.node_read(node, self._node.now())
        except (ApiError, UnknownOutcome, *UNREADABLE) as error:
            log.warning("node.read_failed", node=self._node.name, reason=str(error))
        self._volumes.look_again(wanted.key, self._node.now())
        self._node.drain()

    async def wipe_slices(self, wanted: WipeSlices | None = None) -> None:
        """Delete the slices of these drivers (None: of all drivers); retry until the API server has done it."""
        selectors = [f"spec.nodeName={self._node.name}"]
        if wanted is not None:
            selectors = [f"{selectors[0]},spec.driver={driver}" for driver in wanted.drivers]
        delay_s = SLICES_RETRY_MIN_S
        while selectors:
            try:
                await self._wipe(selectors[0])
                selectors.pop(0)
            except (ApiError, UnknownOutcome) as error:
                log.warning("slices.not_wiped", node=self._node.name, selector=selectors[0], reason=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, SLICES_RETRY_MAX_S)

    async def _wipe(self, selector: str) -> None:
        own, _, driver = selector.partition(",spec.driver=")
        items, _ = await self._node.client.list(SLICES, field_selector=own)
        for item in items:
            if not driver or item["spec"]["driver"] == driver:
                meta = item["metadata"]
                with suppress(NotFound):
                    await self._node.client.delete(SLICES, Key("", meta["name"]), uid=meta["uid"])
        data = {"drivers": driver or "all", "slices": len(items)}
        self._node.host.seams.events.write("kubelet.slices_wiped", node=self._node.name, data=data)


def _outcome(response: Response | None) -> tuple[int, str]:
    if response is None:
        return 0, ""
    return response.code, "" if response.is_ok else response.error().reason
