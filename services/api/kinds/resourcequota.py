"""ResourceQuota: how much the objects of a namespace may ask for together (core/v1)."""

from services.api.meta import AGE, NAME, Cell, Column, Document, ObjectView, Resource, View


class ScopedResourceSelectorRequirement(View, frozen=True):
    """`scopeName operator values`; operator In, NotIn, Exists, DoesNotExist."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(View, frozen=True):
    """Requirements are ANDed."""

    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(View, frozen=True):
    """The most of each name (`requests.cpu`, `pods`, `count/configmaps`), of the objects in all scopes."""

    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(View, frozen=True):
    """What is enforced, and how much of it is used."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(ObjectView, frozen=True):
    """A quota as components see it."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def requirements(self) -> tuple[ScopedResourceSelectorRequirement, ...]:
        """All an object must meet to count; a plain scope must exist."""
        selector = self.spec.scope_selector
        return (
            *(ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in self.spec.scopes),
            *(selector.match_expressions if selector is not None else ()),
        )


def _used(*, are_limits: bool) -> Cell:
    def cell(document: Document, now: float) -> str:
        status = document.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = sorted(name for name in hard if name.startswith("limits.") is are_limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


RESOURCE = Resource(
    ResourceQuota,
    short_names=("quota",),
    subresources=("status",),
    columns=(NAME, Column("Request", _used(are_limits=False)), Column("Limit", _used(are_limits=True)), AGE),
)
