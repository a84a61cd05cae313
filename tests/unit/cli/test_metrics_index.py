"""The metrics of all components as rows: what a reference and a dashboard are made of."""

import re
from pathlib import Path

from lab.cli.metrics_index import markdown, rows

SPECIFICATIONS = Path(__file__).parents[3] / "docs" / "spec"
UPSTREAM = """
apiserver_(audit_(event|error|level)_total|flowcontrol_.*|longrunning_requests|request_total|storage_objects)
apiserver_(terminated_watchers|watch_events)_total
apiserver_(current_inflight_requests|request_duration_seconds)
attach_detach_controller_attachdetach_controller_forced_detaches
controller_runtime_reconcile_(panics_)?total
device_taint_eviction_controller_pod_deletion(_duration_seconds|s_total)
endpoint_slice_controller_(changes|endpoints_desired|num_endpoint_slices)
horizontal_pod_autoscaler_controller_(metric_computation|reconciliation)(s?_total|_duration_seconds)
kubelet_(container_aligned_compute_resources|cpu_manager|device_plugin_registration|evented_pleg|image_garbage)_.*
kubelet_(memory_manager_pinning|topology_manager_admission)_.*
kubelet_(pleg_relist_interval_seconds|pod_resize_duration_milliseconds)
leader_election_master_status
process_.*
scheduler_(batch_(attempts|cache_flushed)_total|resourceclaim_creates_total)
scheduler_podgroup_scheduling_algorithm_duration_seconds
taint_eviction_controller_pod_deletion(_duration_seconds|s_total)
workqueue_(adds_total|depth|retries_total|queue_duration_seconds|work_duration_seconds)
"""
"""Names of kubernetes/kubernetes 1.36 (`test/instrumentation/documentation/documentation-list.yaml`) and of
controller-runtime that no specification of ours repeats."""


def test_every_metric_has_a_component_a_line_of_help_and_labels_of_its_own():
    found = rows()

    assert len(found) > 200
    for row in found:
        assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", row.name), row
        assert row.help.endswith(".") or row.help.startswith("Number of"), row
        assert row.component, row
        assert len(set(row.labels)) == len(row.labels), row
        assert "le" not in row.labels, row
    assert len({(row.name, row.component) for row in found}) == len(found)


def test_a_name_is_upstreams_or_that_of_a_proposal_or_begins_with_keplab():
    specified = "\n".join(path.read_text() for path in sorted(SPECIFICATIONS.glob("*.md")))
    upstream = re.compile("|".join(f"(?:{line})" for line in UPSTREAM.split()))

    strange = [
        row.name
        for row in rows()
        if not row.name.startswith("keplab_")
        and not re.search(rf"\b{row.name}\b", specified)
        and not upstream.fullmatch(row.name)
    ]

    assert strange == []


def test_a_metric_of_several_tables_is_one_row_with_the_labels_of_all():
    (attempts,) = (row for row in rows() if row.name == "scheduler_pending_pods")

    assert (attempts.type, attempts.labels, attempts.component) == ("gauge", ("queue",), "scheduler")


def test_the_tables_of_the_reference_name_each_metric_under_its_component():
    text = markdown()

    kubelet = text.partition("## kubelet\n")[2].partition("\n## ")[0]
    assert "| `kubelet_running_pods` | gauge |  | Pods of which something runs. |" in kubelet
    assert "| `scheduler_schedule_attempts_total` | counter | `profile`, `result` | Scheduling attempts. |" in text
