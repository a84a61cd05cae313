"""NodeResourceTopologies: unique zones and valid amounts."""

from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import Causes, invalid
from services.api.meta import Document
from services.api.quantity import amount


def _amounts(resource: Document, at: str, report: Report) -> Causes:
    for name in ("capacity", "allocatable", "available"):
        text = str(resource.get(name) or "0")
        try:
            amount(str(resource.get("name") or ""), text)
        except ValueError as error:
            yield invalid(at + name, text, str(error))


ZONE = Struct(
    Field("name", required=True),
    unique("name", is_empty_a_key=False),
    Field("resources", items=Struct(Field("name", required=True), _amounts)),
)
STRATEGIES = {"noderesourcetopologies.topology.node.k8s.io": declare_strategy(Struct(Field("zones", items=ZONE)))}
