"""ClusterRoleBinding: gives subjects the permissions of a ClusterRole everywhere (rbac.authorization.k8s.io/v1)."""

from services.api.kinds.rolebinding import COLUMNS
from services.api.meta import ObjectView, Resource


class ClusterRoleBinding(ObjectView, frozen=True):
    """A ClusterRoleBinding as components see it: metadata only."""


RESOURCE = Resource(
    ClusterRoleBinding, "rbac.authorization.k8s.io", namespaced=False, is_of_clients=True, columns=COLUMNS
)
