"""The objects every cluster has from its first start; the server creates those that are missing."""

from apiserver_fake.registry.admission.priority import PRIORITY_CLASSES, SYSTEM_CLASSES
from services.api.meta import Document

_WHY = ("run in the cluster, but can be moved to another node if necessary", "not be moved from their current node")
FIRST_OBJECTS: tuple[tuple[str, Document], ...] = (
    *(
        ("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("default", "kube-system", "kube-public", "kube-node-lease")
    ),
    *(
        (
            PRIORITY_CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": f"Used for pods that must {why}.",
            },
        )
        for (name, value), why in zip(SYSTEM_CLASSES.items(), _WHY, strict=True)
    ),
)
