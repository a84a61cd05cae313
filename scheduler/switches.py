"""The switches that the scheduler reads, as typed views: one for each group of modules that need the same ones."""

from dataclasses import dataclass
from typing import Final

from services.api.switches import switch
from services.dra.features import Features

PERCENTAGE: Final = "scheduler.percentage_of_nodes_to_score"
BACKOFF_INITIAL: Final = "scheduler.backoff_initial_s"
BACKOFF_MAX: Final = "scheduler.backoff_max_s"
REPORT_DELAY: Final = "preenqueue_report.delay_s"
"""A switch that a configuration file can also set; the switch counts if it is set."""


@dataclass(frozen=True)
class SchedulerSwitches:
    """The switches of the loops and of wiring."""

    has_unbinding: bool = switch("PodUnbinding")
    unbinds_max: int = switch("unbind.max_attempts")
    claim_release: str = switch("unbind.claim_release")
    record: str = switch("scheduler.record")
    record_skip: str = switch("scheduler.record_skip")
    records_all: bool = switch("scheduler.record_all")
    exclusion_scope: str = switch("exclusion.scope")
    pops_from_backoff: bool = switch("SchedulerPopFromBackoffQ")
    has_batching: bool = switch("OpportunisticBatching")
    batching_validity: str = switch("batching.validity")
    recorder: str = switch("scheduler.event_recorder")
    queue_moves: str = switch("telemetry.queue_moves")

    @property
    def has_queue_moves(self) -> bool:
        """Whether each move of a pod between pools of the queue is an event line."""
        return self.queue_moves == "on"

    @property
    def has_event_series(self) -> bool:
        """Whether events of pods are recorded in series, as by events.k8s.io."""
        return self.recorder == "events"


@dataclass(frozen=True)
class PreemptionSwitches:
    """The switches of every search for victims: for pods, for groups, for deferred resizes."""

    is_async: bool = switch("SchedulerAsyncPreemption")
    pdb_empty_selector: str = switch("preemption.pdb_empty_selector")

    @property
    def matches_empty(self) -> bool:
        """Whether a disruption budget with an empty selector covers every pod."""
        return self.pdb_empty_selector == "match"


@dataclass(frozen=True)
class EvictionSwitches:
    """The switches of evictions and of their effects."""

    activates: str = switch("preemption.async_activate")
    reverts_nomination: bool = switch("preemption.revert_nomination")
    clears_nominations: str = switch("preemption.clear_nominations")
    waiting_victim: str = switch("preemption.waiting_victim")
    pre_bind_victim: str = switch("preemption.pre_bind_victim")


@dataclass(frozen=True)
class ReservationSwitches:
    """The switches of `reservedFor` of claims: the consumer to write, and its protection.

    Source: KEP-5194, KEP-5729.
    """

    mode: str = switch("reserved_for.mode")
    fence: str = switch("scheduler.reserve_fence")
    postfilter: str = switch("scheduler.postfilter_dealloc")
    verifies_owner: bool = switch("scheduler.verify_owner")
    release_period_s: float = switch("scheduler.periodic_release")


@dataclass(frozen=True)
class DraSwitches:
    """The switches of the DynamicResources plugin."""

    sharing: str = switch("dra.inflight_sharing")
    filter_timeout_s: float = switch("dra.filter_timeout_s")
    binding_poll_s: float = switch("dra.binding_poll_s")
    binding_timeout_s: float = switch("dra.binding_timeout_s")
    is_final: bool = switch("dra.unresolvable_on_no_devices")
    has_extended_resources: bool = switch("DRAExtendedResource")


@dataclass(frozen=True)
class GangSwitches:
    """The switches of pod groups (KEP-4671, KEP-5710)."""

    is_on: bool = switch("GenericWorkload")
    generation: str = switch("gang.generation")
    group_preemption: str = switch("gang.group_preemption")
    has_policy: bool = switch("PodGroupPreemptionPolicy")
    retry: str = switch("gang.retry")
    backoff_max_s: float = switch("gang.backoff_max_s")
    permit_timeout_s: float = switch("gang.permit_timeout_s")

    @property
    def is_one_by_one(self) -> bool:
        """Whether members are queued and placed one by one."""
        return self.generation in ("W0", "off")

    @property
    def checks_priority(self) -> bool:
        """Whether members must have their group's priority; up to 1.36 this was not checked."""
        return self.generation not in ("W0", "W1")


