"""Service accounts: nothing but the rules that all objects share."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Struct

STRATEGIES = {"serviceaccounts": declared(Struct())}
