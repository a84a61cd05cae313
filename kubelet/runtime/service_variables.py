"""The variables that name services in a container: `NAME_SERVICE_HOST` and the rest (`enableServiceLinks`). Pure.

Source: upstream `pkg/kubelet/envvars/envvars.go`, `pkg/kubelet/kubelet_pods.go` (getServiceEnvVarMap).
"""

from collections.abc import Iterable
from typing import Final

from services.api.meta import Document

MASTER_NAMESPACE: Final = "default"
MASTER_SERVICES: Final = ("kubernetes",)
"""Services that every container gets variables of, whatever the pod says."""


def linked_services(services: Iterable[Document], namespace: str, *, has_links: bool) -> list[Document]:
    """Return the services whose variables containers of a pod in that namespace get, by name.

    `has_links`: the services of the namespace are among them. If two have the same name, the namespace's own
    counts.
    """
    by_name: dict[str, Document] = {}
    for service in services:
        meta = service["metadata"]
        name, own = meta["name"], meta.get("namespace", "")
        if (service.get("spec") or {}).get("clusterIP", "") in ("", "None"):
            continue
        if own == MASTER_NAMESPACE and name in MASTER_SERVICES:
            by_name.setdefault(name, service)
        elif own == namespace and has_links:
            by_name[name] = service
    return [by_name[name] for name in sorted(by_name)]


def service_variables(services: Iterable[Document]) -> dict[str, str]:
    """Return the variables of services that have an address."""
    variables: dict[str, str] = {}
    for service in services:
        spec, name = service["spec"], _upper(service["metadata"]["name"])
        address, ports = str(spec["clusterIP"]), list(spec.get("ports") or ())
        variables[f"{name}_SERVICE_HOST"] = address
        if ports:
            variables[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
        for port in ports:
            if port.get("name"):
                variables[f"{name}_SERVICE_PORT_{_upper(port['name'])}"] = str(port["port"])
        for place, port in enumerate(ports):
            number, protocol = port["port"], str(port.get("protocol") or "TCP")
            url = f"{protocol.lower()}://{f'[{address}]' if ':' in address else address}:{number}"
            if place == 0:
                variables[f"{name}_PORT"] = url
            prefix = f"{name}_PORT_{number}_{protocol.upper()}"
            variables[prefix] = url
            variables[f"{prefix}_PROTO"] = protocol.lower()
            variables[f"{prefix}_PORT"] = str(number)
            variables[f"{prefix}_ADDR"] = address
    return variables


def _upper(name: str) -> str:
    found = name.replace(".", "_").replace("-", "_").upper()
    return f"_{found}" if found[:1].isdigit() else found
