"""Which parts of DRA an allocator supports: the feature gates of kube-scheduler, as one value.

Source: dra-core 0.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/types.go`,
`Features`.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.api.switches import switch


@dataclass(frozen=True)
class Features:
    """Gates by upstream's names, and the alternatives of dra-core 11; a component fills it with `Switches.of`."""

    admin_access: bool = switch("DRAAdminAccess")
    prioritized_list: bool = switch("DRAPrioritizedList")
    """Whether requests may have alternatives (`firstAvailable`)."""
    partitionable_devices: bool = switch("DRAPartitionableDevices")
    """Counters, and slices whose devices say themselves where they are."""
    device_taints: bool = switch("DRADeviceTaints")
    device_taint_rules: bool = switch("DRADeviceTaintRules")
    """Whether taints by administrators count, too."""
    consumable_capacity: bool = switch("DRAConsumableCapacity")
    """Whether several claims may have shares of one device."""
    device_status: bool = switch("DRAResourceClaimDeviceStatus")
    binding: bool = switch("DRADeviceBindingConditions")
    list_attributes: bool = switch("DRAListTypeAttributes")
    distinct_attribute: str = switch("dra.distinct_attribute")
    """`upstream`: of several devices of one request only the one before is compared."""
    cel_missing_key: str = switch("dra.cel_missing_key")
    """`false`: a selector that reads what a device has not published does not mean the device."""
    counter_bugs: bool = switch("dra.counter_bugs")
    """Whether counters are kept as in upstream, with its three defects."""

    @property
    def binding_conditions(self) -> bool:
        """Whether devices with binding conditions can be allocated; the conditions are reported in device status."""
        return self.binding and self.device_status
