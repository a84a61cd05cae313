"""KWOK's kinds besides Stage: which are known and not read, and which ask for what is never done. Pure.

Source: simulator 5.4.
"""

import ipaddress
from typing import Any, Final

KINDS: Final = frozenset(
    f"{scope}{kind}"
    for scope in ("", "Cluster")
    for kind in ("Logs", "Attach", "PortForward", "ResourceUsage", "Exec", "Metric")
) - {"ClusterMetric"}
_NEVER: Final = "it would run a command on this machine, which keplab never does"


def why_not(document: dict[str, Any]) -> str:
    """Return why a document of one of these kinds cannot be used: what of it is refused, or that it is not read."""
    kind = str(document["kind"])
    spec = document.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind.endswith("Exec"):
        for number, each in _entries(spec, "execs"):
            if each.get("local") is not None:
                return f"spec.execs[{number}].local: {_NEVER}"
    if kind.endswith("PortForward"):
        for number, each in _entries(spec, "forwards"):
            if each.get("command"):
                return f"spec.forwards[{number}].command: {_NEVER}"
            target = each.get("target")
            address = str(target.get("address") or "") if isinstance(target, dict) else ""
            if address and not _is_loopback(address):
                return f"spec.forwards[{number}].target.address {address!r}: want a loopback address"
    return f"{kind} is not read; Stage is"


def _entries(spec: dict[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    found = spec.get(name)
    return [(n, each) for n, each in enumerate(found) if isinstance(each, dict)] if isinstance(found, list) else []


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
