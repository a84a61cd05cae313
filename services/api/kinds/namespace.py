"""Namespace (core/v1); `spec.finalizers` keep it until its content is removed (controllers 11)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View


class NamespaceSpec(View, frozen=True):
    """Spec of a namespace. `finalizers` is `["kubernetes"]` until the content is gone."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(View, frozen=True):
    """Status of a namespace. `phase`: Active or Terminating."""

    phase: str = ""


class Namespace(ObjectView, frozen=True):
    """A namespace as components see it."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


RESOURCE = Resource(
    Namespace,
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    columns=(NAME, Column("Status", "status.phase"), AGE),
    selectable_fields={"status.phase": lambda d: d.get("status", {}).get("phase", "")},
)