@dataclass(frozen=True)
class AsyncCallSwitches:
    """The switches of the API calls beside the scheduling loop (KEP-5229). `qps` 0: without a limit."""

    is_on: bool = switch("SchedulerAsyncAPICalls")
    qps: float = switch("async_api.qps")
    burst: int = switch("async_api.burst")
    sharing: str = switch("async_api.client")
    parallelism: int = switch("async_api.parallelism")


@dataclass(frozen=True)
class ResizeSwitches:
    """The switches of the preemption for deferred resizes."""

    accounting: str = switch("resize.accounting")
    reserved_space: str = switch("resize.reserved_space")
    generation: str = switch("resize.generation")
    retry_scope: str = switch("resize.retry_scope")
    retry_period_s: float = switch("resize.retry_period_s")
    update_order: str = switch("resize.update_order")
    group_member: str = switch("resize.group_member")
    supersede: str = switch("resize.supersede")
    counts_allocated: bool = switch("resize.reprieve_uses_allocated")
    adjusts_pod_count: bool = switch("resize.adjust_pod_count")
    reserved_by: str = switch("resize.reserved_by")
    is_on: bool = switch("InPlacePodVerticalScalingSchedulerPreemption")
    parked_wakeup: str = switch("resize.parked_wakeup")
    double_preemption: str = switch("resize.double_preemption")


@dataclass(frozen=True)
class PluginSwitches:
    """The switches of plugins, most of which need one."""

    scores_capacity: bool = switch("StorageCapacityScoring")
    compares_tolerations: bool = switch("TaintTolerationComparisonOperators")
    balanced_formula: str = switch("balanced.formula")
    bind_precondition: str = switch("bind.precondition")
    exclusion: str = switch("scheduler.exclusion")
    scoring_strategy: str = switch("scheduler.scoring_strategy")
    gates_message: str = switch("preenqueue_report.gates_message")
    has_faithful_hints: bool = switch("interpodaffinity.faithful_hints")


@dataclass(frozen=True)
class WorldSwitches:
    """The switches of the kinds that are followed, and of the plugins that run by default."""

    has_taint_rules: bool = switch("DRADeviceTaintRules")
    numa_scheduler: str = switch("numa_scheduler")
    has_declared_features: bool = switch("NodeDeclaredFeatures")


@dataclass(frozen=True)
class BinderSwitches:
    """The switches of the binding cycle."""

    says_expectations: bool = switch("NominatedNodeNameForExpectation")


@dataclass(frozen=True)
class ConfigurationSwitches:
    """The switches that a configuration file can also set; the file counts unless a switch is set."""

    percentage: int = switch(PERCENTAGE)
    backoff_initial_s: float = switch(BACKOFF_INITIAL)
    backoff_max_s: float = switch(BACKOFF_MAX)
    report_delay_s: float = switch(REPORT_DELAY)


@dataclass(frozen=True)
class ReportSwitches:
    """The switches of reports of PreEnqueue rejections. `qps` 0: reports share the limit of all other calls."""

    is_on: bool = switch("SchedulerPreEnqueuePodStatus")
    model: str = switch("preenqueue_report.model")
    delay_s: float = switch(REPORT_DELAY)
    clear_delay_s: float = switch("preenqueue_report.clear_delay_s")
    delay_scope: str = switch("preenqueue_report.delay_scope")
    on_other_plugin_rejects: str = switch("preenqueue_report.on_other_plugin_rejects")
    reason: str = switch("preenqueue_report.reason")
    condition: str = switch("preenqueue_report.condition")
    target: str = switch("preenqueue_report.target")
    qps: float = switch("preenqueue_report.qps")


VIEWS: Final = (
    SchedulerSwitches,
    PreemptionSwitches,
    EvictionSwitches,
    ReservationSwitches,
    DraSwitches,
    GangSwitches,
    AsyncCallSwitches,
    ResizeSwitches,
    PluginSwitches,
    WorldSwitches,
    BinderSwitches,
    ConfigurationSwitches,
    ReportSwitches,
    Features,
)
"""All views that the scheduler reads."""
