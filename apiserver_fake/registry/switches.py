"""The switches that the API server reads, one attribute each."""

from dataclasses import dataclass
from typing import Final

from services.api.switches import switch
from services.api.unbind import UnbindSwitches


@dataclass(frozen=True)
class ApiServerSwitches:
    """Switches of the API server: feature gates first, then choices. The register describes each."""

    clearing_nominated_node_name: bool = switch("ClearingNominatedNodeNameAfterBinding")
    container_restart_rules: bool = switch("ContainerRestartRules")
    dra_admin_access: bool = switch("DRAAdminAccess")
    dra_consumable_capacity: bool = switch("DRAConsumableCapacity")
    dra_binding_conditions: bool = switch("DRADeviceBindingConditions")
    dra_device_taint_rules: bool = switch("DRADeviceTaintRules")
    dra_device_taints: bool = switch("DRADeviceTaints")
    dra_extended_resource: bool = switch("DRAExtendedResource")
    dra_list_type_attributes: bool = switch("DRAListTypeAttributes")
    dra_partitionable_devices: bool = switch("DRAPartitionableDevices")
    dra_prioritized_list: bool = switch("DRAPrioritizedList")
    dra_device_status: bool = switch("DRAResourceClaimDeviceStatus")
    dra_granular_status: bool = switch("DRAResourceClaimGranularStatusAuthorization")
    generic_workload: bool = switch("GenericWorkload")
    init_container_resize: bool = switch("InPlacePodVerticalScalingInitContainers")
    pod_level_resize: bool = switch("InPlacePodLevelResourcesVerticalScaling")
    relaxed_service_names: bool = switch("RelaxedServiceNameValidation")
    resize_preemption: bool = switch("InPlacePodVerticalScalingSchedulerPreemption")
    spread_selector_merge: bool = switch("MatchLabelKeysInPodTopologySpreadSelectorMerge")
    suspended_job_resources: bool = switch("MutablePodResourcesForSuspendedJobs")
    stateful_set_max_unavailable: bool = switch("MaxUnavailableStatefulSet")
    node_declared_features: bool = switch("NodeDeclaredFeatures")
    pod_group_preemption_policy: bool = switch("PodGroupPreemptionPolicy")
    pod_unbinding: bool = switch("PodUnbinding")
    restart_all_containers: bool = switch("RestartAllContainersOnContainerExits")
    toleration_comparison: bool = switch("TaintTolerationComparisonOperators")
    release: str = switch("emulate.version")
    on_reject: str = switch("kubelet.on_reject")
    writes_raw: bool = switch("store.raw")
    enforce_exclusion: bool = switch("apiserver.enforce_exclusion")
    bind_precondition: str = switch("bind.precondition")
    double_allocation_guard: str = switch("dra.double_allocation_guard")
    exclusion_base_s: float = switch("exclusion.base_s")
    exclusion_max_s: float = switch("exclusion.max_s")
    gang_all_mode_with_basic: str = switch("gang.all_mode_with_basic")
    reserved_for_self: bool = switch("reservedFor.self")
    reserved_for_uid_policy: str = switch("reservedFor.uid_policy")
    reserved_for_allow_without_allocation: bool = switch("reserved_for.allow_without_allocation")
    reserved_for_max: int = switch("reserved_for.max")
    reserved_for_mode: str = switch("reserved_for.mode")
    resize_double_preemption: str = switch("resize.double_preemption")
    resize_feasibility: str = switch("resize.feasibility")
    template_allow_reserved_for: bool = switch("template.allow_reservedFor")
    unbind_api: str = switch("unbind.api")
    unbind_fence: str = switch("unbind.fence")
    unbind_gang: str = switch("unbind.gang")
    unbind_max_attempts: int = switch("unbind.max_attempts")
    unbind_rate_cluster_per_min: float = switch("unbind.rate_cluster_per_min")
    unbind_rate_namespace_per_min: float = switch("unbind.rate_namespace_per_min")
    unbind_rate_node_burst: int = switch("unbind.rate_node_burst")
    unbind_rate_node_per_min: float = switch("unbind.rate_node_per_min")
    unbind_require_scheduler_capability: bool = switch("unbind.require_scheduler_capability")
    unbind_user_bound: str = switch("unbind.user_bound")


NO_GATES = ApiServerSwitches(pod_group_preemption_policy=False, toleration_comparison=False)
"""Switches for rules that are checked without a feature gate that relaxes them."""


VIEWS: Final = (ApiServerSwitches, UnbindSwitches)
"""All views that the API server reads."""
