"""Which parts of DRA an allocator supports: the feature gates of kube-scheduler, as one value.

Source: dra-core 0.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/types.go`,
`Features`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """Gates by upstream's names with upstream's defaults of 1.36, and the alternatives of dra-core 11."""

    admin_access: bool = True
    """DRAAdminAccess."""
    prioritized_list: bool = True
    """DRAPrioritizedList: `firstAvailable`."""
    partitionable_devices: bool = True
    """DRAPartitionableDevices: counters, and slices whose devices say themselves where they are."""
    device_taints: bool = True
    """DRADeviceTaints."""
    device_taint_rules: bool = False
    """DRADeviceTaintRules: taints by administrators count, too."""
    consumable_capacity: bool = True
    """DRAConsumableCapacity: several claims may have shares of one device."""
    binding_conditions: bool = True
    """DRADeviceBindingConditions and DRAResourceClaimDeviceStatus, both."""
    list_attributes: bool = False
    """DRAListTypeAttributes."""
    distinct_attribute: str = "correct"
    """`upstream`: of several devices of one request only the one before is compared."""
    counter_bugs: bool = False
    """Whether counters are kept as in upstream, with its three defects."""
