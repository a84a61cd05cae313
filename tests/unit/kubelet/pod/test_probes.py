"""Probes: what is asked when, what counts, and what a container suffers for its answers. Time is a plain number."""

import msgspec
import pytest

from kubelet.effects import PodEnded, RecordEvent
from kubelet.pod.context import Policy
from kubelet.runtime.probers import failure_text
from kubelet.runtime.script import Outage, ScriptError, parse_script
from kubelet.view import KubeletContainer, Probe
from services.api.kinds.pod import PodStatus
from tests.unit.kubelet.pod.test_pod import Life

HTTP = {"httpGet": {"path": "/healthz", "port": "web"}}


def probed(a_pod, run="", *, init=(), spec=None, **probes):
    """A pod with one container that has these probes: `liveness={"periodSeconds": 5}`."""
    container = {"name": "main", "image": "img", "ports": [{"name": "web", "containerPort": 8080}]}
    container |= {f"{kind}Probe": {**HTTP, **fields} for kind, fields in probes.items()}
    return a_pod(containers=[container], run=run, spec={"initContainers": list(init), **(spec or {})})


def unhealthy(life):
    return [(round(t, 3), a.message) for t, a in life.log if isinstance(a, RecordEvent) and a.reason == "Unhealthy"]


def killing(life):
    return [(round(t, 3), a.message) for t, a in life.log if isinstance(a, RecordEvent) and a.reason == "Killing"]


def ready_at(life, t):
    return life.run(t).container()["ready"]


def test_a_container_with_a_readiness_probe_is_unready_until_it_succeeds(a_pod):
    life = Life(probed(a_pod, "answer after 12s", readiness={"initialDelaySeconds": 1, "periodSeconds": 5}))

    assert [ready_at(life, t) for t in (0.5, 2, 11.5, 15.9, 16.1)] == [False, False, False, False, True]
    assert [t for t, _ in unhealthy(life)] == [1, 6, 11]
    assert unhealthy(life)[0][1] == (
        'Readiness probe failed: Get "http://10.0.0.1:8080/healthz": dial tcp 10.0.0.1:8080: connect: connection refused'
    )


def test_readiness_is_lost_after_three_failures_and_regained_after_as_many_successes_as_asked(a_pod):
    probe = {"periodSeconds": 10, "failureThreshold": 3, "successThreshold": 2}
    life = Life(probed(a_pod, "fail readiness after 95s for 100s", readiness=probe))

    assert [ready_at(life, t) for t in (9, 11, 119, 121, 201, 209, 211)] == [
        False, True, True, False, False, False, True,
    ]  # fmt: skip
    assert life.container()["restartCount"] == 0


def test_a_pod_is_ready_only_while_all_its_probes_say_so(a_pod):
    life = Life(probed(a_pod, "ready after 30s", readiness={}))

    life.run(29)
    assert life.worker.conditions["ContainersReady"].reason == "ContainersNotReady"
    assert life.worker.conditions["Ready"].message == "containers with unready status: [main]"
    life.run(31)
    assert life.worker.conditions["Ready"].status == "True"


def test_a_container_that_fails_its_liveness_probe_three_times_is_killed_and_restarted(a_pod):
    life = Life(probed(a_pod, "fail liveness after 15s", liveness={"periodSeconds": 5})).run(26)

    assert [t for t, _ in unhealthy(life)] == [15, 20, 25]
    assert killing(life) == [(25, "Container main failed liveness probe, will be restarted")]
    assert life.recorded("Started") == [0, 25]
    assert life.container()["restartCount"] == 1


def test_an_unhealthy_container_is_restarted_at_once_until_its_back_off_outlasts_its_life(a_pod):
    pod = probed(a_pod, "fail liveness after 5s", liveness={"periodSeconds": 5, "failureThreshold": 1})
    life = Life(pod, policy=Policy(crashloop_initial_s=10, crashloop_max_s=300)).run(200)

    # Back-off counts from the end of the run before (nothing, 5, 10, 20): nothing, nothing, then 10 and 20 s after that.
    assert life.recorded("Started")[:5] == [0, 5, 10, 20, 35]
    assert life.recorded("BackOff")[0] == 15


