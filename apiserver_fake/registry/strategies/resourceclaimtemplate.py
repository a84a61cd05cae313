"""Templates of claims: checked as the claims made from them will be, and never changed (KEP-4381)."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.claim import CLAIM_SPEC
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, labels, qualified_name


def _keys(annotations: Mapping[str, str], path: str, report: Report) -> Causes:
    for key in annotations:
        yield from qualified_name(path, key.lower())


META = Struct(Field("labels", form=labels), Field("annotations", rule=_keys))
SPEC = Struct(Field("metadata", struct=META), Field("spec", default={}, struct=CLAIM_SPEC))
STRATEGIES = {
    "resourceclaimtemplates.resource.k8s.io": declared(
        Struct(Field("spec", default={}, struct=SPEC, is_immutable=True))
    )
}
