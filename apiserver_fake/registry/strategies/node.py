"""Nodes: taints that make sense, quantities that parse; the creator may bring a first status."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext, keep_status
from apiserver_fake.validation.fields import Field, Struct, not_repeated, quantities, unique
from apiserver_fake.validation.formats import label_value, qualified_name
from apiserver_fake.validation.pod.placement import EFFECTS
from services.api.meta import Document

POLICY = "podPreemptionPolicy"
TAINT = Struct(
    Field("key", missing="", form=qualified_name),
    Field("value", form=label_value),
    Field("effect", required=True, enum=EFFECTS),
    unique("key", "effect"),
)
OWNER = Field(missing="", form=qualified_name, rule=not_repeated)
SPEC = Struct(
    Field("taints", most=200, items=TAINT),
    Field(POLICY, struct=Struct(Field("disableResizePreemption", most=20, items=OWNER))),
)
STATUS = Struct(
    Field("capacity", rule=quantities),
    Field("allocatable", rule=quantities),
    Field("conditions", most=64),
)
FIELDS = Struct(Field("spec", default={}, struct=SPEC), Field("status", default={}, struct=STATUS))


def _drop_unknown_policy(new: Document, ctx: WriteContext) -> None:
    """Leave out what the feature gate does not know; what is stored already stays (KEP-5836)."""
    if POLICY in new["spec"] and not ctx.switches.resize_preemption:
        new["spec"] = {name: value for name, value in new["spec"].items() if name != POLICY}


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if POLICY not in (old.get("spec") or {}):
        _drop_unknown_policy(new, ctx)


STRATEGIES = {"nodes": declared(FIELDS, on_create=_drop_unknown_policy, on_update=_update, status=STATUS)}
