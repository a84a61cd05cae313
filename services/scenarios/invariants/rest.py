"""What a mesh at rest must look like (I20, I28), judged from what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.api.meta import Document


def unrest_of(documents: Mapping[str, Iterable[Document]]) -> list[tuple[str, str]]:
    """Return what keeps a mesh from rest (I20): `(kind ns/name, the two numbers that disagree)` a workload.

    `documents`: what is stored by resource. Only for stories whose workloads can be satisfied; that pods
    have settled and nothing moves any more is for who waits for rest to see (`services.chaos.run`).
    """
    found = []
    for resource in ("replicasets.apps", "deployments.apps"):
        for document in documents.get(resource, ()):
            wanted = document["spec"].get("replicas", 1)
            ready = document.get("status", {}).get("readyReplicas", 0)
            if wanted != ready:
                found.append((_name(document), f"{ready} of {wanted} replicas are ready at rest"))
    return found


def _name(document: Document) -> str:
    meta = document["metadata"]
    return f"{document['kind']} {meta.get('namespace', '')}/{meta['name']}"
