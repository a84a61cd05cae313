"""When a process of a mesh begins again, and what is said of why it ended (P14)."""

import os

import pytest

from services.runtime.child import Child
from services.telemetry.otlp import resource_of


def a_child(tmp_path, *, was_ready=True):
    child = Child("scheduler", [], tmp_path / "scheduler.log", tmp_path / "scheduler.ready")
    child.was_ever_ready = was_ready
    return child


def delays(child, count, *, period_s=1.0, code=-9, begin_s=1000.0):
    found = []
    for number in range(count):
        now = begin_s + number * period_s
        child.started_at = now - 0.5
        found.append(child.delay_s(code, now))
    return found


def test_five_quick_restarts_and_then_a_crash_loop_that_doubles_up_to_five_minutes(tmp_path):
    child = a_child(tmp_path)

    assert [0.2, 0.4, 0.8, 1.6, 3.2, 10, 20, 40, 80, 160, 300, 300] == delays(child, 12)


def test_a_process_that_has_never_been_ready_is_in_a_crash_loop_after_one_more_try(tmp_path):
    assert [0.2, 10, 20] == delays(a_child(tmp_path, was_ready=False), 3)


def test_a_crash_loop_is_forgotten_after_ten_minutes_of_life_and_not_before(tmp_path):
    child = a_child(tmp_path)
    delays(child, 7)

    child.started_at = 2000.0
    assert 40 == child.delay_s(-9, 2599.0)
    child.started_at = 3000.0
    assert 0.2 == child.delay_s(-9, 3600.0)


def test_deaths_that_are_far_apart_never_become_a_crash_loop(tmp_path):
    assert [0.2] * 12 == delays(a_child(tmp_path), 12, period_s=61.0)


@pytest.mark.parametrize(("code", "is_tried"), [(64, False), (75, False), (78, False), (70, True), (74, True),
                                               (1, True), (0, True), (120, True), (-9, True)])  # fmt: skip
def test_what_another_try_cannot_change_is_not_tried_again(tmp_path, code, is_tried):
    assert is_tried == (a_child(tmp_path).delay_s(code, 1.0) is not None)


def test_its_state_says_that_it_waits_and_until_when_it_is_forgiven(tmp_path):
    child = a_child(tmp_path)
    child.is_wanted = True
    assert "Starting" == child.state

    child.next_try_at = 1000.0 + delays(child, 1)[-1]
    assert "Restarting" == child.state
    child.next_try_at = 1000.0 + delays(child, 6)[-1]
    assert "CrashLoopBackOff" == child.state
    child.forgive()
    child.next_try_at = None
    assert "Starting" == child.state


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("scheduler: store: No space left on device\n", "scheduler: store: No space left on device (exit 74)"),
        ("", "scheduler ended with exit code 74, input/output error"),
        (
            (
                '{"level":"error","comp":"scheduler","event":"process.crashed","error":"ValueError(3)"}\n'
                '{"level":"error","comp":"scheduler","event":"library.spoke","library":"asyncio","message":"pending"}\n'
            ),
            "scheduler: process.crashed: ValueError(3) (exit 74)",
        ),
        (
            '{"level":"error","comp":"scheduler","event":"library.spoke","library":"grpc","message":"no port"}\n\n',
            "scheduler: library.spoke: grpc: no port (exit 74)",
        ),
        (
            '{"level":"error","comp":"scheduler","event":"library.spoke","message":""}\n',
            "scheduler ended with exit code 74, input/output error",
        ),
    ],
)
def test_its_last_error_says_what_happened(tmp_path, log, said):
    child = a_child(tmp_path)
    child.log.write_text(log)

    assert said == child.why(74)


def test_its_last_error_is_of_its_last_life(tmp_path):
    child = a_child(tmp_path)
    child.log.write_text("scheduler: a port is taken\n")
    child._log_start = child.log.stat().st_size

    assert "scheduler ended with exit code 70, internal error" == child.why(70)


def test_what_it_traces_names_the_run_beside_what_the_environment_says_of_it(tmp_path):
    resource = {"keplab.scenario": "a, b=c", "keplab.seed": "7"}
    child = Child("scheduler", [], tmp_path / "scheduler.log", tmp_path / "scheduler.ready", resource)
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=lab,keplab.seed=1", "KEPLAB_SET": "x", "PYTHONPATH": "/p"}

    found = child.environment(environ)

    assert found["OTEL_RESOURCE_ATTRIBUTES"] == (
        "k8s.cluster.name=lab,keplab.seed=1,keplab.scenario=a%2C%20b%3Dc,keplab.seed=7"
    )
    assert "KEPLAB_SET" not in found
    assert found["PYTHONPATH"].endswith(os.pathsep + "/p")
    assert "OTEL_RESOURCE_ATTRIBUTES" not in a_child(tmp_path).environment({})
    assert a_child(tmp_path).environment(environ)["OTEL_RESOURCE_ATTRIBUTES"] == environ["OTEL_RESOURCE_ATTRIBUTES"]


def test_opentelemetry_reads_the_runs_attributes_and_not_those_they_replace(tmp_path, monkeypatch):
    resource = {"keplab.scenario": "a, b=c", "keplab.seed": "7"}
    child = Child("scheduler", [], tmp_path / "scheduler.log", tmp_path / "scheduler.ready", resource)
    made = child.environment({"OTEL_RESOURCE_ATTRIBUTES": "keplab.seed=1"})
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", made["OTEL_RESOURCE_ATTRIBUTES"])

    attributes = resource_of("scheduler", "scheduler").attributes

    assert {key: attributes[key] for key in resource} == resource
