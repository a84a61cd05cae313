"""A file of scheduler_perf run on processes: an API server and a scheduler (AS-24, AS-25)."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from lab.cli.commands.bench import bench

EXAMPLE = Path(__file__).parents[2] / "examples/scheduler_perf/performance-config.yaml"


@pytest.mark.parametrize(
    ("workload", "name", "pods"),
    [
        ("SchedulingBasic/5Nodes$", "SchedulingBasic/5Nodes/namespace-2", 10),
        ("ResizePreemption/5Nodes$", "ResizePreemption/5Nodes/resizes", 0),
    ],
)
def test_a_workload_is_run_on_an_api_server_and_a_scheduler(tmp_path, workload, name, pods):
    words = ("--config", EXAMPLE, "--labels", "integration-test,short", "--workload", workload)

    answer = CliRunner().invoke(
        bench, [str(word) for word in (*words, "--data-items-dir", tmp_path, "-o", "json")], standalone_mode=False
    )

    printed = msgspec.json.decode(answer.stdout)
    assert [(each["failed"], each["measured"][0]["pods"]) for each in printed["workloads"]] == [("", pods)]
    assert answer.return_value == 0
    (file,) = tmp_path.iterdir()
    written = msgspec.json.decode(file.read_bytes())
    assert written == {"version": "v1", "dataItems": printed["dataItems"]}
    assert {(item["labels"]["Name"], item["labels"]["Form"]) for item in written["dataItems"]} == {(name, "mesh")}
    units = {item["labels"]["Metric"]: item["unit"] for item in written["dataItems"]}
    assert (
        units.items() >= {"SchedulingDuration": "s", "heap_memory_usage": "MB", "memory_growth_rate": "MB/min"}.items()
    )
    if pods:
        assert units["scheduler_scheduling_attempt_duration_seconds"] == "ms"
