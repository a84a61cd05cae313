"""CustomResourceDefinition (apiextensions.k8s.io/v1): a kind that an object defines while the server runs."""

from services.api.meta import Condition, ObjectView, Resource, View, condition_status

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class CustomResourceDefinitionNames(View, frozen=True):
    """Names of the kind in addresses, documents and commands."""

    plural: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    kind: str = ""
    list_kind: str = ""
    categories: tuple[str, ...] = ()


class CustomResourceDefinitionVersion(View, frozen=True):
    """One version of the kind; objects are stored in the one with `storage`."""

    name: str = ""
    served: bool = False
    storage: bool = False


class CustomResourceDefinitionSpec(View, frozen=True):
    """Spec of a definition. `scope`: Namespaced or Cluster."""

    group: str = ""
    names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    scope: str = ""
    versions: tuple[CustomResourceDefinitionVersion, ...] = ()


class CustomResourceDefinitionStatus(View, frozen=True):
    """Status of a definition. `acceptedNames`: the names it is served under; `storedVersions`: versions in which
    objects may be stored.
    """

    conditions: tuple[Condition, ...] = ()
    accepted_names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    stored_versions: tuple[str, ...] = ()


class CustomResourceDefinition(ObjectView, frozen=True):
    """A definition as components see it."""

    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def is_established(self) -> bool:
        """Whether the kind is served."""
        return condition_status(self.status.conditions, "Established") == "True"


RESOURCE = Resource(
    CustomResourceDefinition,
    group="apiextensions.k8s.io",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    has_generation=True,
)


def defined_resource(definition: CustomResourceDefinition) -> Resource | None:
    """Return the defined kind, as clients that treat all kinds alike see it; None while it is not served.

    The version is the storage version.
    """
    stored = next((version.name for version in definition.spec.versions if version.storage), "")
    names = definition.status.accepted_names
    if not definition.is_established or not stored or not names.kind:
        return None
    return Resource(
        group=definition.spec.group,
        version=stored,
        kind=names.kind,
        plural=names.plural,
        singular=names.singular,
        list_kind=names.list_kind,
        namespaced=definition.spec.scope == "Namespaced",
        short_names=names.short_names,
        categories=names.categories,
    )
