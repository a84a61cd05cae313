"""ClusterRoleBinding: lets subjects do everywhere what a ClusterRole says (rbac.authorization.k8s.io/v1)."""

from services.api.kinds.rolebinding import COLUMNS
from services.api.meta import ObjectView, Resource


class ClusterRoleBinding(ObjectView, frozen=True):
    """A ClusterRoleBinding as components see it: that it is there."""


RESOURCE = Resource(
    ClusterRoleBinding, "rbac.authorization.k8s.io", namespaced=False, is_of_clients=True, columns=COLUMNS
)
