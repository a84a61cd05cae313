"""DeviceTaintRule: a taint that an administrator puts on devices of any driver (KEP-5055)."""

from services.api.kinds.resourceslice import DeviceTaint
from services.api.meta import AGE, NAME, Condition, ObjectView, Resource, View

TAINT_RULES = "devicetaintrules.resource.k8s.io"
EVICTION_IN_PROGRESS = "EvictionInProgress"


class DeviceTaintSelector(View, frozen=True):
    """Selector of devices: all given fields must be equal; an absent field fits every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Whether the selector matches that device."""
        fields = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return all(wanted is None or wanted == value for wanted, value in fields)


class DeviceTaintRuleSpec(View, frozen=True):
    """Spec of a rule. Without a selector it matches no device; an empty selector matches every device in the
    cluster.
    """

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(View, frozen=True):
    """Conditions that the device taint eviction controller writes."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(ObjectView, frozen=True):
    """A rule as components see it."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


RESOURCE = Resource(
    DeviceTaintRule,
    "resource.k8s.io",
    version="v1beta2",
    namespaced=False,
    subresources=("status",),
    has_generation=True,
    gate="DRADeviceTaintRules",
    columns=(NAME, AGE),
)
