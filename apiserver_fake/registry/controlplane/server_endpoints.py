"""Endpoints of the Service `kubernetes` when several API servers share a store: those of the live servers.

Each API server renews a Lease in kube-system (KEP-1965) with the address where it serves, and writes endpoints
for all servers whose Leases are renewed. Upstream keeps such leases beside its objects in etcd for that; the
effect is the same. Source: upstream `pkg/controlplane/reconcilers/lease.go`,
`pkg/controlplane/apiserver/server.go`, `pkg/controlplane/controller/apiserverleasegc/gc_controller.go`.
"""

import asyncio
import hashlib
import platform
import re

import msgspec
import structlog

from apiserver_fake.registry.controlplane.cluster_objects import KUBERNETES, ensure, own_service
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.meta import Document
from services.api.seams import Clock
from services.api.selectors import parse_label_selector
from services.api.times import format_micro_time, parse_time
from services.api.wire import Api, Request

_PORT = re.compile("[0-9]{1,5}", re.ASCII)
LEASES, SLICES = "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io"
NAMESPACE = "kube-system"
IDENTITY = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
ENDPOINT = "keplab.dev/endpoint"
"""Annotation with the address where an API server serves, HOST:PORT."""
RENEW_S, GONE_S = 10.0, 30.0
LEASE_S = 3600
"""Seconds for which a Lease is kept after its last renewal; upstream's `--identity-lease-duration-seconds`."""
AGAIN_S = 1.0

log = structlog.get_logger()


class ServerEndpoints:
    """Keeps this server's Lease and the endpoints of all; `run` never returns."""

    def __init__(self, store: Store, api: Api, clock: Clock, host: str, port: int, new_id: str) -> None:
        """Take the address of this server. `new_id`: an id of this run of the server."""
        self._store, self._api, self._clock = store, api, clock
        self._place, self._id = (host, port), new_id
        self.lease = f"apiserver-{hashlib.sha256(f'{host}:{port}'.encode()).hexdigest()[:26]}"
        self._seen: dict[str, tuple[str, float]] = {}
        """By Lease: when it was renewed by its holder's clock, and when that was first seen by ours."""

    async def run(self) -> None:
        """Renew the Lease and update the endpoints periodically, until cancelled."""
        while True:
            try:
                await self.keep()
                await asyncio.sleep(RENEW_S)
            except ApiError as error:
                log.debug("server_endpoints.again", reason=str(error))
                await asyncio.sleep(AGAIN_S)

    async def keep(self) -> None:
        """Renew the Lease and update the endpoints once. Raises: ApiError."""
        await self._renew()
        endpoints = sorted({self._place, *await self._others()})
        documents = own_service(endpoints)
        for document in documents:
            await ensure(self._api, document, self._clock.wall(), is_current=True)
        names = {document["metadata"]["name"] for document in documents if document["kind"] == "EndpointSlice"}
        chosen = Selection("default", parse_label_selector(f"kubernetes.io/service-name={KUBERNETES}"))
        for record in self._store.select(SLICES, chosen).records:
            if record.name not in names:
                await self._delete(SLICES, "default", record.name)

    async def _renew(self) -> None:
        host, port = self._place
        now = format_micro_time(self._clock.wall())
        spec = {"holderIdentity": f"{self.lease}_{self._id}", "leaseDurationSeconds": LEASE_S, "renewTime": now}
        labels = {**IDENTITY, "kubernetes.io/hostname": platform.node()}
        document: Document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": NAMESPACE,
                "name": self.lease,
                "labels": labels,
                "annotations": {ENDPOINT: f"{host}:{port}"},
            },
            "spec": {**spec, "acquireTime": now},
        }
        if self._store.get(LEASES, NAMESPACE, self.lease) is None:
            await ensure(self._api, document, self._clock.wall())
        body = msgspec.json.encode({"spec": spec})
        request = Request(
            verb="patch", resource=LEASES, namespace=NAMESPACE, name=self.lease, patch_type="merge", body=body
        )
        (await self._api.call(request)).unwrap()

    async def _others(self) -> list[tuple[str, int]]:
        """Return where other servers serve whose Leases were renewed of late, as this one's clock counts."""
        endpoints = []
        now_s = self._clock.now()
        label, value = next(iter(IDENTITY.items()))
        for record in self._store.select(
            LEASES, Selection(NAMESPACE, parse_label_selector(f"{label}={value}"))
        ).records:
            lease = msgspec.json.decode(record.body)
            renewed = (lease.get("spec") or {}).get("renewTime") or ""
            host, _, port = ((lease["metadata"].get("annotations") or {}).get(ENDPOINT) or "").rpartition(":")
            if record.name == self.lease or not host or not _PORT.fullmatch(port):
                continue
            known = self._seen.get(record.name)
            if known is None or known[0] != renewed:
                known = self._seen[record.name] = (renewed, now_s)
            if now_s - known[1] < GONE_S:
                endpoints.append((host, int(port)))
            elif renewed and self._clock.wall() - parse_time(renewed) > LEASE_S:
                await self._delete(LEASES, NAMESPACE, record.name)
        return endpoints

    async def _delete(self, resource: str, namespace: str, name: str) -> None:
        response = await self._api.call(Request(verb="delete", resource=resource, namespace=namespace, name=name))
        if response.code != 404:
            response.unwrap()
