"""Containers that are begun and ended by hooks, and noticed when their node looks. Virtual time is a plain number."""

import math

import pytest

from kubelet.effects import PodEnded, RecordEvent
from kubelet.runtime.pleg import GENERIC, Pleg
from tests.unit.kubelet.pod.test_pod import Life


def hooked(a_pod, run="", *, spec=None, **hooks):
    return a_pod(containers=[{"name": "main", "image": "img", "lifecycle": hooks}], run=run, spec=spec or {})


def asked(a_pod, life_pod, **pleg):
    """A life whose node asks its runtime every second."""
    return Life(life_pod, pleg=Pleg(GENERIC, **pleg))


def words(life, reason):
    return [a.message for _, a in life.log if isinstance(a, RecordEvent) and a.reason == reason]


def exec_hook(line):
    return {"exec": {"command": ["/bin/sh", "-c", line]}}


@pytest.mark.parametrize(
    ("run", "hook", "ready_s"),
    [
        ("", exec_hook("sleep 4"), 4),
        ("", {"sleep": {"seconds": 6}}, 6),
        ("", {"httpGet": {"path": "/warm", "port": 80}}, 0),
        ("poststart 7s", {"httpGet": {"path": "/warm", "port": 80}}, 7),
        ("poststart 3s; ready after 5s", exec_hook("true"), 5),
    ],
)
def test_a_container_is_ready_once_its_post_start_hook_has_ended(a_pod, run, hook, ready_s):
    life = Life(hooked(a_pod, run, postStart=hook)).run(20)

    assert life.worker.conditions["Ready"].status == "True"
    assert life.true_at["Ready"][1] == pytest.approx(ready_s, abs=1e-5)


def test_while_a_post_start_hook_runs_its_container_waits_and_the_next_does_not_start(a_pod):
    first = {"name": "a", "lifecycle": {"postStart": {"sleep": {"seconds": 5}}}}
    life = Life(a_pod(containers=[first, {"name": "b"}])).run(2)

    assert life.status["phase"] == "Pending"
    assert life.container("a")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert words(life, "Started") == ["Container started"]

    life.run(6)

    assert life.status["phase"] == "Running"
    assert life.recorded("Started") == [0, 5]


def test_a_post_start_hook_that_fails_ends_its_container_and_says_so_until_the_next_sync(a_pod):
    life = Life(hooked(a_pod, "poststart fails after 2s", postStart=exec_hook("warm up"))).run(3)

    assert (life.recorded("FailedPostStartHook"), words(life, "FailedPostStartHook")) == ([2], ["PostStartHook failed"])
    assert words(life, "Killing") == ["FailedPostStartHook"]
    waiting = life.container()["state"]["waiting"]
    assert waiting["reason"] == "PostStartHookError"
    assert waiting["message"].startswith(
        'Exec lifecycle hook ([/bin/sh -c warm up]) for Container "main" in Pod "p_default(uid-p)" failed - error: '
    )

    life.run(38)

    assert life.recorded("Started") == [0, 12, 24]
    assert life.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert life.container()["restartCount"] == 2


def test_a_post_start_hook_that_opens_a_socket_fails_as_upstream(a_pod):
    life = Life(hooked(a_pod, postStart={"tcpSocket": {"port": 80}}, spec={"restartPolicy": "Never"})).run(5)

    assert life.status["phase"] == "Succeeded"
    assert life.recorded("FailedPostStartHook") == [0]


def test_a_container_that_ends_takes_its_post_start_hook_with_it(a_pod):
    life = Life(hooked(a_pod, "exit 3 after 2s", postStart=exec_hook("sleep 60"), spec={"restartPolicy": "Never"}))
    life.run(5)

    assert life.recorded("FailedPostStartHook") == [2]
    assert life.container()["state"]["terminated"]["exitCode"] == 3


def test_a_post_start_hook_that_hangs_is_cut_when_the_pod_is_deleted(a_pod):
    life = Life(hooked(a_pod, postStart=exec_hook("sleep infinity"))).run(100)
    assert life.status["phase"] == "Pending"

    life.take(life.worker.terminate(100, 30, "deleted"))
    life.run(200)

    assert life.at(PodEnded) == [100]


@pytest.mark.parametrize(
    ("run", "hook", "grace_s", "failed_s", "ends_s"),
    [
        ("", exec_hook("sleep 3"), 30, [], 13),
        ("", exec_hook("sleep 3; exit 1"), 30, [13], 13),
        ("prestop fails after 4s", {"httpGet": {"port": 80}}, 30, [14], 14),
        ("", {"tcpSocket": {"port": 80}}, 30, [10], 10),
        ("on SIGTERM ignore", exec_hook("sleep infinity"), 5, [], 17),
        ("on SIGTERM ignore", exec_hook("sleep 4"), 5, [], 16),
    ],
)
def test_a_pre_stop_hook_runs_within_the_grace_period_and_leaves_two_seconds(
    a_pod, run, hook, grace_s, failed_s, ends_s
):
    life = Life(hooked(a_pod, run, preStop=hook)).run(10)

    life.take(life.worker.terminate(10, grace_s, "deleted"))
    life.run(100)

    assert (life.recorded("FailedPreStopHook"), life.at(PodEnded)) == (failed_s, [ends_s])
    assert words(life, "FailedPreStopHook") == ["PreStopHook failed"] * len(failed_s)


# --- what is noticed when (pleg) ---


def test_a_node_that_asks_every_second_notices_starts_and_ends_at_the_next_relist(a_pod):
    life = asked(a_pod, a_pod(run="exit 0 after 2.2s", spec={"restartPolicy": "Never"}), share=0.5)

    assert life.status["phase"] == "Pending"
    life.run(2.4)
    assert life.true_at["Ready"][1] == 0.5
    assert life.status["phase"] == "Running"
    life.run(5)

    assert life.at(PodEnded) == [2.5]
    ended = life.container()["state"]["terminated"]
    assert ended["finishedAt"].endswith(":42Z")


def test_a_container_that_the_kubelet_stops_needs_no_relist(a_pod):
    life = asked(a_pod, a_pod(), share=0.5).run(10)

    life.take(life.worker.terminate(10, 30, "deleted"))
    life.run(20)

    assert life.at(PodEnded) == [10]


def test_a_back_off_counts_from_the_end_not_from_when_it_was_noticed(a_pod):
    life = asked(a_pod, a_pod(run="crash after 1.25s"), share=0.5).run(30)

    assert life.recorded("BackOff")[0] == 3.5
    assert life.recorded("Started")[:3] == [0, 1.5, 12.75]


def test_as_long_as_relists_are_stuck_no_container_is_seen_to_end(a_pod):
    life = asked(a_pod, a_pod(run="exit 0 after 5s", spec={"restartPolicy": "Never"}), share=0.5).run(3)
    pleg = life.worker.containers[0].pleg

    pleg.stick(3.0, math.inf)
    life.take(life.worker.pleg_changed(3.0))
    life.run(100)
    assert life.status["phase"] == "Running"
    pleg.stick(100.0, 0.0)
    life.take(life.worker.pleg_changed(100.0))
    life.run(101)

    assert life.at(PodEnded) == [100.0]
