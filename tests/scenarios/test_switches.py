"""Every switch is shown by a scenario: one that fails when the switch has another value.

`Switch.scenario` names it. A row here says which other values it distinguishes from the one it was written for, and why it does
not distinguish the rest: because those arms end alike, and what they differ in is measured elsewhere. Numbers are flipped to one
value, mostly the default.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from lab.scenarios.run import load_scenario, simulate
from services.api.switches import REGISTER, Switches, Value, find
from services.runtime.config import MeshError

ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    """`differs`: values with which the scenario fails; `alike`: other values, and why it does not."""

    differs: tuple[Value, ...]
    alike: dict[Value, str] = {}


ROWS = {
    "emulate.version": Row(("1.34", "1.35", "1.37")),
    "PodUnbinding": Row((False,)),
    "kubelet.on_reject": Row(("fail", "recreate", "defer"), {
        "defer-then-unbind": "the rejection is none of defer.reasons; `unbinding/defer-then-unbind` has it",
    }),
    "defer.timeout_s": Row((30.0,)),
    "defer.period_s": Row((5.0,)),
    "defer.reasons": Row(("UnexpectedAdmissionError",)),
    "device.defer_timeout_s": Row((12.0,)),
    "ResourceHealthStatus": Row((False,)),
    "kubelet.enable_controller_attach_detach": Row((False,)),
    "unbind.reasons": Row(("all",)),
    "kubelet.unbind_teardown": Row(("after",)),
    "kubelet.start_fence": Row((False,)),
    "kubelet.status_batching": Row((), {"immediate": "the end is the same, how fast is a benchmark"}),
    "store.raw": Row((), {True: "no scenario writes by hand; a component test and `keplab raw` do"}),
    "unbind.api": Row(("subresource", "condition"), {
        "none": "then the kubelet fails the pod as with kubelet.on_reject=fail: a runaway",
    }),
    "unbind.max_attempts": Row((5,)),
    "unbind.attempt_decay": Row((False,)),
    "unbind.fallback": Row(("fail",)),
    "unbind.fence": Row(("none", "resourceVersion")),
    "unbind.request_deadline_s": Row((60.0,)),
    "unbind.require_scheduler_capability": Row((False,)),
    "unbind.storm_taint": Row((False,)),
    "unbind.gang": Row(("member",)),
    "unbind.claim_release": Row(("scheduler", "rc")),
    "DRAAdminAccess": Row((False,)),
    "DRAPrioritizedList": Row((False,)),
    "DRAResourceClaimDeviceStatus": Row((False,)),
    "DRAPartitionableDevices": Row((False,)),
    "DRADeviceTaints": Row((False,)),
    "DRADeviceTaintRules": Row((False,)),
    "DRAConsumableCapacity": Row((False,)),
    "DRADeviceBindingConditions": Row((False,)),
    "DRAExtendedResource": Row((False,)),
    "DRAListTypeAttributes": Row((False,)),
    "DRAResourceClaimGranularStatusAuthorization": Row((False,)),
    "reserved_for.mode": Row(("pods", "kep5729")),
    "template.allow_reservedFor": Row((False,)),
    "reservedFor.uid_policy": Row(("strict",)),
    "reserved_for.max": Row((256,)),
    "reserved_for.allow_without_allocation": Row((False,)),
    "scheduler.reserve_fence": Row(("none",), {"touch": "as safe, by a write instead of a read"}),
    "scheduler.postfilter_dealloc": Row(("never_nonpod", "if_no_scheduled_pods")),
    "scheduler.verify_owner": Row((False,)),
    "scheduler.periodic_release": Row((0.0,)),
    "reservedFor.self": Row((False,)),
    "dra.inflight_sharing": Row(("none",), {"any": "the gang is all there is"}),
    "dra.filter_timeout_s": Row((10.0, 0.0)),
    "dra.binding_poll_s": Row((20.0,)),
    "dra.binding_timeout_s": Row((600.0,)),
    "dra.unresolvable_on_no_devices": Row((False,)),
    "dra.distinct_attribute": Row(("upstream",)),
    "dra.counter_bugs": Row((True,)),
    "dra.cel_missing_key": Row(("false",)),
    "release.on_scale_to_zero": Row((False,)),
    "release.on_suspend": Row((False,)),
    "release.clear_allocation_by": Row(("rc",)),
    "release.owner_types": Row(("jobs.batch",)),
    "dra.double_allocation_guard": Row(("none",), {
        "driver": "one pod runs either way; which claims were granted is in tests/scenarios/test_device_claims.py",
    }),
    "kubelet.recheck_on_restart": Row(("sandbox_only",)),
    "kubelet.dra_reconcile_s": Row((60.0,)),
    "kubelet.dra_wipe_delay_s": Row((30.0,)),
    "release.design": Row(("rc_never", "owner", "podgroup")),
    "owner_deletion": Row(("finalizer", "leak")),
    "rc.owner_check_interval": Row((60.0,)),
    "rc.unknown_entry": Row(("by_mode", "error")),
    "rc.dealloc_when_empty": Row(("transition_only", "spec_reservedFor")),
    "unbind.user_bound": Row(("exempt", "fail")),
    "unbind.rate_node_per_min": Row((10.0,)),
    "unbind.rate_node_burst": Row((20,)),
    "unbind.rate_namespace_per_min": Row((60.0,)),
    "unbind.rate_cluster_per_min": Row((1.0,)),
    "authz.unbind_callers": Row(("controller",), {
        "kubelet+controller": "no controller asks: `unbinding/by-condition` has one",
    }),
    "bind.precondition": Row(("uid",)),
    "apiserver.enforce_exclusion": Row((False,)),
    "exclusion.base_s": Row((60.0,)),
    "exclusion.max_s": Row((1800.0,)),
    "numa_scheduler": Row(("none", "nrt_stale", "nrt_overreserve")),
    "nrt.refresh_s": Row((2.0,)),
    "exclusion.scope": Row(("pod",)),
    "scheduler.exclusion": Row(("hard", "soft", "adaptive")),
    "SchedulerPopFromBackoffQ": Row((False,)),
    "scheduler.scoring_strategy": Row(("LeastAllocated",), {
        "RequestedToCapacityRatio": "its default shape fills the fuller node, too",
    }),
    "balanced.formula": Row(("v135",)),
    "scheduler.percentage_of_nodes_to_score": Row((0,)),
    "scheduler.backoff_initial_s": Row((1.0,)),
    "scheduler.backoff_max_s": Row((10.0,)),
    "scheduler.event_recorder": Row(("record",)),
    "telemetry.queue_moves": Row((), {"on": "it observes; tests/component/scheduler/test_queue_moves.py reads the lines"}),
    "scheduler.record": Row(("memory",)),
    "scheduler.record_skip": Row(("omit",)),
    "scheduler.record_all": Row((False,)),
    "descheduler.enabled": Row((False,)),
    "descheduler.interval_s": Row((60.0,)),
    "descheduler.reasons": Row(("*",)),
    "descheduler.min_lifetime_s": Row((0.0,)),
    "descheduler.exclude_owners": Row(("",)),
    "rs.failed_backoff": Row(("off",)),
    "job.count_rejections": Row((False,)),
    "MutablePodResourcesForSuspendedJobs": Row((False,)),
    "MaxUnavailableStatefulSet": Row((False,)),
    "controllers.own_write_gate": Row((False,)),
    "ReduceDefaultCrashLoopBackOffDecay": Row((False,)),
    "ContainerRestartRules": Row((False,)),
    "RestartAllContainersOnContainerExits": Row((False,)),
    "NodeDeclaredFeatures": Row((False,)),
    "pleg.mode": Row(("evented",)),
    "restart.readmit_running": Row((False,)),
    "topology.policy": Row(("", "none", "best-effort"), {
        "single-numa-node": "what fits on no NUMA node is refused by both",
    }),
    "topology.scope": Row(("container", "pod")),
    "topology.options": Row(("none",)),
    "cpu.policy": Row(("none",), {"static": "what the node has already"}),
    "cpu.options": Row(("none",)),
    "memory.policy": Row(("None",), {"Static": "what the node has already"}),
    "CPUManagerPolicyAlphaOptions": Row((False,)),
    "CPUManagerPolicyBetaOptions": Row((False,)),
    "KubeletCrashLoopBackOffMax": Row((False,)),
    "node.grace_s": Row((50.0,)),
    "node.lease_duration_s": Row((200,)),
    "tainteviction.faithful": Row((True,)),
    "podgc.threshold": Row((12500,)),
    "podgc.recheck": Row((False,)),
    "volumes.provision_s": Row((17.0,)),
    "StorageCapacityScoring": Row((False,)),
    "NominatedNodeNameForExpectation": Row((False,)),
    "ClearingNominatedNodeNameAfterBinding": Row((False,)),
    "SchedulerAsyncPreemption": Row((False,)),
    "preemption.async_activate": Row(("on-error", "on-error-or-in-memory")),
    "preemption.revert_nomination": Row((False,)),
    "preemption.clear_nominations": Row(("evictions",)),
    "interpodaffinity.faithful_hints": Row((True,)),
    "preemption.pdb_empty_selector": Row(("ignore",)),
    "preemption.waiting_victim": Row(("unschedulable", "delete")),
    "preemption.pre_bind_victim": Row(("delete",)),
    "SchedulerAsyncAPICalls": Row((False,)),
    "async_api.parallelism": Row((0,)),
    "async_api.client": Row(("shared",), {"priority": "precedence does for the one bind what a rate of its own does"}),
    "async_api.qps": Row((5.0,)),
    "async_api.burst": Row((100,)),
    "SchedulerPreEnqueuePodStatus": Row((False,)),
    "preenqueue_report.model": Row(("off", "explicit_immediate", "implicit_immediate"), {
        "explicit_delayed": "one cause only: `preenqueue-status/stale` has two",
        "implicit_delayed_optout": "no plugin opts out: `preenqueue-status/stale` has a plugin that does",
    }),
    "preenqueue_report.delay_s": Row((1.0,)),
    "preenqueue_report.clear_delay_s": Row((0.0,)),
    "preenqueue_report.on_other_plugin_rejects": Row(("keep_stale", "generic")),
    "preenqueue_report.reason": Row(("Unschedulable", "SchedulingGated")),
    "preenqueue_report.condition": Row(("PodScheduled",)),
    "preenqueue_report.delay_scope": Row(("global", "per_plugin")),
    "preenqueue_report.qps": Row((0.0,)),
    "preenqueue_report.target": Row(("pod",)),
    "preenqueue_report.gates_message": Row(("legacy",)),
    "GenericWorkload": Row((False,)),
    "PodGroupPreemptionPolicy": Row((False,)),
    "OpportunisticBatching": Row((False,)),
    "batching.validity": Row(("unchanged",)),
    "gang.generation": Row(("W2", "W1", "W3", "off")),
    "gang.permit_timeout_s": Row((300.0,)),
    "gang.group_preemption": Row(("off", "per-pod")),
    "gang.retry": Row(("backoffOnly",)),
    "gang.backoff_max_s": Row((10.0,)),
    "gang.all_mode_with_basic": Row(("accept",)),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": Row((False,)),
    "RelaxedServiceNameValidation": Row((False,)),
    "TaintTolerationComparisonOperators": Row((False,)),
    "InPlacePodLevelResourcesVerticalScaling": Row((False,)),
    "InPlacePodVerticalScalingInitContainers": Row((False,)),
    "InPlacePodVerticalScalingSchedulerPreemption": Row((False,)),
    "resize.generation": Row(("G0", "G1", "G3"), {"G2": "its hint wakes as well as the handler of G4"}),
    "resize.parked_wakeup": Row(("none",), {
        "handler_add_or_activate": "what G4 has already",
        "fit_scaleup_hint": "the hint wakes as well as the handler",
    }),
    "resize.double_preemption": Row(("generation", "accept", "memory"), {"nnn": "guards as well, for two writes more"}),
    "resize.retry_scope": Row(("node_only", "any_event")),
    "resize.retry_period_s": Row((10.0,)),
    "resize.accounting": Row(("per_container",)),
    "resize.update_order": Row(("queue_first",), {"one_step": "nothing comes between the two"}),
    "resize.group_member": Row(("individual",)),
    "resize.reserved_space": Row(("evict_pod",), {
        "once_accepted": "lets the newcomer in as well, and equals: `kep-5836/beside-deferred`",
    }),
    "resize.reserved_by": Row(("scheduler",)),
    "resize.supersede": Row(("hold_max_until_resolved",)),
    "resize.reprieve_uses_allocated": Row((False,)),
    "resize.feasibility": Row(("admission",)),
    "resize.adjust_pod_count": Row((False,)),
}  # fmt: skip


def as_written(name: str) -> Value:
    """Return the value that the switch has in its scenario."""
    return Switches.parse(load_scenario(ROOT / find(name).shown_by).switches)[name]


def test_every_switch_has_a_row_and_names_what_shows_it():
    assert {switch.name for switch in REGISTER} == ROWS.keys()
    assert [switch.name for switch in REGISTER if not (ROOT / switch.shown_by).is_file()] == []


@pytest.mark.parametrize("name", [switch.name for switch in REGISTER if switch.shown_by.endswith(".txt")])
def test_a_row_has_every_other_value_of_a_flag_or_choice_and_at_least_one_that_differs(name):
    known, row, written = find(name), ROWS[name], as_written(name)
    every = (True, False) if known.type == "flag" else known.values

    assert row.differs
    assert not {written} & {*row.differs, *row.alike}
    if every:
        assert {*every} - {written} == {*row.differs, *row.alike}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, row in ROWS.items() for value in row.differs])
def test_the_scenario_of_a_switch_fails_when_the_switch_is_flipped(name, value):
    scenario = load_scenario(ROOT / find(name).shown_by)
    try:
        is_as_set = simulate(scenario, seed=1, overrides={name: value}).passed
    except MeshError:
        is_as_set = False  # a kubelet whose switches refuse its node's options does not start

    assert not is_as_set
