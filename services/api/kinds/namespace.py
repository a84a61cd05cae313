"""Namespace (core/v1); its `spec.finalizers` hold the content's removal (controllers 11)."""

from services.api.meta import AGE, NAME, Column, ObjectMeta, Resource, View


class NamespaceSpec(View, frozen=True):
    """`finalizers` is `["kubernetes"]` until the content is gone."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(View, frozen=True):
    """`phase`: Active or Terminating."""

    phase: str = ""


class Namespace(View, frozen=True):
    """A namespace as components see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


RESOURCE = Resource(
    view=Namespace,
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    has_spec=True,
    columns=(NAME, Column("Status", "status.phase"), AGE),
    selectable_fields={"status.phase": lambda d: d.get("status", {}).get("phase", "")},
)
