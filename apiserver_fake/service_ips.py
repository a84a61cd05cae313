"""An IPAddress for each address that a Service has (KEP-1880), kept by the API server itself.

Upstream's allocator makes them as it allocates, and its repair loop those that are missing; here all follow the
Services, which alone decide who has which address. Source: upstream
`pkg/registry/core/service/ipallocator/ipallocator.go`, `pkg/registry/core/service/ipallocator/controller/repairip.go`.
"""

import asyncio
from ipaddress import ip_address

import msgspec
import structlog

from apiserver_fake.storage.records import Selection
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
    """Return the IPAddress of an address that a Service has."""
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

    async def run(self) -> None:
        """Put right what is there, then follow the Services, until cancelled."""
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
        """Make what is missing, and remove what the allocator made of no Service's any more. Raises: ApiError."""
        wanted = self._wanted()
        for record in self._store.select(ADDRESSES, Selection()).records:
            found = msgspec.json.decode(record.body)
            if record.name in wanted and _parent(found) == wanted[record.name]:
                del wanted[record.name]
            elif (found["metadata"].get("labels") or {}).get(MANAGED_BY) == ALLOCATOR:
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

    def _wanted(self) -> dict[str, tuple[str, str]]:
        found = {}
        for record in self._store.select(SERVICES, Selection()).records:
            spec = msgspec.json.decode(record.body)["spec"]
            for address in spec.get("clusterIPs") or [spec.get("clusterIP")]:
                if address and address != "None":
                    found[address] = (record.namespace, record.name)
        return found


def _parent(document: Document) -> tuple[str, str]:
    parent = (document.get("spec") or {}).get("parentRef") or {}
    return parent.get("namespace") or "", parent.get("name") or ""
