"""A shipped scenario shows its feature: with the feature off, or the other alternative chosen, an expectation fails."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from services.api.switches import Switches

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
RESIZE_PREEMPTION_OFF = "InPlacePodVerticalScalingSchedulerPreemption=false"

FLIPS = [
    ("kep-5836/between-queue-and-cache", RESIZE_PREEMPTION_OFF),
    ("kep-5836/competing-resize", RESIZE_PREEMPTION_OFF),
    ("kep-5836/competing-resize", "resize.parked_wakeup=fit_scaleup_hint"),
    ("kep-5836/competing-resize", "resize.generation=G4"),
    ("kep-5836/deleted", RESIZE_PREEMPTION_OFF),
    ("kep-5836/fits", RESIZE_PREEMPTION_OFF),
    ("kep-5836/infeasible", RESIZE_PREEMPTION_OFF),
    ("kep-5836/newcomer", RESIZE_PREEMPTION_OFF),
    ("kep-5836/newcomer-beside", RESIZE_PREEMPTION_OFF),
    ("kep-5836/other-node", RESIZE_PREEMPTION_OFF),
    ("kep-5836/other-node", "resize.retry_scope=any_event"),
    ("kep-5836/reserved", RESIZE_PREEMPTION_OFF),
    ("unbinding/by-condition-limit", "unbind.api=subresource"),
    ("unbinding/exempt", "kubelet.on_reject=fail"),
    ("unbinding/numa-stale-unbind", "numa_scheduler=none"),
    ("unbinding/same-node", "exclusion.base_s=60"),
    ("kep-5194/mixed", "reserved_for.mode=pods"),
    ("kep-5194/gate-off-and-on", "reserved_for.mode=pods"),
    ("kep-5194/gate-off-and-on", "rc.unknown_entry=skip"),
    ("kep-5194/groups-share-a-claim", "reserved_for.mode=pods"),
    ("stateful-sets/broken-revision", "emulate.version=1.36 MaxUnavailableStatefulSet=true"),
    ("kep-5194/old-kubelet", "reserved_for.mode=pods"),
    ("kep-5194/kubelet-restart", "reserved_for.mode=pods"),
    ("kep-5194/kubelet-restart", "kubelet.recheck_on_restart=always"),
    ("kep-5194/api-server-gate", "reserved_for.mode=pods"),
    ("kep-5194/scheduler-gate", "reserved_for.mode=pods"),
    ("kep-5194/scheduler-gate", "reserved_for.max=256"),
    ("kep-5194/progress-deadline", "reserved_for.mode=pods"),
    ("kep-5194/safe-downgrade", "reserved_for.mode=pods"),
    ("claims/two-schedulers", "dra.double_allocation_guard=driver"),
    ("claims/two-schedulers", "dra.double_allocation_guard=none"),
    ("drivers/published-partitions", "DRAPartitionableDevices=false"),
    ("drivers/published-shares", "DRAConsumableCapacity=false"),
    ("drivers/published-monitor", "DRAAdminAccess=false"),
    ("drivers/published-binding", "DRADeviceBindingConditions=false"),
    ("devices/partitioned-cards", "DRAPartitionableDevices=false"),
    ("preenqueue-status/transient-claim", "preenqueue_report.delay_s=0"),
    ("preenqueue-status/configured", "preenqueue_report.delay_s=5"),
    ("kep-5836/beside-deferred", "resize.reserved_space=evict_pod"),
    ("kep-5836/beside-deferred", "resize.reserved_space=ignore_unactuated"),
    ("kep-5194/claim-itself", "reservedFor.self=false"),
    ("kep-5194/periodic-release", "scheduler.periodic_release=0"),
    ("preenqueue-status/gated", "preenqueue_report.gates_message=legacy"),
    ("faults/fm-k7", "scheduler.exclusion=hard"),
    ("several-schedulers/same-nodes-fail", "kubelet.on_reject=defer"),
    ("gangs/two-gangs", "gang.generation=off"),
    ("gangs/two-gangs", "gang.generation=W0"),
    ("async-api-calls/backlog", "SchedulerAsyncAPICalls=true"),
    ("async-api-calls/backlog", "async_api.client=priority SchedulerAsyncAPICalls=true"),
    ("async-api-calls/backlog", "async_api.qps=0"),
    *(
        (f"attach-detach/{name}", "kubelet.enable_controller_attach_detach=false")
        for name in (
            "attach-fails",
            "attach-restarts",
            "deleted-node",
            "lost-node",
            "never-attached",
            "out-of-service",
            "volume-of-unbound",
        )
    ),
]


@pytest.mark.parametrize(("scenario", "flip"), FLIPS, ids=[f"{name}-{flip}" for name, flip in FLIPS])
def test_an_expectation_fails_without_the_feature(scenario, flip):
    changed = Switches.parse(flip.split())
    overrides = {name: changed[name] for name in changed if changed.is_set(name)}

    result = simulate(load_scenario(EXPERIMENTS / f"{scenario}.txt"), seed=1, overrides=overrides)

    assert [judgement.text for judgement in result.expectations if not judgement.passed] != []
    assert result.error == ""


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.txt")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_scenario_expects_something(path):
    steps = load_scenario(path).steps

    assert any(step.verb in ("expect", "as", "settle", "ended") for step in steps)
