"""The IPAddress objects of the Services' addresses (KEP-1880), kept by the API server itself.

Upstream's allocator creates them when it allocates, and its repair loop creates missing ones. Here all of them
follow the Services, which alone decide which address is in use. Source: upstream
`pkg/registry/core/service/ipallocator/ipallocator.go`,
`pkg/registry/core/service/ipallocator/controller/repairip.go`.
"""

import asyncio
from ipaddress import ip_address

import msgspec
import structlog

from apiserver_fake.storage.decoded_records import Decoded
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.meta import Document
from services.api.wire import Api, Request, WatchRequest

SERVICES, ADDRESSES = "services", "ipaddresses.networking.k8s.io"
FAMILY, MANAGED_BY = "ipaddress.kubernetes.io/ip-family", "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"
AGAIN_S = 1.0

log = structlog.get_logger()


def address_object(address: str, namespace: str, name: str) -> Document:
    """Return the IPAddress object for an address of a Service."""
    labels = {FAMILY: f"IPv{ip_address(address).version}", MANAGED_BY: ALLOCATOR}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": labels},
        "spec": {"parentRef": {"group": "", "resource": SERVICES, "namespace": namespace, "name": name}},
    }


class ServiceAddresses:
    """Keeps the IPAddresses of all Services; `run` never returns."""

    def __init__(self, store: Store, api: Api) -> None:
        self._store, self._api = store, api
        self._services, self._addresses = Decoded(store, SERVICES, _cluster_ips), Decoded(store, ADDRESSES, _of_address)

    async def run(self) -> None:
        """Correct the IPAddresses, then follow changes of Services, until cancelled."""
        while True:
            try:
                await self.keep()
                request = WatchRequest(resource=SERVICES, resource_version=str(self._store.rv), allow_bookmarks=False)
                async for _ in self._api.watch(request):
                    await self.keep()
            except ApiError as error:
                log.debug("service_ips.again", reason=str(error))
            await asyncio.sleep(AGAIN_S)

    async def keep(self) -> None:
        """Create missing IPAddresses, and delete those of the allocator that no Service uses any more. Raises:
        ApiError.
        """
        wanted = self._owners_by_address()
        for record, parent in self._addresses:
            if record.name in wanted and parent == wanted[record.name]:
                del wanted[record.name]
            elif record.labels.get(MANAGED_BY) == ALLOCATOR:
                request = Request(verb="delete", resource=ADDRESSES, name=record.name, uid=record.uid)
                response = await self._api.call(request)
                if response.code not in (404, 409):
                    response.unwrap()
            else:
                wanted.pop(record.name, None)  # a client made it
        for address, (namespace, name) in wanted.items():
            body = msgspec.json.encode(address_object(address, namespace, name))
            response = await self._api.call(Request(verb="create", resource=ADDRESSES, body=body))
            if response.code != 409:
                response.unwrap()

    def _owners_by_address(self) -> dict[str, tuple[str, str]]:
        return {
            address: (record.namespace, record.name) for record, addresses in self._services for address in addresses
        }


def _cluster_ips(body: bytes) -> tuple[str, ...]:
    """Return the addresses of a Service."""
    spec = msgspec.json.decode(body)["spec"]
    return tuple(each for each in spec.get("clusterIPs") or [spec.get("clusterIP")] if each and each != "None")


def _of_address(body: bytes) -> tuple[str, str]:
    """Return namespace and name of the Service that an IPAddress says it is of."""
    parent = (msgspec.json.decode(body).get("spec") or {}).get("parentRef") or {}
    return parent.get("namespace") or "", parent.get("name") or ""
