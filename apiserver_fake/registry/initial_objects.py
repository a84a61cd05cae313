"""The objects every cluster has from its first start; the server creates those that are missing."""

from __future__ import annotations

from services.api.meta import Document

FIRST_OBJECTS: tuple[tuple[str, Document], ...] = (
    *(
        ("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("default", "kube-system", "kube-public", "kube-node-lease")
    ),
    *(
        (
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": text,
            },
        )
        for name, value, text in (
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "Used for pods that must not be moved from their current node.",
            ),
        )
    ),
)
