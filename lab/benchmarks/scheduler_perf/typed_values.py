"""Documents as a typed client would send them: quantities are strings, whether a file writes 9 or "9". Pure."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document


def with_text_amounts(document: Document) -> Document:
    """Return a pod, node, volume or claim with its quantities as strings; other kinds unchanged.

    A node without allocatable resources gets its capacity, as by upstream's defaults.
    """
    match document.get("kind"):
        case "Node":
            status = document.get("status")
            _amounts(status, "capacity", "allocatable")
            if isinstance(status, dict) and status.get("capacity"):
                status.setdefault("allocatable", dict(status["capacity"]))
        case "Pod":
            spec = document.get("spec")
            if isinstance(spec, dict):
                _amounts(spec, "overhead")
                _amounts(spec.get("resources"), "requests", "limits")
                for name in ("containers", "initContainers", "ephemeralContainers"):
                    for container in spec.get(name) or ():
                        _amounts(
                            container.get("resources") if isinstance(container, dict) else None, "requests", "limits"
                        )
        case "PersistentVolume":
            _amounts(document.get("spec"), "capacity")
        case "PersistentVolumeClaim":
            spec = document.get("spec")
            _amounts(spec.get("resources") if isinstance(spec, dict) else None, "requests", "limits")
    return document


def _amounts(holder: Any, *names: str) -> None:
    for name in names:
        amounts = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(amounts, dict):
            numbers = {k: v for k, v in amounts.items() if isinstance(v, int | float) and not isinstance(v, bool)}
            amounts.update(
                {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in numbers.items()}
            )
