"""DRA features of an allocator: the feature gates of kube-scheduler, as one value.

Source: dra-core 0.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/types.go`,
`Features`.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.api.switches import switch


@dataclass(frozen=True)
class Features:
    """Feature gates by upstream's names, and the alternatives of dra-core 11; `Switches.of` fills it."""

    admin_access: bool = switch("DRAAdminAccess")
    prioritized_list: bool = switch("DRAPrioritizedList")
    """Whether requests may have alternatives (`firstAvailable`)."""
    partitionable_devices: bool = switch("DRAPartitionableDevices")
    """Whether counters are supported, and slices whose devices each name their nodes."""
    device_taints: bool = switch("DRADeviceTaints")
    device_taint_rules: bool = switch("DRADeviceTaintRules")
    """Whether administrators' taints count too."""
    consumable_capacity: bool = switch("DRAConsumableCapacity")
    """Whether several claims may have shares of one device."""
    device_status: bool = switch("DRAResourceClaimDeviceStatus")
    binding: bool = switch("DRADeviceBindingConditions")
    list_attributes: bool = switch("DRAListTypeAttributes")
    distinct_attribute: str = switch("dra.distinct_attribute")
    """Comparison of the distinct constraint. `upstream`: of a request's devices only the previous one is compared."""
    cel_missing_key: str = switch("dra.cel_missing_key")
    """Result of reading an unpublished attribute. `false`: the selector does not match the device."""
    counter_bugs: bool = switch("dra.counter_bugs")
    """Whether counters have upstream's three defects."""

    @property
    def binding_conditions(self) -> bool:
        """Whether devices with binding conditions can be allocated; the conditions are reported in device status."""
        return self.binding and self.device_status
