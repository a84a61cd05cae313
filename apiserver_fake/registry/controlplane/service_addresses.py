"""The address of a Service that a webhook names: its ExternalName, or a ready endpoint.

The emulated network has no cluster IPs that a process could connect to, so a webhook is called at its endpoint,
as kube-apiserver does with `--enable-aggregator-routing`. Source: upstream
`staging/src/k8s.io/apiserver/pkg/util/proxy/proxy.go`.
"""

from typing import Any

import msgspec

from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.meta import Document
from services.api.selectors import parse_label_selector

SLICES = "endpointslices.discovery.k8s.io"
SERVICE_LABEL = "kubernetes.io/service-name"


def address_of(store: Store, namespace: str, name: str, port: int) -> tuple[str, int]:
    """Return the host and port of a Service's port. Raises: LookupError with upstream's text for the reason."""
    record = store.get("services", namespace, name)
    if record is None:
        raise LookupError(f'service "{name}" not found')
    service: Document = msgspec.json.decode(record.body)
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName")), port
    wanted = next((each for each in spec.get("ports") or () if each.get("port") == port), None)
    if wanted is None:
        raise LookupError(f'no service port {port} found for service "{name}"')
    chosen = Selection(namespace, parse_label_selector(f"{SERVICE_LABEL}={name}"))
    for slice_record in store.select(SLICES, chosen).records:
        reached = _endpoint(msgspec.json.decode(slice_record.body), wanted)
        if reached is not None:
            return reached
    raise LookupError(f'no endpoints available for service "{name}"')


def _endpoint(slice_: Document, wanted: Document) -> tuple[str, int] | None:
    ports: list[Any] = [
        each.get("port") for each in slice_.get("ports") or () if (each.get("name") or "") == (wanted.get("name") or "")
    ]
    for endpoint in slice_.get("endpoints") or ():
        is_ready = (endpoint.get("conditions") or {}).get("ready") is not False
        if is_ready and ports and endpoint.get("addresses"):
            return str(endpoint["addresses"][0]), int(ports[0])
    return None
