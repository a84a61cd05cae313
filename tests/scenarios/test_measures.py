"""What runs are measured by: a score plugin's work is seen, measures observe only, and times in the queue are its own."""

from pathlib import Path

import pytest

from lab.scenarios import run as runs
from lab.scenarios.measures.queue_pools import QueuePools
from lab.scenarios.measures.register import MEASURES, find
from lab.scenarios.run import load_scenario, measures_of, simulate
from lab.scenarios.script.scenario import ScriptError, parse_scenario
from lab.scenarios.script.verbs import VERBS

ROOT = Path(__file__).parents[2]


def scenario(text):
    return parse_scenario(text, "measured.txt", VERBS)


def shipped(name):
    return load_scenario(ROOT / "experiments" / f"{name}.txt")


@pytest.fixture(scope="module")
def arms():
    """The shipped experiment in both arms of its switch."""
    arms = ("MostAllocated", "LeastAllocated")
    return [simulate(shipped("scheduling/packing"), overrides={"scheduler.scoring_strategy": arm}) for arm in arms]


def test_a_score_plugin_is_seen_in_placement_where_no_pods_fate_differs(arms):
    packed, spread = arms

    assert [p.outcome for p in packed.pods] == [p.outcome for p in spread.pods] == ["Running"] * 12
    of_fates = ("pods_created", "pods_failed", "pods_running_at_end", "unbinds", "jobs_failed", "queue_unschedulable_s")
    assert all(packed.measures[name] == spread.measures[name] for name in of_fates)
    assert (8, 0) == (packed.measures["pods_per_node_max"], spread.measures["pods_per_node_spread"])
    assert packed.measures["cpu_imbalance_end"] > 0.4 > spread.measures["cpu_imbalance_end"] == 0.0
    assert packed.measures["cpu_fragmentation_end"] < spread.measures["cpu_fragmentation_end"]


def test_a_scenarios_own_measures_have_values_and_stand_in_the_register_of_the_run(arms):
    packed, spread = arms

    assert (2.0, 0.0) == (packed.measures["nodes_for_large"], spread.measures["nodes_for_large"])
    assert 0.0 < packed.measures["small_start_p99"] == packed.measures["time_to_running_p99_s"]
    assert {"nodes_for_large": "higher", "small_start_p99": "lower"} == {m.name: m.better for m in packed.stated}
    assert packed.measure_errors == {}


@pytest.mark.parametrize("name", ["scheduling/packing", "jobs/indexed", "kep-5194/released"])
def test_every_measure_of_a_run_stands_in_the_register(name):
    result = simulate(shipped(name))

    assert [] == [name for name in result.measures if find(name, result.stated) is None]
    always = {each.name for each in MEASURES if each.is_always}
    assert always <= set(result.measures)


def test_measures_observe_only():
    """The event log's digest is the same, whatever a scenario states."""
    lines = (ROOT / "experiments" / "scheduling" / "packing.txt").read_text().splitlines()
    bare = "\n".join(line for line in lines if not line.startswith("measure "))

    assert simulate(scenario(bare)).digest == simulate(shipped("scheduling/packing")).digest


def test_moves_in_the_queue_are_in_no_log_of_a_simulation():
    lines = []
    result = simulate(shipped("scheduling/pod-back-off"), on_line=lines.append)

    assert result.measures["queue_backoff_s"] > 0.0
    assert "sched.moved" not in {line.ev for line in lines}


STATED = """# Times and versions
measure pending unit=s = created.pods.map(p, p.versions.filter(v, v.status.phase == "Pending").map(v, v.seconds).sum()).sum()
measure gone = created.pods.filter(p, has(p.at.gone)).size()
measure left = pods.size()
measure unbound = created.pods.filter(p, !has(p.at.bound)).size()
measure refused = lines["sched.attempt"].filter(l, l.data.outcome == "unschedulable").map(l, l.at).min()
measure waited unit=s = created.pods.filter(p, p.role == "pod/large").map(p, p.queue.unschedulable).sum()
measure wrong = pods.map(p, p.status.nominatedNodeName).size()
measure used = nodes.map(n, n.utilization.cpu).mean()
measure took unit=s = seconds
limit 60s
nodes n1 cpu=4
pod short cpu=1 run="exit 0 after 2s"
pod other cpu=1
wait 5s
pod large cpu=8
wait 10s
delete pod/other
wait 5s
"""


