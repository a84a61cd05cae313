"""What `kubectl logs` reads: one run of a container, and of its lines those that were asked for."""

import pytest

from kubelet.pod.logs import LogOptions, Run, run_of
from kubelet.pod.states import ContainerState
from kubelet.pod.status import waiting_reason
from tests.unit.kubelet.pod.test_pod import Life

WALL_S = 1e9


def the_run(life, now, *, previous=False):
    container = life.worker.containers[0]
    return run_of("p", container, waiting_reason(life.worker, container), now, WALL_S, previous=previous)


def texts(run):
    return [line.text for line in run.lines]


def test_a_log_has_a_start_line_a_line_every_ten_seconds_and_the_exit(a_pod):
    life = Life(a_pod(run="exit 4 after 25s", spec={"restartPolicy": "Never"})).run(30)

    run = the_run(life, 30)

    assert run.is_over
    assert texts(run) == [
        "container main started, restart 0", "still running after 10 s", "still running after 20 s", "exit 4",
    ]  # fmt: skip


def test_the_previous_run_is_the_one_of_last_state(a_pod):
    life = Life(a_pod(run="exit 4 after 25s")).run(45)

    assert (life.worker.containers[0].restarts, life.worker.containers[0].is_running) == (1, True)
    assert texts(the_run(life, 45))[0] == "container main started, restart 1"
    before = the_run(life, 45, previous=True)
    assert before.restart == 0
    assert [texts(before)[0], texts(before)[-1]] == ["container main started, restart 0", "exit 4"]


def test_between_two_runs_both_questions_are_answered_by_the_one_that_ended(a_pod):
    life = Life(a_pod(run="crash after 1s")).run(6)

    assert life.worker.containers[0].state == ContainerState.BACKOFF
    assert texts(the_run(life, 6)) == texts(the_run(life, 6, previous=True))


def test_what_has_no_log_is_refused_in_a_kubelets_words(a_pod):
    fresh = Life(a_pod(run="pull fails for 1m")).run(0.001)
    failed = Life(a_pod(run="pull fails for 1m")).run(8)

    assert the_run(fresh, 0.001) == 'container "main" in pod "p" is waiting to start: ContainerCreating'
    assert the_run(failed, 8) in (
        'container "main" in pod "p" is waiting to start: image can\'t be pulled',
        'container "main" in pod "p" is waiting to start: trying and failing to pull image',
    )
    assert the_run(fresh, 1, previous=True) == 'previous terminated container "main" in pod "p" not found'


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ({}, ["started, restart 0", "after 10 s", "after 20 s"]),
        ({"tailLines": "1"}, ["after 20 s"]),
        ({"tailLines": "0"}, []),
        ({"sinceSeconds": "12"}, ["after 20 s"]),
        ({"sinceTime": "2001-09-09T01:46:55Z"}, ["after 20 s"]),
        ({"limitBytes": "10"}, ["2001-09-09"]),
    ],
)
def test_of_the_lines_those_are_sent_that_were_asked_for(a_pod, query, kept):
    life = Life(a_pod()).run(25)
    asked = LogOptions.of(query, WALL_S + 25)

    sent = asked.cut(the_run(life, 25).lines).decode().splitlines()

    assert [line.endswith(end) for line, end in zip(sent, kept, strict=True)] == [True] * len(kept)


def test_timestamps_are_written_before_each_line(a_pod):
    run = the_run(Life(a_pod()).run(5), 5)

    stamp, own, _ = LogOptions.of({"timestamps": "true"}, WALL_S).cut(run.lines).decode().split(" ", 2)

    assert isinstance(run, Run)
    assert stamp == own


@pytest.mark.parametrize("query", [{"tailLines": "x"}, {"limitBytes": "-1"}, {"sinceTime": "yesterday"}])
def test_an_option_that_cannot_be_read_is_named(query):
    assert next(iter(query)) in LogOptions.of(query, WALL_S)


def test_a_line_has_the_same_place_whenever_it_is_made(a_pod):
    life = Life(a_pod()).run(25)
    container = life.worker.containers[0]

    early = run_of("p", container, "", 15, WALL_S, previous=False)
    late = run_of("p", container, "", 25, WALL_S - 1e-6, previous=False)

    assert [line.place for line in late.lines][: len(early.lines)] == [line.place for line in early.lines]
