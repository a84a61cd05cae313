"""PodTemplate: a pod template as an object of its own (core/v1); no controller acts on it."""

from services.api.meta import NAME, NONE, Column, ObjectView, Resource
from services.api.printing import labels_text


class PodTemplate(ObjectView, frozen=True):
    """A PodTemplate as components see it; the template stays in the document."""


_CONTAINERS = "template.spec.containers"
RESOURCE = Resource(
    PodTemplate,
    columns=(
        NAME,
        Column("Containers", _CONTAINERS, show=lambda d: ",".join(each.get("name", "") for each in d)),
        Column("Images", _CONTAINERS, show=lambda d: ",".join(each.get("image", "") for each in d)),
        Column("Pod Labels", "template.metadata.labels", default=NONE, show=labels_text),
    ),
)
