"""ResourceQuota: limits on the sum over the objects of a namespace (core/v1)."""

from services.api.meta import AGE, NAME, Cell, Column, Document, ObjectView, Resource, View


class ScopedResourceSelectorRequirement(View, frozen=True):
    """Scope requirement `scopeName operator values`; operator In, NotIn, Exists, DoesNotExist."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(View, frozen=True):
    """A scope selector; its requirements are ANDed."""

    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(View, frozen=True):
    """Limits by name (`requests.cpu`, `pods`, `count/configmaps`), for the objects that are in all scopes."""

    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(View, frozen=True):
    """The enforced limits, and the amounts used."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(ObjectView, frozen=True):
    """A quota as components see it."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def requirements(self) -> tuple[ScopedResourceSelectorRequirement, ...]:
        """All scope requirements that an object must meet to count; a plain scope becomes operator Exists."""
        selector = self.spec.scope_selector
        return (
            *(ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in self.spec.scopes),
            *(selector.match_expressions if selector is not None else ()),
        )


def _used_cell(*, are_limits: bool) -> Cell:
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
    columns=(NAME, Column("Request", _used_cell(are_limits=False)), Column("Limit", _used_cell(are_limits=True)), AGE),
)
