"""Storage classes: who provisions and how is fixed; where may change."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Struct, not_repeated, unique
from apiserver_fake.validation.formats import Cause, qualified_name
from apiserver_fake.validation.storage import STORAGE_CLASSES
from services.api.kinds.storageclass import IMMEDIATE, WAIT_FOR_FIRST_CONSUMER


def _provisioner(path: str, name: str) -> list[Cause]:
    return qualified_name(path, name.lower())


EXPRESSION = Struct(
    Field("key", missing="", form=qualified_name),
    Field("values", required=True, missing=[]),
    unique("key"),
    Field("values", items=Field(rule=not_repeated)),
)
FIELDS = Struct(
    Field("parameters", is_immutable="updates to parameters are forbidden."),
    Field("provisioner", required=True, form=_provisioner, is_immutable="updates to provisioner are forbidden."),
    Field(
        "reclaimPolicy",
        default="Delete",
        is_blank_absent=True,
        enum=("Delete", "Retain"),
        is_immutable="updates to reclaimPolicy are forbidden.",
    ),
    Field(
        "volumeBindingMode",
        default=IMMEDIATE,
        is_blank_absent=True,
        enum=(IMMEDIATE, WAIT_FOR_FIRST_CONSUMER),
        is_immutable=True,
    ),
    Field("allowedTopologies", items=Struct(Field("matchLabelExpressions", items=EXPRESSION))),
)
STRATEGIES = {STORAGE_CLASSES: declared(FIELDS)}
