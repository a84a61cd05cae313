"""ResourceClaimTemplate: template for the claims of single pods (resource.k8s.io/v1, KEP-4381)."""

from services.api.kinds.resourceclaim import ResourceClaimSpec
from services.api.meta import AGE, NAME, ObjectView, Resource, View


class TemplateMeta(View, frozen=True):
    """Labels and annotations of the generated claims."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceClaimTemplateSpec(View, frozen=True):
    """Spec that is copied into each claim; it never changes."""

    metadata: TemplateMeta = TemplateMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ObjectView, frozen=True):
    """A template as components see it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


RESOURCE = Resource(ResourceClaimTemplate, "resource.k8s.io", columns=(NAME, AGE))
