"""ResourceClaimTemplate: what the claims of single pods are made from (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from services.api.kinds.resourceclaim import ResourceClaimSpec
from services.api.meta import ObjectMeta, View
from services.api.printing import AGE, NAME
from services.api.resources import Resource


class TemplateMeta(View, frozen=True):
    """Labels and annotations that the claims get."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceClaimTemplateSpec(View, frozen=True):
    """Copied into each claim; never changes."""

    metadata: TemplateMeta = TemplateMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(View, frozen=True):
    """A template as components see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


RESOURCE = Resource(
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    singular="resourceclaimtemplate",
    group="resource.k8s.io",
    view=ResourceClaimTemplate,
    has_spec=True,
    columns=(
        NAME,
        AGE,
    ),
)
