"""FlowSchema: which requests go to which priority level (flowcontrol.apiserver.k8s.io/v1, KEP-1040)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource


class FlowSchema(ObjectView, frozen=True):
    """A FlowSchema as components see it."""


def _dangling(document: Document, now_s: float) -> str:
    conditions = document.get("status", {}).get("conditions") or ()
    return next((str(each.get("status")) for each in conditions if each.get("type") == "Dangling"), "?")


RESOURCE = Resource(
    FlowSchema,
    "flowcontrol.apiserver.k8s.io",
    namespaced=False,
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("PriorityLevel", "spec.priorityLevelConfiguration.name"),
        Column("MatchingPrecedence", "spec.matchingPrecedence", default=0),
        Column("DistinguisherMethod", "spec.distinguisherMethod.type", default=NONE),
        AGE,
        Column("MissingPL", _dangling),
    ),
)
