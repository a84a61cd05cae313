"""CSIStorageCapacities: of one class and one part of the cluster for good; only the amounts change."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import immutable, label_selector, metadata, quantity, required, subdomain
from services.api.meta import Document

_FIXED = ("nodeTopology", "storageClassName")


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    if new.get("storageClassName"):
        causes += subdomain("storageClassName", new["storageClassName"])
    else:
        causes.append(required("storageClassName"))
    for name in ("capacity", "maximumVolumeSize"):
        if new.get(name) is not None:
            causes += quantity(name, "storage", new[name])
    if new.get("nodeTopology"):
        causes += label_selector("nodeTopology", new["nodeTopology"])
    if old is not None:
        for name in _FIXED:
            causes += immutable(name, old.get(name), new.get(name))
    return causes


STRATEGIES = {"csistoragecapacities.storage.k8s.io": Strategy(validate=_validate)}
