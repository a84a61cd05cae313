"""The switches that a kubelet reads, as one typed view."""

from dataclasses import dataclass
from typing import Final

import msgspec

from services.api.features.declared_features import INIT_CONTAINER_RESIZE, POD_LEVEL_RESIZE, RESTART_ALL, default_gates
from services.api.switches import switch
from services.api.unbind import UnbindSwitches


class PolicyForm(msgspec.Struct, frozen=True):
    """The form in which a design of KEP-5836 shows the node's policy on pods.

    It has the condition's type and reason, and whether the Node's policy is in annotations.
    """

    type: str
    reason: str
    is_annotated: bool


POLICY_FORMS: Final = {
    "G1": PolicyForm("ResizePreemptionDisabled", "NodePolicyEnforced", True),
    "G2": PolicyForm("PodResizePreemptionDisabled", "PreemptionDisabledByNodePolicy", False),
}
_BY_NODES = ("subresource", "binding_delete")


@dataclass(frozen=True)
class KubeletSwitches:
    """The switches of one process; properties derive values from several switches."""

    release: str = switch("emulate.version")

    # features that the node declares
    has_declared_features: bool = switch("NodeDeclaredFeatures")
    restarts_all_containers: bool = switch("RestartAllContainersOnContainerExits")
    resizes_pod_level: bool = switch("InPlacePodLevelResourcesVerticalScaling")
    resizes_init_containers: bool = switch("InPlacePodVerticalScalingInitContainers")

    # admission, and pods that are not kept
    on_reject: str = switch("kubelet.on_reject")
    has_unbinding: bool = switch("PodUnbinding")
    unbind_form: str = switch("unbind.api")
    unbind_callers: str = switch("authz.unbind_callers")
    teardown: str = switch("kubelet.unbind_teardown")
    fallback: str = switch("unbind.fallback")
    fence: str = switch("unbind.fence")
    user_bound: str = switch("unbind.user_bound")
    request_deadline_s: float = switch("unbind.request_deadline_s")
    reasons: str = switch("unbind.reasons")
    defer_period_s: float = switch("defer.period_s")
    defer_timeout_s: float = switch("defer.timeout_s")
    deferred: str = switch("defer.reasons")
    device_defer_timeout_s: float = switch("device.defer_timeout_s")
    # pods that run
    status_batching: str = switch("kubelet.status_batching")
    pleg_mode: str = switch("pleg.mode")
    readmits_running: bool = switch("restart.readmit_running")
    has_reduced_decay: bool = switch("ReduceDefaultCrashLoopBackOffDecay")
    has_backoff_max: bool = switch("KubeletCrashLoopBackOffMax")
    # devices
    shows_device_health: bool = switch("ResourceHealthStatus")
    reserved_for: str = switch("reserved_for.mode")
    recheck_on_restart: str = switch("kubelet.recheck_on_restart")
    dra_reconcile_s: float = switch("kubelet.dra_reconcile_s")
    dra_wipe_delay_s: float = switch("kubelet.dra_wipe_delay_s")
    # resizes
    has_resize_preemption: bool = switch("InPlacePodVerticalScalingSchedulerPreemption")
    resize_generation: str = switch("resize.generation")
    resize_reserved_by: str = switch("resize.reserved_by")
    # the node
    controller_attaches: bool = switch("kubelet.enable_controller_attach_detach")
    lease_duration_s: int = switch("node.lease_duration_s")
    grace_s: float = switch("node.grace_s")
    numa_scheduler: str = switch("numa_scheduler")
    topology_period_s: float = switch("nrt.refresh_s")

    @property
    def unbind_api(self) -> str:
        """The API by which this kubelet may unbind pods; `none` if it would have to call it and must not."""
        return "none" if self.unbind_form in _BY_NODES and self.unbind_callers == "controller" else self.unbind_form

    @property
    def unbind_reasons(self) -> tuple[str, ...]:
        """Reasons for which pods are unbound; empty: all."""
        return _patterns(self.reasons)

    @property
    def defer_reasons(self) -> tuple[str, ...]:
        """Reasons for which admission is tried again; empty: all."""
        return _patterns(self.deferred)

    @property
    def writes_at_once(self) -> bool:
        """Whether every status is a write of its own."""
        return self.status_batching == "immediate"

    @property
    def policy_form(self) -> PolicyForm | None:
        """The form in which kubelets show the Node's policy on resize preemption on pods; None: they do not."""
        return POLICY_FORMS.get(self.resize_generation) if self.has_resize_preemption else None

    @property
    def evicts_for_resizes(self) -> bool:
        """Whether the kubelet evicts for a critical pod's resize; false where only the scheduler does (KEP-5836)."""
        return not (self.has_resize_preemption and self.resize_generation in ("G3", "G4"))

    @property
    def keeps_reservations(self) -> bool:
        """Whether capacity is kept for a resize that the scheduler has accepted."""
        return self.has_resize_preemption and self.resize_reserved_by == "kubelet"


def declarable_gates(switches: KubeletSwitches) -> dict[str, bool]:
    """Return the feature gates on which declared features depend, with a node's values."""
    return default_gates(switches.release) | {
        RESTART_ALL: switches.restarts_all_containers,
        POD_LEVEL_RESIZE: switches.resizes_pod_level,
        INIT_CONTAINER_RESIZE: switches.resizes_init_containers,
    }


def _patterns(text: str) -> tuple[str, ...]:
    """Return the reasons of `A+B`; empty for `all`."""
    return () if text == "all" else tuple(part for part in text.split("+") if part)


@dataclass(frozen=True)
class PolicySwitches:
    """Policies of all nodes at once, so that arms of one scenario can differ in them (kubelet 11).

    "" leaves each node's own definition in force. The fields are the definition's.
    """

    topology_policy: str = switch("topology.policy")
    topology_scope: str = switch("topology.scope")
    cpu_policy: str = switch("cpu.policy")
    memory_policy: str = switch("memory.policy")


@dataclass(frozen=True)
class OptionSwitches:
    """Options of those policies; "" leaves each node's own definition in force."""

    topology_options: str = switch("topology.options")
    cpu_options: str = switch("cpu.options")


@dataclass(frozen=True)
class CpuOptionGates:
    """Gates of the CPU manager's options, by their maturity."""

    alpha: bool = switch("CPUManagerPolicyAlphaOptions")
    beta: bool = switch("CPUManagerPolicyBetaOptions")


VIEWS: Final = (KubeletSwitches, PolicySwitches, OptionSwitches, CpuOptionGates, UnbindSwitches)
"""All views that a kubelet reads."""
