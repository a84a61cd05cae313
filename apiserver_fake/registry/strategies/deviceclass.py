"""Device classes: may change at any time; what was allocated keeps the configuration it was given (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.device import LIST_MAX, OPAQUE, SELECTORS, beyond
from apiserver_fake.validation.fields import Field, Struct
from services.api.kinds.deviceclass import CLASSES

SPEC = Struct(beyond("extendedResourceName"), SELECTORS, Field("config", most=LIST_MAX, items=Struct(OPAQUE)))
STRATEGIES = {CLASSES: declared(Struct(Field("spec", default={}, struct=SPEC)))}
