"""A switch that is set and changes nothing is remarked on with the reason."""

import pytest

from services.api.features.idle_switches import NEEDS, remarks
from services.api.switches import Switches, find

GATE = "InPlacePodVerticalScalingSchedulerPreemption"


def test_every_need_names_switches_and_values_that_exist():
    for need in NEEDS:
        Switches.parse(name for name in need.names if "=" in name)
        assert [name for name in need.names if find(name.partition("=")[0]) is None] == []
        assert [find(need.other).parse(value) for value in need.values]


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["resize.generation=G4"], [f"resize.generation=G4 changes nothing while {GATE}=false"]),
        (["resize.generation=G4", f"{GATE}=true"], []),
        ([f"{GATE}=true", "resize.retry_period_s=5"],
         ["resize.retry_period_s=5.0 changes nothing while resize.retry_scope=node_only"]),
        ([f"{GATE}=true", "resize.retry_period_s=5", "resize.retry_scope=periodic"], []),
        ([f"{GATE}=true", "resize.parked_wakeup=none", "resize.retry_scope=periodic"],
         ["resize.parked_wakeup=none changes nothing while resize.retry_scope=periodic"]),
        ([f"{GATE}=true", "resize.group_member=group"],
         ["resize.group_member=group changes nothing while GenericWorkload=false"]),
        (["unbind.api=condition"], ["unbind.api=condition changes nothing while kubelet.on_reject=fail"]),
        (["kubelet.on_reject=unbind", "unbind.api=condition", "unbind.fence=session"],
         ["unbind.fence=session changes nothing while unbind.api=condition"]),
        (["kubelet.on_reject=unbind", "PodUnbinding=false"],
         ["kubelet.on_reject=unbind changes nothing while PodUnbinding=false"]),
        (["kubelet.on_reject=unbind", "unbind.api=none"],
         ["kubelet.on_reject=unbind changes nothing while unbind.api=none"]),
        (["kubelet.on_reject=unbind", "exclusion.scope=signature", "scheduler.exclusion=none"],
         ["exclusion.scope=signature changes nothing while scheduler.exclusion=none"]),
        (["kubelet.on_reject=unbind", "authz.unbind_callers=controller"],
         ["authz.unbind_callers=controller refuses what kubelets ask with unbind.api=subresource: want condition"]),
        (["kubelet.on_reject=unbind", "unbind.reasons=OutOfcpu+Topo*+Nonsense"],
         ["unbind.reasons=OutOfcpu+Topo*+Nonsense: no pod is unbound for a reason like Nonsense"]),
        (["kubelet.on_reject=defer", "defer.reasons=Nonsense"],
         ["defer.reasons=Nonsense changes nothing while kubelet.on_reject=defer"]),
        (["kubelet.on_reject=unbind", "unbind.api=condition", "authz.unbind_callers=controller"], []),
        (["resize.accounting=aggregated"], []),  # counts without the feature, too
        ([], []),
    ],
)  # fmt: skip
def test_a_switch_that_changes_nothing_is_named_with_what_it_needs(assignments, expected):
    assert remarks(Switches.parse(assignments)) == expected
