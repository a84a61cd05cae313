"""Taints of devices, tolerations of requests, and the rules by which administrators taint devices (KEP-5055)."""

from apiserver_fake.registry.validation.devices.names import driver_name, pool_name
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, invalid, label, label_value, qualified_name
from services.api.meta import Document

TAINTS_MAX, TOLERATIONS_MAX, CONDITIONS_MAX = 16, 16, 8
EFFECTS = ("NoExecute", "NoSchedule", "None")
OPERATORS = ("Equal", "Exists")

TAINT = Struct(
    Field("key", missing="", form=qualified_name),
    Field("value", form=label_value),
    Field("effect", required=True, enum=EFFECTS),
)


def _value(toleration: Document, at: str, report: Report) -> Causes:
    operator, value = toleration.get("operator"), toleration.get("value") or ""
    if operator == "Exists" and value:
        yield invalid(f"{at}value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from label_value(f"{at}value", value)


TOLERATION = Struct(
    Field("key", form=qualified_name),
    Field("operator", default="Equal", is_blank_absent=True, enum=OPERATORS),
    _value,
    Field("effect", is_blank_absent=True, enum=EFFECTS),
)
TOLERATIONS = Field("tolerations", most=TOLERATIONS_MAX, items=TOLERATION)


TAINT_RULE_SPEC = Struct(
    Field(
        "deviceSelector",
        struct=Struct(
            Field("driver", rule=lambda value, path, report: driver_name(path, value)),
            Field("pool", rule=lambda value, path, report: pool_name(path, value)),
            Field("device", rule=lambda value, path, report: label(path, value)),
        ),
    ),
    Field("taint", missing={}, struct=TAINT),
)
"""Field table of a taint rule's spec. An empty selector field is an error; an absent one selects everything."""
