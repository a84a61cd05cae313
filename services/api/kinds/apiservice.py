"""APIService (apiregistration.k8s.io/v1): the server of a group version; without a service, this server itself."""

from services.api.meta import AGE, NAME, Column, Condition, Document, ObjectView, Resource, View

API_SERVICES = "apiservices.apiregistration.k8s.io"
AVAILABLE = "Available"


class ServiceReference(View, frozen=True):
    """The Service of an extension API server."""

    namespace: str = ""
    name: str = ""
    port: int = 443


class APIServiceSpec(View, frozen=True):
    """`service` None: the group version is served by this server."""

    group: str = ""
    version: str = ""
    service: ServiceReference | None = None
    group_priority_minimum: int = 0
    version_priority: int = 0


class APIServiceStatus(View, frozen=True):
    """Conditions of an APIService: whether its server is reachable."""

    conditions: tuple[Condition, ...] = ()


class APIService(ObjectView, frozen=True):
    """An APIService as components see it; its name is `<version>.<group>`."""

    spec: APIServiceSpec = APIServiceSpec()
    status: APIServiceStatus = APIServiceStatus()


def _service(document: Document, _now: float) -> str:
    service = (document.get("spec") or {}).get("service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def _available(document: Document, _now: float) -> str:
    for each in (document.get("status") or {}).get("conditions") or ():
        if each["type"] == AVAILABLE:
            return str(each["status"] if each["status"] == "True" else f"{each['status']} ({each.get('reason', '')})")
    return "Unknown"


RESOURCE = Resource(
    APIService,
    "apiregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    subresources=("status",),
    is_of_clients=True,
    columns=(NAME, Column("Service", _service), Column("Available", _available), AGE),
)
