"""What a seed's faults are as faults of links, what counts as a change, and when a mesh is at rest (I20, I28)."""

import asyncio

import pytest

from lab.chaos.plan import Fault
from lab.chaos.run import QUIET_S, REST_LIMIT_S, ChaosJob, ChaosRun, _Counts, _link_faults, _rest
from lab.scenarios.invariants import Auditor
from lab.scenarios.invariants.auditor import Violation
from lab.scenarios.simulation import simloop
from services.api.switches import Switches
from services.client.link_faults import LinkFaults
from services.telemetry.eventlog import Line


def commit(kind, ev="store.commit", **data):
    obj = {"kind": kind, "ns": "default", "name": "a", "uid": "u"} if kind else None
    return Line(1, 1, 0, "", "apiserver", "0", ev, obj=obj, data=data)


def test_each_commit_is_a_change_of_its_kind_and_an_added_object_was_made():
    counts = _Counts()
    lines = [
        commit("Pod", type="ADDED"),
        commit("Pod", type="MODIFIED"),
        commit("Pod", type="DELETED"),
        commit("Job", type="ADDED"),
        commit("Pod", type="ADDED", replayed=True),
        commit("Pod", ev="api.request", type="ADDED"),
        commit(None, type="ADDED"),
    ]
    for line in lines:
        counts.take(line)

    assert (dict(counts.changes), dict(counts.made)) == ({"Pod": 3, "Job": 1}, {"Pod": 1, "Job": 1})


@pytest.mark.parametrize(
    ("kind", "detail", "faults"),
    [
        ("cut", "replies", LinkFaults(cut="replies")),
        ("slow", "", LinkFaults(slow_s=0.2)),
        ("delay", "", LinkFaults(watch_delay_s=1.0)),
        ("loss", "", LinkFaults(loss=0.05)),
        ("duplicate", "", LinkFaults(duplicate=0.2)),
        ("node-cut", "both", LinkFaults(cut="both")),
        ("node-drop", "lease", LinkFaults(drop=("lease",))),
    ],
)
def test_a_fault_of_a_link_is_as_bad_as_it_is_long(kind, detail, faults):
    assert _link_faults(Fault(0.0, kind, "scheduler", 2.0, detail)) == faults


def test_a_link_is_not_so_slow_that_every_call_would_time_out():
    assert _link_faults(Fault(0.0, "slow", "scheduler", 60.0)) == LinkFaults(slow_s=0.5)


class World:
    """What is stored, as an observer sees it, in virtual time."""

    def __init__(self, pods=()):
        self.pods = list(pods)

    @property
    def now_s(self):
        return asyncio.get_running_loop().time()

    def documents(self, resource):
        return self.pods if resource == "pods" else ()


def rested(world, changes_at=(), kind="Pod"):
    """Return when `_rest` ended and what it reported, with a change of that kind at each of these seconds."""
    auditor, changes = Auditor(Switches({})), {}

    async def change():
        for at_s in changes_at:
            await asyncio.sleep(at_s - world.now_s)
            changes[kind] = changes.get(kind, 0) + 1

    async def main():
        task = asyncio.create_task(change())
        await _rest(world, auditor, changes)
        task.cancel()
        return world.now_s

    ended_s = simloop.run(main())
    return ended_s, [(each.invariant, each.objects, each.detail) for each in auditor.violations]


def test_a_mesh_is_at_rest_when_no_workload_has_changed_for_ten_seconds():
    assert rested(World()) == (QUIET_S, [])
    assert rested(World(), [4.9]) == (5.0 + QUIET_S, [])
    assert rested(World(), [4.9, 12.4]) == (12.5 + QUIET_S, [])
    assert rested(World(), [4.9], kind="Lease") == (QUIET_S, []), "heartbeats are none"


def test_i28_a_mesh_that_goes_on_changing_is_not_quiet():
    _, reported = rested(World(), range(5, 120, 5))

    assert reported == [("I28", (), f"not quiet {REST_LIMIT_S:g} s after the last heal")]


def a_pod(name, node="", **more):
    return {
        "metadata": {"name": name, "namespace": "x", **more.pop("metadata", {})},
        "spec": {"nodeName": node},
        **more,
    }


def test_i20_a_pod_without_a_node_is_no_rest_and_one_that_leaves_or_has_ended_is():
    waiting = [a_pod("old", metadata={"deletionTimestamp": "t"}), a_pod("failed", status={"phase": "Failed"})]
    assert rested(World(waiting)) == (QUIET_S, [])

    _, reported = rested(World([*waiting, a_pod("new"), a_pod("bare", status={"phase": "Pending"})]))
    assert reported == [
        ("I20", ("Pod x/new",), "is still unscheduled at rest"),
        ("I20", ("Pod x/bare",), "is still unscheduled at rest"),
        ("I28", (), "not at rest 60 s after the last heal"),
    ]


class Result:
    def __init__(self, error="", violations=(), failures=()):
        self.error, self.violations, self.failures = error, violations, failures


def test_the_problem_of_a_run_is_its_error_or_the_first_three_of_what_broke_and_of_processes_that_ended():
    broken = [Violation(f"I{n}", 1.0, (f"Pod x/{n}",), "", "twice") for n in range(4)]
    ended = [f"process {n} ended" for n in range(4)]

    assert ChaosRun(Result("no such file", broken)).problem == "no such file"
    assert ChaosRun(Result(violations=broken, failures=ended)).problem == (
        "I0: Pod x/0 twice; I1: Pod x/1 twice; I2: Pod x/2 twice; process 0 ended; process 1 ended; process 2 ended"
    )
    assert ChaosRun(Result()).problem == ""


@pytest.mark.parametrize(("must_rest", "ending"), [(True, ""), (False, " --no-rest")])
def test_a_seed_is_repeated_by_the_command_that_it_is_shown_with(must_rest, ending):
    job = ChaosJob("my runaway.txt", ("kubelet.on_reject=unbind",), 7, must_rest=must_rest)

    assert job.command == f"keplab chaos 'my runaway.txt' --seed 7 --seeds 1 --set kubelet.on_reject=unbind{ending}"
