"""ReplicaSets: defaults, and a selector that matches the template and never changes."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Struct
from apiserver_fake.validation.pod.spec import workload_fields

SPEC = Struct(*workload_fields("replicaset", has_history=False))
STRATEGIES = {"replicasets.apps": declared(Struct(Field("spec", default={}, struct=SPEC)), has_status=True)}
