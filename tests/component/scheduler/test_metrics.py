"""The names of scheduler-queue-and-cycles 10, as /metrics serves them."""

from __future__ import annotations

import asyncio

NAMES = [
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_attempt_duration_seconds",
    "scheduler_scheduling_algorithm_duration_seconds",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_pod_scheduling_attempts",
    "scheduler_pending_pods",
    "scheduler_queue_incoming_pods_total",
    "scheduler_unschedulable_pods",
    "scheduler_framework_extension_point_duration_seconds",
    "scheduler_plugin_execution_duration_seconds",
    "scheduler_queueing_hint_execution_duration_seconds",
    "scheduler_event_handling_duration_seconds",
    "scheduler_inflight_events",
    "scheduler_goroutines",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_victims",
    "scheduler_cache_size",
]


def _labels(metrics, name, label):
    """Return the values a label has among the samples of a metric."""
    found = {sample.partition(f'{label}="')[2].partition('"')[0] for sample in metrics if sample.startswith(name + "_")}
    return found - {""}


def test_every_metric_of_section_10_is_served_and_one_attempt_in_ten_is_timed(play):
    async def scenario(world):
        await world.node("n1", cpu="30")
        for i in range(25):
            await world.pod(f"p{i}", cpu="1")
        await world.pod("big", cpu="20")
        await world.until(world.bound("p24"))
        await asyncio.sleep(1)
        await world.node("n2", cpu="1")
        await asyncio.sleep(1)
        return world.scheduler.metrics()

    metrics = play(scenario)
    points = "scheduler_framework_extension_point_duration_seconds"
    filters = [
        count
        for sample, count in metrics.items()
        if sample.startswith(f'{points}_count{{extension_point="Filter"') and 'status="Success"' in sample
    ]

    assert [] == [name for name in NAMES if not any(sample.startswith(name) for sample in metrics)]
    assert {"PreFilter", "Filter", "Reserve", "Permit", "Bind"} <= _labels(metrics, points, "extension_point")
    assert {"NodeResourcesFit", "NodeName"} <= _labels(metrics, "scheduler_plugin_execution_duration_seconds", "plugin")
    assert 2 <= sum(filters) <= 5
    assert metrics['scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"}'] == 1
    assert "AssignedPodAdd" in _labels(metrics, "scheduler_event_handling_duration_seconds", "event")
    assert {"Queue", "QueueSkip"} & _labels(metrics, "scheduler_queueing_hint_execution_duration_seconds", "hint")
