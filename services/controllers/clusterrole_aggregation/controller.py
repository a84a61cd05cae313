"""Give a ClusterRole with an `aggregationRule` the rules of every ClusterRole that one of its selectors
selects.

It also declares that Roles and bindings are read here. The garbage collector and the namespace controller,
which read all kinds alike, therefore know them too.
Source: upstream `pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go`.
"""

from collections.abc import Iterable
from typing import Any

from services.api.kinds.clusterrole import ClusterRole
from services.api.kinds.clusterrolebinding import ClusterRoleBinding
from services.api.kinds.role import Role
from services.api.kinds.rolebinding import RoleBinding
from services.api.meta import Key
from services.api.selectors import from_label_selector
from services.reconcile.actions import NOTHING, Patch, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

RESOURCE = "clusterroles.rbac.authorization.k8s.io"


def role_changed(change: Change[ClusterRole], listers: Listers) -> Iterable[Key]:
    """Return every aggregated role; their reconcile decides which of them select this one."""
    return [role.metadata.key for role in listers.of(ClusterRole).all() if role.aggregation_rule is not None]


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Collect the rules in the order of the roles' names, without duplicates, and write them when they differ."""
    role = listers.of(ClusterRole).get(key)
    if role is None or role.aggregation_rule is None:
        return NOTHING
    rules: list[dict[str, Any]] = []
    everyone = sorted(listers.of(ClusterRole).all(), key=lambda each: each.metadata.name)
    for selector in map(from_label_selector, role.aggregation_rule.cluster_role_selectors):
        for other in everyone:
            if other.metadata.name != key.name and selector.matches(other.metadata.labels):
                rules += [rule for rule in other.rules or () if rule not in rules]
    if rules == list(role.rules or ()):
        return NOTHING
    return Result((Patch(RESOURCE, key, {"rules": rules}, uid=role.metadata.uid),))


CONTROLLER = Registration(
    "clusterrole-aggregation-controller",
    lambda _: Controller(
        "clusterrole-aggregation-controller",
        ClusterRole,
        reconcile,
        watches=(Watch(ClusterRole, role_changed),),
        reads=(ClusterRoleBinding, Role, RoleBinding),
    ),
    start_order=90,
    by_default=False,
)
