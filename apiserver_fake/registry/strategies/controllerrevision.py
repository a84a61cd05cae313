"""ControllerRevisions: they have data, and it never changes; only their number may."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Struct

FIELDS = Struct(
    Field("data", required="data is mandatory", is_immutable=True),
    Field("revision", minimum=0),
)
STRATEGIES = {"controllerrevisions.apps": declared(FIELDS)}
