"""CSINodes: each driver once; what it said of itself stays, but for how much it can attach."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Struct, unique
from apiserver_fake.validation.formats import Cause, immutable
from services.api.meta import Document

DRIVER = Struct(
    Field("name", required=True),
    unique("name", is_empty_a_key=False),
    Field("nodeID", required=True),
    Field("allocatable", struct=Struct(Field("count", minimum=0))),
)
FIELDS = Struct(Field("spec", struct=Struct(Field("drivers", items=DRIVER))))


def _drivers(document: Document) -> list[Document]:
    return (document.get("spec") or {}).get("drivers") or []


def _keep_what_was_said(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before = {each.get("name"): each for each in _drivers(old)} if old is not None else {}
    return [
        cause
        for index, driver in enumerate(_drivers(new))
        if (was := before.get(driver.get("name"))) is not None
        for name in ("nodeID", "topologyKeys")
        for cause in immutable(f"spec.drivers[{index}].{name}", was.get(name), driver.get(name))
    ]


STRATEGIES = {"csinodes.storage.k8s.io": declared(FIELDS, rules=_keep_what_was_said)}
