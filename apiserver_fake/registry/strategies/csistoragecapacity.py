"""CSIStorageCapacities: of one class and one part of the cluster for good; only the amounts change."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Struct, amount_of
from apiserver_fake.validation.formats import label_selector, subdomain

FIELDS = Struct(
    Field("nodeTopology", is_immutable=True),
    Field("storageClassName", required=True, form=subdomain, is_immutable=True),
    Field("capacity", rule=amount_of("storage")),
    Field("maximumVolumeSize", rule=amount_of("storage")),
    Field("nodeTopology", form=label_selector),
)
STRATEGIES = {"csistoragecapacities.storage.k8s.io": declared(FIELDS)}
