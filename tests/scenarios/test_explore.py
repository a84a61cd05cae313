"""The race explorer: it finds what only one order breaks, shrinks it, replays it, and finds nothing in what is right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.__main__ import run
from lab.explore.moments import parse_event
from lab.explore.recorder import Trial
from lab.explore.replay import read_replay, write_replay
from lab.explore.schedules import Hold
from lab.explore.search import Task, explore, record, run_replay
from lab.scenarios.run import load_scenario, simulate
from services.api.wire import Request, encode
from services.client.client import Client

RACES = Path(__file__).parents[2] / "experiments" / "races"
FREED_CAPACITY = str(RACES / "freed-capacity.txt")
BIND_OF_P = parse_event("ev=sched.bind_call,obj=p")
SAME_NAME = """
nodes n1 cpu=4
pod p cpu=1
wait 20ms
delete pod/p grace=0
pod p cpu=1
wait 5s
"""
BUDGET = 40
ENOUGH = 80
"""Runs until the planted race is found: every component that watches pods adds deliveries to try."""


@pytest.fixture
def same_name(tmp_path):
    path = tmp_path / "same-name.txt"
    path.write_text(SAME_NAME)
    return str(path)


def plant_a_bind_of_whatever_has_the_name(monkeypatch):
    """Guarantees 12.12, M12: harmless unless the Binding comes after the pod was deleted and made again."""

    async def bind(self, key, uid_of_pod, node, *, expected_unbind_count=None, traceparent="", **_):
        body = {
            "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            "metadata": {"name": key.name, "namespace": key.namespace},
        }  # fmt: skip
        request = Request(
            verb="create", resource="pods", namespace=key.namespace, name=key.name, subresource="binding",
            body=encode(body), traceparent=traceparent,
        )  # fmt: skip
        return (await self.call(request)).unwrap().rv

    monkeypatch.setattr(Client, "bind", bind)


def task(scenario, event="sched.bind_call,n=1", budget=BUDGET, **more):
    return Task(scenario, parse_event(event), budget, workers=1, **more)


def test_a_planted_race_is_found_shrunk_and_replayed_to_the_same_digest(same_name, monkeypatch, tmp_path):
    plant_a_bind_of_whatever_has_the_name(monkeypatch)
    assert record(Trial(same_name, 0, ())).breaks == []

    report = explore(task(same_name, budget=ENOUGH))

    (found,) = report.found
    assert report.runs <= ENOUGH
    assert found.broke.broke == "I3"
    assert [hold.delivery for hold in found.schedule] == ["scheduler > create pods/default/p/binding #1"]
    assert 0.015 < found.schedule[0].held_s < 0.025
    saved = tmp_path / "race.json"
    saved.write_text(write_replay(found, "sched.bind_call"))
    again, is_same = run_replay(read_replay(saved))
    assert is_same
    assert again.broke == found.broke


def test_the_same_budget_finds_nothing_where_nothing_is_wrong(same_name):
    report = explore(task(same_name))

    assert report.runs == BUDGET
    assert report.found == []


def test_exploring_twice_finds_the_same(same_name, monkeypatch):
    plant_a_bind_of_whatever_has_the_name(monkeypatch)

    first, second = (explore(task(same_name, budget=ENOUGH, seeds=(0, 1), is_over_at_first=True)) for _ in range(2))

    assert [(f.broke, f.first, f.schedule, f.run.result.digest) for f in first.found] == [
        (f.broke, f.first, f.schedule, f.run.result.digest) for f in second.found
    ]


def test_kep_5836_13_1_a_resize_evicts_and_another_resize_gets_the_capacity():
    report = explore(task(str(RACES / "resized-capacity.txt"), "sched.victim", is_over_at_first=True))

    (found,) = report.found
    assert found.broke.objects == ("Pod default/a",)
    assert len(found.schedule) == 1


def test_kep_5836_13_6_another_scheduler_takes_the_capacity_that_was_freed():
    report = explore(task(FREED_CAPACITY, "ev=sched.bind_call,obj=p"))

    (found,) = report.found
    assert found.broke.objects == ("Pod default/p",)
    assert [hold.delivery for hold in found.schedule] == ["scheduler > create pods/default/p/binding #1"]


def test_one_scheduler_gives_the_freed_capacity_to_no_other_pod():
    report = explore(task(str(RACES / "one-scheduler.txt"), "ev=sched.bind_call,obj=p"))

    assert report.found == []


def test_a_finished_pod_is_deleted_at_once_though_nothing_else_happens_on_its_node():
    # The end of v is in the API by an answer and a watch event together; there is nothing left to write, nor to wake.
    late = Hold("scheduler > create pods/default/p/binding #1", 0.4)

    run = record(Trial(str(RACES / "one-scheduler.txt"), 0, (), (late,)))

    stopped_s = next(line.mono_ns / 1e9 for line in run.lines if line.ev == "kubelet.stop")
    deleted_s = next(d.sent_s for d in run.deliveries if "kubelet/h0 > delete pods/default/v #1" in d.names)
    assert deleted_s - stopped_s < 0.01


@pytest.mark.parametrize("scenario", ["preemption/basic", "crashes/power-cut", "several-schedulers/same-name"])
def test_holding_nothing_back_changes_no_digest(scenario):
    path = RACES.parent / f"{scenario}.txt"

    assert record(Trial(str(path), 3, ())).result.digest == simulate(load_scenario(path), seed=3).digest


def test_a_saved_schedule_replays_byte_for_byte_in_other_interpreters(tmp_path, capsys):
    saved, picture = tmp_path / "race.json", tmp_path / "race.svg"
    around = ["--around", "ev=sched.bind_call,obj=p", "--budget", "40", "--first"]

    with pytest.raises(SystemExit) as end:
        run(["explore", FREED_CAPACITY, *around, "--save", str(saved), "--svg", str(picture), "-o", "json"])

    assert end.value.code == 1
    document = json.loads(capsys.readouterr().out)
    assert {"scenario", "around", "runs", "found"} <= set(document)
    (found,) = document["found"]
    assert {"broke", "objects", "at", "seed", "schedule", "steps"} <= set(found)
    assert len(found["schedule"]) <= 2
    assert found["steps"][-1]["kind"] == "broke"
    assert picture.read_text().startswith("<svg")
    with pytest.raises(SystemExit):
        run(["run", FREED_CAPACITY, "--schedule", str(saved), "-o", "json"])
    assert [again["digest"] for again in json.loads(capsys.readouterr().out)] == [found["digest"]]
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "lab.cli", "explore", "--replay", str(saved), "-o", "json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
            cwd=RACES.parents[1],
        )
        again = json.loads(done.stdout)
        assert done.returncode == 1
        assert again["same_digest"]
        assert again["digest"] == found["digest"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([FREED_CAPACITY, "--around", "sched.bindcall"], "did you mean sched.bind_call"),
        ([FREED_CAPACITY, "--around", "sched.bind_call,obj=absent"], "they are about default/v, default/p"),
        ([FREED_CAPACITY], "--around EVENT"),
        (["nowhere.txt", "--around", "x"], "No such file"),
        (["--replay", FREED_CAPACITY], "no schedule that `keplab explore --save` wrote"),
    ],
)
def test_what_cannot_be_explored_is_wrong_usage_and_says_why(arguments, says, capsys):
    with pytest.raises(SystemExit) as end:
        run(["explore", *arguments])

    assert end.value.code == 2
    assert says in capsys.readouterr().err
