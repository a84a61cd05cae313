"""ClusterRole: permissions that bindings give to subjects (rbac.authorization.k8s.io/v1).

A ClusterRoleBinding gives them in every namespace, a RoleBinding in one.
"""

from typing import Any

from services.api.kinds.role import CREATED
from services.api.meta import NAME, LabelSelector, ObjectView, Resource, View


class AggregationRule(View, frozen=True):
    """Label selectors of ClusterRoles; a role takes its rules from every ClusterRole that one of them selects."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(ObjectView, frozen=True):
    """A ClusterRole as components see it; `rules` are copied as they are."""

    rules: tuple[dict[str, Any], ...] | None = None
    aggregation_rule: AggregationRule | None = None


RESOURCE = Resource(
    ClusterRole, "rbac.authorization.k8s.io", namespaced=False, is_of_clients=True, columns=(NAME, CREATED)
)