def test_objects_are_seen_with_their_times_and_versions():
    result = simulate(scenario(STATED))
    by_role = {pod.role: pod for pod in result.pods}
    started = [by_role[name].running_s - by_role[name].created_s for name in ("pod/short", "pod/other")]
    large_s = result.virtual_s - by_role["pod/large"].created_s

    measures = result.measures

    assert result.error == ""
    assert measures["pending"] == pytest.approx(sum(started) + large_s)
    assert (measures["gone"], measures["left"], measures["unbound"]) == (1.0, 2.0, 1.0)
    assert measures["refused"] == pytest.approx(by_role["pod/large"].created_s, abs=0.1)
    assert measures["waited"] == measures["queue_unschedulable_s"] == pytest.approx(large_s, abs=0.1)
    assert measures["used"] == 0.25
    assert measures["took"] == result.virtual_s


def test_a_measure_that_fails_is_named_and_the_run_is_not_lost():
    result = simulate(scenario(STATED))

    assert result.passed
    assert result.measures["wrong"] is None
    assert result.measure_errors == {"wrong": "measure wrong: no such key: nominatedNodeName"}
    assert result.document()["measure_errors"] == result.measure_errors


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("measure m = pds.size()", "measured.txt:2: measure m: column 1: undeclared reference to 'pds'; did you mean pods"),
        ("measure m = secrets.size()", "measured.txt:2: measure m: scenarios do not follow secrets"),
        ("measure m = 1\nmeasure m = 2", "measured.txt:3: measure m is stated twice"),
        ("measure pods_failed = 1", "measured.txt:2: pods_failed is a measure that comes with keplab"),
        ("measure unknown", "measured.txt:2: no package offers a measure 'unknown' (entry points in keplab.measures: none)"),
    ],
)  # fmt: skip
def test_a_measure_that_cannot_be_is_refused_before_anything_starts(line, says):
    with pytest.raises(ScriptError) as refused:
        measures_of(scenario(f"# Title\n{line}\nnodes n1 cpu=1\nwait 1s"))

    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    "name",
    [
        "gangs/retry",
        "gangs/group-back-off",
        "scheduling/pod-back-off",
        "preenqueue-status/delay-scope",
        "high-availability/killed-leader",
    ],
)
def test_at_the_end_each_pod_is_where_the_scheduler_says(name, monkeypatch):
    """`sched.moved` leaves nothing out: what it adds up to is what `keplab explain scheduler/queue` shows."""
    made, shown = [], []

    class Kept(QueuePools):
        def __init__(self):
            super().__init__()
            made.append(self)

        def end(self, now_s):
            shown.append({uid: pool for pods in self._open.values() for uid, (pool, _) in pods.items()})
            super().end(now_s)

    monkeypatch.setattr(runs, "QueuePools", Kept)
    queues = []

    def look(mesh):
        for each in mesh.components():
            if (
                each.startswith("scheduler")
                and (found := mesh.instance(each)) is not None
                and found._leadership.is_leading
            ):
                queues.append({q.uid: q.pool.value for q in found._core.queue.all() if q.pool.value})

    result = simulate(shipped(name), afterwards=look)

    assert result.error == ""
    expected = {uid: pool.replace("error_", "") for queue in queues for uid, pool in queue.items()}
    assert shown == [expected]
    assert any(made[0].by_uid.values())


DOCUMENTED = """# What the documents print
{measures}
limit 60s
nodes n1..n2 cpu=8 extended=example.com/gpu:2
replicaset web replicas=3 cpu=1
pod one cpu=1 extended=example.com/gpu:1
pod large cpu=9
expect within 20s count pods phase=Running == 4
wait 5s
"""


def test_every_measure_of_the_documents_is_read_and_has_a_value():
    text = (ROOT / "docs" / "how-to" / "measures.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("measure ")]

    result = simulate(scenario(DOCUMENTED.format(measures="\n".join(lines))))

    assert len(lines) >= 12
    assert (result.error, result.measure_errors) == ("", {})
    own = {each.name: result.measures[each.name] for each in result.stated}
    assert [] == [name for name, value in own.items() if value is None]
    assert (4.0, 1.0, 1.0) == (own["placed"], own["unfinished"], own["gpus_used"])
    assert own["pending"] > 5.0 > own["not_ready"] >= 0.0


def test_the_mistake_of_the_documents_is_answered_as_they_print():
    text = (ROOT / "docs" / "how-to" / "measures.md").read_text()
    printed = next(line for line in text.splitlines() if line.startswith("mine.txt:"))

    with pytest.raises(ScriptError) as refused:
        measures_of(parse_scenario("# Title\n\nmeasure m = pds.size()\nwait 1s", "mine.txt", VERBS))

    assert printed == str(refused.value)
