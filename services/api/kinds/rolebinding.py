"""RoleBinding: gives subjects the permissions of a Role or ClusterRole in one namespace
(rbac.authorization.k8s.io/v1).
"""

from services.api.meta import AGE, NAME, Cell, Column, Document, ObjectView, Resource


class RoleBinding(ObjectView, frozen=True):
    """A RoleBinding as components see it: metadata only."""


def _role(document: Document, now: float) -> str:
    role = document.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(document: Document, now: float) -> str:
        found = [each for each in document.get("subjects") or () if each.get("kind") == kind]
        names = [f"{each.get('namespace', '')}/{each['name']}" if kind == ACCOUNT else each["name"] for each in found]
        return ", ".join(names)

    return cell


ACCOUNT = "ServiceAccount"
COLUMNS = (
    NAME,
    Column("Role", _role),
    AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects(ACCOUNT), priority=1),
)
RESOURCE = Resource(RoleBinding, "rbac.authorization.k8s.io", is_of_clients=True, columns=COLUMNS)
