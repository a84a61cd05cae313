"""Both forms of the mesh measure the same: placement, the queue's pools, and what a scenario states."""

import pytest

from lab.scenarios.run import load_scenario, run_as_processes, simulate

SCENARIO = """# Four pods, one too large and one gated
set scheduler.scoring_strategy=MostAllocated
measure placed = pods.filter(p, has(p.spec.nodeName)).size()
measure fullest = nodes.map(n, n.utilization.cpu).max()
measure pending unit=s = created.pods.map(p, p.versions.filter(v, v.status.phase == "Pending").map(v, v.seconds).sum()).sum()
measure bound = lines["sched.bind_result"].filter(l, l.data.outcome == "ok").size()
limit 60s
nodes n1..n2 cpu=8 memory=16Gi
pod first cpu=2 memory=1Gi node=n1
expect within 10s each pods name=first phase == Running
pod second cpu=2 memory=1Gi
expect within 10s each pods name=second phase == Running
pod gated cpu=1 gates=example.com/hold
pod large cpu=20
wait 3s
"""
OF_TIME = ("_s", "_mean", "_min", "pending", "api_writes", "api_writes_per_running_pod")


def test_placement_queue_and_stated_measures_are_those_of_the_simulation(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text(SCENARIO)
    simulated = simulate(load_scenario(path))

    result = run_as_processes(load_scenario(path), engine="memory", data_dir=tmp_path / "mesh")

    assert (result.error, result.measure_errors) == ("", {})
    assert [each for each in result.expectations if not each.passed] == []
    assert list(simulated.measures) == list(result.measures)
    counts = {name: value for name, value in simulated.measures.items() if not name.endswith(OF_TIME)}
    assert counts == pytest.approx({name: result.measures[name] for name in counts})
    assert (2.0, 0.5, 1.0) == tuple(result.measures[name] for name in ("placed", "fullest", "bound"))
    for pool in ("gated", "unschedulable"):
        assert 0.0 < result.measures[f"queue_{pool}_s"] <= result.virtual_s
    assert result.measures["pending"] >= result.measures["queue_gated_s"] + result.measures["queue_unschedulable_s"]
