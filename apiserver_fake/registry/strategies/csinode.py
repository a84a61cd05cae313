"""CSINodes: each driver once; what it said of itself stays, but for how much it can attach."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import duplicate, immutable, metadata, not_negative, required
from services.api.meta import Document

_FIXED = ("nodeID", "topologyKeys")


def _drivers(document: Document) -> list[Document]:
    return (document.get("spec") or {}).get("drivers") or []


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    before = {each.get("name"): each for each in _drivers(old)} if old is not None else {}
    seen: set[str] = set()
    for index, driver in enumerate(_drivers(new)):
        at, name = f"spec.drivers[{index}]", driver.get("name") or ""
        if not name:
            causes.append(required(f"{at}.name"))
        elif name in seen:
            causes.append(duplicate(f"{at}.name", name))
        seen.add(name)
        if not driver.get("nodeID"):
            causes.append(required(f"{at}.nodeID"))
        causes += not_negative(f"{at}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
        was = before.get(name)
        if was is not None:
            for field in _FIXED:
                causes += immutable(f"{at}.{field}", was.get(field), driver.get(field))
    return causes


STRATEGIES = {"csinodes.storage.k8s.io": Strategy(validate=_validate)}
