"""The design of the proposal in use: a generation, and two of its answers chosen separately.

The proposal changed between February and September 2026. A generation is a set of answers. Answers that
scenarios compare have a switch of their own, whose value `generation` leaves them to the generation.
Source: kep-5836 1, 9, 16.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler.switches import ResizeSwitches
from services.api.switches import Switches

BY_GENERATION: Final = "generation"


@dataclass(frozen=True)
class ResizeRules:
    """The answers in force. `looks_first`: whether an attempt checks the fit before it looks for victims.

    `on_fit`: what happens to a pod that fits. `parked_wakeup`: the effect of another pod's growth on a parked
    one. `conditions`: the generation whose conditions about failed attempts are written on the pod.
    `policy_source`: where a node opts out. `double_preemption`: what keeps an attempt from evicting more while
    earlier victims are leaving. `removes_self`: whether victims are sought on the node as it would be without
    the pod. `retry_period_s`: how often the clock wakes waiting pods, 0 when events do. `update_order`: whether
    queue and cache follow a change at once, or one of them first. `acts_for_group`: whether a group's member
    preempts as its group would. `outside_plugins`: which plugins take part that are not kube-scheduler's own.
    `reserves_on_node`: whether the kubelet is asked to keep the capacity of an accepted resize.
    """

    generation: str
    on_fit: str
    parked_wakeup: str
    conditions: str
    policy_source: str
    double_preemption: str
    outside_plugins: str = "as_for_new_pods"
    looks_first: bool = True
    removes_self: bool = False
    wakes_on_any_event: bool = False
    retry_period_s: float = 0.0
    update_order: str = "one_step"
    acts_for_group: bool = False
    holds_most: bool = False
    counts_allocated: bool = False
    adjusts_pod_count: bool = False
    reserves_on_node: bool = False

    @property
    def has_own_labels(self) -> bool:
        """Whether metrics separate resizes from new pods (beta)."""
        return self.generation == "G4"

    @property
    def refreshes(self) -> bool:
        """Whether an attempt begins with the pod as the cache has it, not as it was queued (beta)."""
        return self.generation == "G4"

    @property
    def heeds_kubelet(self) -> bool:
        """Whether a pod is left out of the queue if its kubelet reports that its node opts out."""
        return self.policy_source in ("annotation", "pod_condition")

    @property
    def reads_field(self) -> bool:
        """Whether the scheduler reads the Node's policy itself."""
        return self.policy_source == "node_field"


_ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "G0": {"looks_first": False, "removes_self": True, "on_fit": "park_filter", "parked_wakeup": "none",
           "conditions": "resize_unschedulable_g0", "policy_source": "none", "double_preemption": "accept",
           "outside_plugins": "postfilter_opt_in"},
    "G1": {"on_fit": "park_filter", "parked_wakeup": "none", "conditions": "resize_unschedulable_g1",
           "policy_source": "annotation", "double_preemption": "accept"},
    "G2": {"on_fit": "park_filter", "parked_wakeup": "fit_scaleup_hint", "conditions": "preemption_disabled_g2",
           "policy_source": "pod_condition", "double_preemption": "accept"},
    "G3": {"on_fit": "park_permit", "parked_wakeup": "none", "conditions": "none",
           "policy_source": "node_field", "double_preemption": "accept"},
    "G4": {"on_fit": "complete_bind", "parked_wakeup": "handler_add_or_activate", "conditions": "none",
           "policy_source": "node_field", "double_preemption": "spec_node_name", "outside_plugins": "relevance"},
}  # fmt: skip


def rules_of(switches: Switches) -> ResizeRules | None:
    """Return the rules in force; None while the feature is off, and deferred pods are left to their nodes."""
    own = switches.of(ResizeSwitches)
    if not own.is_on:
        return None
    generation = own.generation
    answers = dict(_ANSWERS[generation])
    # What a scenario compares may be chosen apart from the generation.
    chosen = {"parked_wakeup": own.parked_wakeup, "double_preemption": own.double_preemption}
    answers |= {name: value for name, value in chosen.items() if value != BY_GENERATION}
    scope = own.retry_scope
    return ResizeRules(
        generation=generation,
        **answers,
        wakes_on_any_event=scope == "any_event",
        retry_period_s=own.retry_period_s if scope == "periodic" else 0.0,
        update_order=own.update_order,
        acts_for_group=own.group_member == "group",
        holds_most=own.supersede == "hold_max_until_resolved",
        counts_allocated=own.counts_allocated,
        adjusts_pod_count=own.adjusts_pod_count,
        reserves_on_node=own.reserved_by == "kubelet",
    )
