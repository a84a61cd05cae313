"""Which designs of KEP-5836 have kubelets tell pods of the node's policy, and in which words."""

from __future__ import annotations

from typing import Final

import msgspec

from services.api.switches import Switches


class Form(msgspec.Struct, frozen=True):
    """How a design writes it: the condition's type and reason, and whether the Node says it in annotations."""

    type: str
    reason: str
    is_annotated: bool


FORMS: Final = {
    "annotation": Form("ResizePreemptionDisabled", "NodePolicyEnforced", True),
    "pod_condition": Form("PodResizePreemptionDisabled", "PreemptionDisabledByNodePolicy", False),
}
TYPES: Final = tuple(form.type for form in FORMS.values())


def form_of(switches: Switches) -> Form | None:
    """Return how kubelets tell of the policy; None where they do not."""
    if not switches.flag("InPlacePodVerticalScalingSchedulerPreemption"):
        return None
    generation = switches.choice("resize.generation")
    source, told = switches.choice("resize.policy_source"), switches.choice("resize.conditions")
    if source == "generation":
        source = {"G1": "annotation", "G2": "pod_condition"}.get(generation, "")
    if told == "generation":
        told = {"G2": "preemption_disabled_g2"}.get(generation, "")
    if source == "annotation":
        return FORMS["annotation"]
    is_told = told == "preemption_disabled_g2" or source.startswith("pod_condition")
    return FORMS["pod_condition"] if is_told else None
