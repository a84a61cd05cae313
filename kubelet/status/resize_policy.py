"""Which designs of KEP-5836 have kubelets show the node's policy on pods, and in which words."""

from typing import Final

import msgspec

from kubelet.switches import KubeletSwitches


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


def form_of(switches: KubeletSwitches) -> Form | None:
    """Return how kubelets show the policy; None where they do not."""
    if not switches.has_resize_preemption:
        return None
    match switches.resize_generation:
        case "G1":
            return FORMS["annotation"]
        case "G2":
            return FORMS["pod_condition"]
        case _:
            return None
