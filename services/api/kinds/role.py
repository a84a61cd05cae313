"""Role: permissions that bindings give to subjects in one namespace (rbac.authorization.k8s.io/v1)."""

from services.api.meta import NAME, Column, ObjectView, Resource


class Role(ObjectView, frozen=True):
    """A Role as components see it: metadata only."""


CREATED = Column("Created At", "metadata.creationTimestamp", "date")
RESOURCE = Resource(Role, "rbac.authorization.k8s.io", is_of_clients=True, columns=(NAME, CREATED))