def test_a_condemned_container_gets_the_probes_own_grace_period(a_pod):
    probe = {"periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 3}
    life = Life(probed(a_pod, "on SIGTERM ignore; fail liveness after 10s", liveness=probe)).run(12.9)
    assert life.container()["restartCount"] == 0
    assert [t for t, _ in unhealthy(life)] == [10]  # not asked again before there is a new run

    life.run(13.1)

    assert life.container()["lastState"]["terminated"]["exitCode"] == 137
    assert life.container()["restartCount"] == 1


def test_a_condemned_container_of_a_pod_that_may_not_restart_fails_it(a_pod):
    pod = probed(a_pod, "on SIGTERM exit 3; fail liveness after 10s", liveness={}, spec={"restartPolicy": "Never"})
    life = Life(pod).run(60)

    assert killing(life) == [(30, "Container main failed liveness probe")]
    assert life.status["phase"] == "Failed"


def test_on_failure_restarts_a_condemned_container_that_exits_0(a_pod):
    pod = probed(a_pod, "fail liveness after 10s", liveness={}, spec={"restartPolicy": "OnFailure"})

    assert Life(pod).run(31).container()["restartCount"] == 1


def test_a_slow_start_is_killed_by_liveness_but_not_with_a_startup_probe(a_pod):
    slow = "answer after 40s"
    hasty = Life(probed(a_pod, slow, liveness={})).run(100)
    patient = Life(probed(a_pod, slow, liveness={}, readiness={}, startup={"failureThreshold": 30})).run(100)

    assert hasty.container()["restartCount"] >= 2
    assert patient.container()["restartCount"] == 0
    assert [t for t, _ in unhealthy(patient)] == [0, 10, 20, 30]
    assert all(text.startswith("Startup probe failed") for _, text in unhealthy(patient))
    assert patient.container()["ready"]


def test_a_container_is_not_started_before_its_startup_probe_succeeds(a_pod):
    life = Life(probed(a_pod, "answer after 40s", startup={"failureThreshold": 30}))

    assert life.run(39).container()["started"] is False
    assert life.container()["ready"] is False
    assert life.run(41).container()["started"] is True
    assert life.container()["ready"] is True


def test_a_startup_probe_that_never_succeeds_kills(a_pod):
    life = Life(probed(a_pod, "answer after 10m", startup={"failureThreshold": 2})).run(11)

    assert killing(life) == [(10, "Container main failed startup probe, will be restarted")]


def test_a_sidecar_holds_back_what_follows_until_its_startup_probe_succeeds(a_pod):
    init = [
        {"name": "side", "restartPolicy": "Always", "startupProbe": {**HTTP, "periodSeconds": 2, "failureThreshold": 9}}
    ]
    pod = a_pod(spec={"initContainers": init}, metadata={"annotations": {"keplab.dev/run.side": "answer after 5s"}})
    life = Life(pod).run(5.9)
    assert life.recorded("Started") == [0]
    assert life.worker.conditions["Initialized"].status == "False"

    life.run(6.1)

    assert life.recorded("Started") == [0, 6]
    assert life.worker.conditions["Initialized"].status == "True"


def test_a_probe_that_hangs_fails_after_its_timeout(a_pod):
    life = Life(probed(a_pod, "hang after 5s for 10s", readiness={"periodSeconds": 10, "timeoutSeconds": 3})).run(30)

    assert [t for t, _ in unhealthy(life)] == [13]
    assert "context deadline exceeded" in unhealthy(life)[0][1]


def test_a_pod_that_is_being_stopped_is_not_killed_for_its_liveness(a_pod):
    life = Life(probed(a_pod, "on SIGTERM ignore; fail after 10s", liveness={}, readiness={})).run(9)

    life.take(life.worker.terminate(9, 60, "deleted"))
    life.run(100)

    assert life.at(PodEnded) == [69]
    assert killing(life) == [(9, "Stopping container main")]
    assert [t for t, _ in unhealthy(life)] == [10, 20, 30, 40, 50, 60]


def test_a_pod_deleted_while_a_condemned_container_stops_ends_within_its_own_grace(a_pod):
    probe = {"failureThreshold": 1, "terminationGracePeriodSeconds": 600}
    life = Life(probed(a_pod, "on SIGTERM ignore; fail after 10s", liveness=probe)).run(11)

    life.take(life.worker.terminate(11, 5, "deleted"))
    life.run(60)

    assert life.at(PodEnded) == [16]


def test_kubelet_15_a_restarted_kubelet_keeps_what_its_probes_last_said(a_pod):
    fields = {"readiness": {"failureThreshold": 1}, "startup": {}}
    before = Life(probed(a_pod, "ready after 5s", **fields)).run(30)
    pod = msgspec.structs.replace(before.worker.pod, status=msgspec.convert(before.status, PodStatus))

    after = Life(pod, adopt=before.record, now=50)

    assert after.container()["ready"]
    assert after.container()["started"]
    after.run(100)
    assert after.container()["ready"]
    assert not unhealthy(after)


def test_a_healthy_container_costs_no_timer(a_pod):
    life = Life(probed(a_pod, "", liveness={}, readiness={}, startup={})).run(1)

    assert life.worker.due_s is None


@pytest.mark.parametrize(
    ("probe", "how", "text"),
    [({"httpGet": {"path": "/x", "port": 80, "scheme": "HTTPS"}}, "fails", "HTTP probe failed with statuscode: 503"),
     ({"tcpSocket": {"port": 80}}, "fails", "dial tcp 10.0.0.9:80: connect: connection refused"),
     ({"tcpSocket": {"port": 80}}, "hangs", "dial tcp 10.0.0.9:80: i/o timeout"),
     ({"grpc": {"port": 9}}, "fails", 'service unhealthy (responded with "NOT_SERVING")'),
     ({"grpc": {"port": 9}, "timeoutSeconds": 2}, "refuses",
      'timeout: failed to connect service "10.0.0.9:9" within 2s: context deadline exceeded'),
     ({"exec": {"command": ["cat", "/ok"]}}, "fails", "cat /ok: exit status 1"),
     ({"exec": {"command": ["cat", "/ok"]}}, "hangs", 'command timed out: "cat /ok" timed out after 1s')],
)  # fmt: skip
def test_each_kind_of_probe_fails_in_its_own_words(probe, how, text):
    assert failure_text(msgspec.convert(probe, Probe), KubeletContainer(), how, "10.0.0.9") == text


def test_the_script_says_what_probes_are_answered():
    script = parse_script("answer after 5s; fail liveness after 1m for 10s; hang after 2m")

    assert script.outages[1] == Outage("liveness", "fails", 60, 70)
    assert [script.answer("liveness", t) for t in (0, 5, 60, 70, 120)] == ["refuses", "", "fails", "", "hangs"]
    assert [script.next_answer_s("readiness", t) for t in (0, 5, 120)] == [5, 120, None]
    with pytest.raises(ScriptError, match="fail liveness"):
        parse_script("fail liveness")


def test_a_readiness_gate_says_whether_its_condition_is_missing_or_false(a_pod):
    gates = {"readinessGates": [{"conditionType": "a.b/x"}, {"conditionType": "a.b/y"}]}
    life = Life(a_pod(spec=gates, status={"conditions": [{"type": "a.b/y", "status": "False"}]}))

    assert life.worker.conditions["Ready"].message == (
        'corresponding condition of pod readiness gate "a.b/x" does not exist., '
        'the status of pod readiness gate "a.b/y" is not "True", but False'
    )


def test_a_pod_past_its_active_deadline_fails(a_pod):
    pod = a_pod(spec={"activeDeadlineSeconds": 20, "terminationGracePeriodSeconds": 5}, run="on SIGTERM ignore")
    life = Life(pod).run(60)

    assert life.recorded("DeadlineExceeded") == [20]
    assert life.at(PodEnded) == [25]
    assert life.status["phase"] == "Failed"
    assert life.status["reason"] == "DeadlineExceeded"
    assert life.status["message"] == "Pod was active on the node longer than the specified deadline"


def test_a_prestop_hook_that_sleeps_takes_its_seconds(a_pod):
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 4}}}}
    life = Life(a_pod(containers=[{"name": "main", **hook}])).run(1)

    life.take(life.worker.terminate(1, 30, "deleted"))
    life.run(60)

    assert life.at(PodEnded) == [5]


@pytest.mark.parametrize(
    ("probe", "warned"), [({"httpGet": {"port": 80}}, [0, 10, 20]), ({"tcpSocket": {"port": 80}}, [])]
)
def test_a_probe_that_is_sent_elsewhere_succeeds_and_warns_each_time(a_pod, probe, warned):
    containers = [{"name": "main", "readinessProbe": probe}]
    life = Life(a_pod(containers=containers, run="warn readiness after 0s for 25s")).run(60)

    assert life.recorded("ProbeWarning") == warned
    assert not life.recorded("Unhealthy")
    assert life.worker.conditions["Ready"].status == "True"
