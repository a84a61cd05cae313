"""NodeResourceTopologies: each zone once, amounts that can be read."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import duplicate, invalid, metadata, required
from services.api.meta import Document
from services.api.quantity import amount


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    seen: set[str] = set()
    for index, zone in enumerate(new.get("zones") or ()):
        at, name = f"zones[{index}]", zone.get("name") or ""
        if not name:
            causes.append(required(f"{at}.name"))
        elif name in seen:
            causes.append(duplicate(f"{at}.name", name))
        seen.add(name)
        for place, resource in enumerate(zone.get("resources") or ()):
            causes += _amounts(resource, f"{at}.resources[{place}]")
    return causes


def _amounts(resource: Document, at: str) -> list[Cause]:
    causes: list[Cause] = []
    if not resource.get("name"):
        causes.append(required(f"{at}.name"))
    for field in ("capacity", "allocatable", "available"):
        text = str(resource.get(field) or "0")
        try:
            amount(str(resource.get("name") or ""), text)
        except ValueError as error:
            causes.append(invalid(f"{at}.{field}", text, str(error)))
    return causes


STRATEGIES = {"noderesourcetopologies.topology.node.k8s.io": Strategy(validate=_validate)}
