"""The pod worker: start order, restarts, stopping, adoption. Virtual time is a plain number."""

import itertools

import msgspec
import pytest

from kubelet.effects import (
    CallDrivers,
    PodEnded,
    PodStarted,
    PodStopped,
    PrepareClaims,
    RecordEvent,
    Save,
    SpanStage,
    StatusChanged,
)
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.pod import status
from kubelet.pod.context import NodeRuntime, Policy, WallTimes
from kubelet.pod.pod import Pod
from kubelet.pod.states import ContainerState, IllegalTransition, PodState
from kubelet.runtime.latency import LatencyModel
from kubelet.runtime.records import ContainerRecord
from kubelet.view import worker_key


def a_runtime(latency=(), policy=None, **shared):
    """What the pods of one node share."""
    return NodeRuntime("n1", "1.1.1.1", LatencyModel.parse(latency, 1), policy or Policy(), WallTimes(1e9), **shared)


class Life:
    """Drives one worker: what it wants durable is durable at once; keeps what it asked for, with times."""

    def __init__(self, pod, *, latency=("all=constant:0",), policy=None, adopt=None, now=0.0, **shared):
        self.now = now
        self.log = []
        self.record = None
        runtime = a_runtime(latency, policy, **shared)
        self.worker = Pod(pod, worker_key(pod), runtime, pod_ip="10.0.0.1", allocation=NO_ALLOCATION, now=now)
        self.true_at = {}
        self.take(self.worker.adopt(adopt, now) if adopt else self.worker.begin(now))

    def take(self, actions):
        for kind, held in self.worker.conditions.items():
            if held.status == "True":
                self.true_at.setdefault(kind, (len(self.true_at), self.now))
        for action in actions:
            self.log.append((self.now, action))
            if isinstance(action, Save):
                self.record = self.worker.record()
                self.take(self.worker.on_saved(action.seq, self.now))

    def run(self, until):
        while (due := self.worker.due_s) is not None and due <= until:
            self.now = max(self.now, due)
            self.take(self.worker.advance(self.now))
        self.now = until
        return self

    def at(self, kind):
        return [round(t, 3) for t, a in self.log if isinstance(a, kind)]

    def recorded(self, reason):
        return [round(t, 3) for t, a in self.log if isinstance(a, RecordEvent) and a.reason == reason]

    @property
    def status(self):
        return status.render(self.worker)

    def container(self, name="main"):
        return next(c for c in self.status["containerStatuses"] if c["name"] == name)


def test_kubelet_4_conditions_become_true_and_events_come_in_the_order_of_the_start_sequence(a_pod):
    init = [
        {"name": "i1", "command": ["sleep", "1"]},
        {"name": "side", "restartPolicy": "Always"},
        {"name": "i2", "command": ["sleep", "1"]},
    ]
    life = Life(a_pod(spec={"initContainers": init}), latency=("all=constant:0.1",)).run(10)

    order = sorted(life.true_at, key=lambda kind: life.true_at[kind])
    assert order == ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]
    started = [a.field_path for _, a in life.log if isinstance(a, RecordEvent) and a.reason == "Started"]
    assert started == [*(f"spec.initContainers{{{name}}}" for name in ("i1", "side", "i2")), "spec.containers{main}"]
    assert [a.reason for _, a in life.log if isinstance(a, RecordEvent)][:4] == [
        "Pulling",
        "Pulled",
        "Created",
        "Started",
    ]
    assert life.status["phase"] == "Running"
    assert len(life.at(PodStarted)) == 1


@pytest.mark.parametrize(
    ("max_s", "waits"), [(300.0, [0, 10, 20, 40, 80]), (30.0, [0, 10, 20, 30, 30])]
)  # fmt: skip
def test_kubelet_5_a_container_that_exits_1_at_once_restarts_at_once_and_then_after_10_20_40_80_seconds(
    a_pod, max_s, waits
):
    life = Life(a_pod(run="crash"), policy=Policy(crashloop_max_s=max_s)).run(200)

    starts = life.recorded("Started")
    assert [b - a for a, b in itertools.pairwise(starts)][:5] == waits
    waiting = life.container()["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    assert "restarting failed container=main pod=p_default(uid-p)" in waiting["message"]
    assert life.container()["restartCount"] == len(starts) - 1
    assert life.container()["lastState"]["terminated"]["exitCode"] == 1


def test_a_pod_whose_only_container_is_being_started_again_is_still_running(a_pod):
    life = Life(a_pod(run="crash"), latency=("all=constant:0", "image=constant:1")).run(1.5)

    assert life.worker.containers[0].state == ContainerState.IMAGE
    assert life.status["phase"] == "Running"


def test_ten_minutes_of_running_forgive_earlier_crashes(a_pod):
    life = Life(a_pod(run="crash after 10m")).run(2000)

    starts = life.recorded("Started")
    assert [b - a for a, b in itertools.pairwise(starts)][:2] == [600, 600]


def test_kubelet_7_a_container_that_exits_3_s_after_sigterm_ends_the_pod_then(a_pod):
    life = Life(a_pod(run="on SIGTERM exit 0 after 3s")).run(5)

    life.take(life.worker.terminate(5, 30, "deleted"))
    life.run(60)

    assert life.at(PodStopped) == [8]
    assert life.at(PodEnded) == [8]
    assert life.status["phase"] == "Succeeded"
    assert life.container()["state"]["terminated"]["exitCode"] == 0


def test_kubelet_8_a_container_that_ignores_sigterm_is_killed_at_5_s_with_137(a_pod):
    life = Life(a_pod(run="on SIGTERM ignore")).run(1)

    life.take(life.worker.terminate(1, 5, "deleted"))
    life.run(60)

    assert life.at(PodEnded) == [6]
    assert life.container()["state"]["terminated"]["exitCode"] == 137
    assert life.status["phase"] == "Failed"


def test_a_second_delete_with_a_shorter_grace_shortens_the_termination(a_pod):
    life = Life(a_pod(run="on SIGTERM ignore")).run(1)
    life.take(life.worker.terminate(1, 30, "deleted"))
    life.run(4)

    life.take(life.worker.terminate(4, 2, "deleted"))
    life.run(60)

    assert life.at(PodEnded) == [6]


def test_a_prestop_hook_that_uses_up_the_grace_buys_two_seconds(a_pod):
    life = Life(a_pod(run="prestop 60s; on SIGTERM ignore")).run(1)

    life.take(life.worker.terminate(1, 5, "deleted"))
    life.run(60)

    assert life.at(PodEnded) == [8]


def test_a_pod_deleted_before_any_container_ran_is_failed_and_never_logged_as_started(a_pod):
    life = Life(a_pod(), latency=("all=constant:1",)).run(1.5)

    life.take(life.worker.terminate(1.5, 30, "deleted"))

    assert life.status["phase"] == "Failed"
    assert life.at(PodEnded) == [1.5]
    assert not life.at(PodStarted)
    assert not life.at(PodStopped)
    assert life.container()["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


@pytest.mark.parametrize(
    ("policy", "run", "phase"),
    [("Never", "exit 0 after 5s", "Succeeded"), ("Never", "exit 3 after 5s", "Failed"),
     ("OnFailure", "exit 0 after 5s", "Succeeded"), ("OnFailure", "exit 3 after 5s", "Running"),
     ("Always", "exit 0 after 5s", "Running")],
)  # fmt: skip
def test_the_phase_after_the_end_follows_from_codes_and_restart_policy(a_pod, policy, run, phase):
    life = Life(a_pod(run=run, spec={"restartPolicy": policy})).run(6)

    assert life.status["phase"] == phase


def test_sidecars_stop_after_the_main_container_in_reverse_order(a_pod):
    init = [{"name": "s1", "restartPolicy": "Always"}, {"name": "s2", "restartPolicy": "Always"}]
    pod = a_pod(run="exit 0 after 5s", spec={"initContainers": init, "restartPolicy": "Never"})
    life = Life(pod, latency=("all=constant:0", "stop=constant:1")).run(60)

    killed = [(t, a.message) for t, a in life.log if isinstance(a, RecordEvent) and a.reason == "Killing"]
    assert killed == [(5, "Stopping container s2"), (6, "Stopping container s1")]
    assert life.at(PodEnded) == [7]
    assert life.status["phase"] == "Succeeded"


def test_a_failed_init_container_fails_a_pod_that_may_not_restart(a_pod):
    pod = a_pod(spec={"initContainers": [{"name": "i", "command": ["false"]}], "restartPolicy": "Never"})
    life = Life(pod).run(60)

    assert life.status["phase"] == "Failed"
    assert "waiting" in life.container()["state"]


def test_a_container_counts_as_started_only_once_its_record_is_durable(a_pod):
    pod = a_pod()
    worker = Pod(pod, worker_key(pod), a_runtime(("all=constant:0",)), pod_ip="", allocation=NO_ALLOCATION, now=0.0)

    actions = worker.begin(0.0)
    assert any(isinstance(a, Save) for a in actions)
    assert not any(isinstance(a, PodStarted | StatusChanged) for a in actions)

    actions = worker.on_saved(1, 0.5)
    assert any(isinstance(a, PodStarted) for a in actions)
    assert status.phase_of(worker) == "Running"


def test_with_the_start_fence_no_container_starts_before_the_acknowledgement(a_pod):
    life = Life(a_pod(), policy=Policy(start_fence=True)).run(100)
    assert not life.at(PodStarted)

    life.take(life.worker.start_acked(100))

    assert life.at(PodStarted) == [100]


def test_kubelet_15_a_restarted_kubelet_adopts_containers_without_starting_them_again(a_pod):
    before = Life(a_pod(run="exit 7 after 100s", spec={"restartPolicy": "Never"})).run(30)
    status = before.status
    pod = a_pod(run="exit 7 after 100s", spec={"restartPolicy": "Never"}, status=status)

    after = Life(pod, adopt=before.record, now=50)

    assert not after.at(PodStarted)
    assert after.status["conditions"] == [c for c in status["conditions"] if c["type"] != "PodScheduled"]
    assert after.status["containerStatuses"] == status["containerStatuses"]
    after.run(200)
    assert after.at(PodStopped) == [100]
    assert after.status["phase"] == "Failed"


def test_a_condition_that_was_written_without_a_transition_time_is_kept_without_one(a_pod):
    before = Life(a_pod()).run(30)
    foreign = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    pod = a_pod(status=before.status | {"conditions": [*before.status["conditions"], foreign]})

    after = Life(pod, adopt=before.record, now=50)

    kept = next(c for c in after.status["conditions"] if c["type"] == "PodResizePending")
    assert "lastTransitionTime" not in kept


def test_a_container_that_ended_between_relists_ended_when_it_ended(a_pod):
    before = Life(a_pod(run="exit 0 after 10s", spec={"restartPolicy": "Never"})).run(5)

    after = Life(a_pod(run="exit 0 after 10s", spec={"restartPolicy": "Never"}), adopt=before.record, now=500)

    finished = after.container()["state"]["terminated"]["finishedAt"]
    assert finished == WallTimes(1e9).text(10)
    assert after.status["phase"] == "Succeeded"


def test_a_record_of_a_finished_pod_never_starts_it_again(a_pod):
    before = Life(a_pod(run="exit 3", spec={"restartPolicy": "Never"})).run(5)
    assert before.record.is_finished

    after = Life(a_pod(run="exit 3", spec={"restartPolicy": "Never"}), adopt=before.record, now=9)

    assert after.status["phase"] == "Failed"
    assert not after.at(PodStarted)
    assert not after.at(PodStopped)


def test_readiness_follows_the_script(a_pod):
    life = Life(a_pod(run="ready after 5s; flap 1s 3"))

    def ready_at(t):
        life.run(t)
        return life.container()["ready"]

    assert [ready_at(t) for t in (4.9, 5.5, 6.5, 7.5, 8.5, 100)] == [False, True, False, True, False, False]


def test_a_readiness_gate_that_is_not_met_keeps_the_pod_unready(a_pod):
    gates = {"readinessGates": [{"conditionType": "example.com/up"}]}
    life = Life(a_pod(spec=gates))
    assert life.worker.conditions["ContainersReady"].status == "True"
    assert life.worker.conditions["Ready"].reason == "ReadinessGatesNotReady"

    met = {"conditions": [{"type": "example.com/up", "status": "True"}]}
    life.take(life.worker.update(a_pod(spec=gates, status=met), 1))

    assert life.worker.conditions["Ready"].status == "True"


def test_a_container_that_completed_beside_a_running_one_does_not_run_again_after_the_kubelet_was_killed(a_pod):
    pod = a_pod(containers=[{"name": "once"}, {"name": "main"}], spec={"restartPolicy": "OnFailure"})
    running = [ContainerRecord("once", 0.0, exit_code=0, finished_s=3.0), ContainerRecord("main", 0.0)]
    record = msgspec.structs.replace(Life(pod).run(5).record, containers=running)

    after = Life(pod, adopt=record, now=20.0).run(60)

    assert after.container("once")["state"]["terminated"]["exitCode"] == 0
    assert "running" in after.container("main")["state"]
    assert after.recorded("Started") == []


def test_a_state_that_does_not_follow_is_an_error_where_it_is_tried(a_pod):
    life = Life(a_pod(run="forever")).run(1)

    with pytest.raises(IllegalTransition, match="RUNNING -> STARTING"):
        life.worker.become(PodState.STARTING)
    with pytest.raises(IllegalTransition, match="main: RUNNING -> CREATE"):
        life.worker.containers[0].become(ContainerState.CREATE, 2.0)


def stages(life):
    return [a.stage for _, a in life.log if isinstance(a, SpanStage)]


def test_a_start_names_its_stages_in_their_order_for_its_trace(a_pod):
    life = Life(a_pod(), latency=("all=constant:1",)).run(20)

    assert stages(life) == ["worker", "mount", "sandbox", "image main", "create main"]


def test_a_start_with_claims_has_them_prepared_after_the_volumes_were_mounted_and_before_the_sandbox(a_pod):
    life = Life(a_pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})).run(1)
    assert (stages(life), life.at(PrepareClaims), life.at(CallDrivers)) == (["worker", "mount"], [0], [])

    life.take(life.worker.claims_listed((), 2.0))
    life.take(life.worker.claims_prepared("", 3.0))
    life.run(4)

    assert len(life.at(CallDrivers)) == 1
    assert stages(life)[2:] == ["claims", "mount", "sandbox", "image main", "create main"]
    assert life.status["phase"] == "Running"


def test_a_condition_that_is_true_has_neither_reason_nor_message(a_pod):
    conditions = {each["type"]: each for each in Life(a_pod()).run(5).status["conditions"]}

    assert sorted(conditions) == [
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "PodScheduled",
        "Ready",
    ]
    assert [each for each in conditions.values() if each["status"] != "True" or {"reason", "message"} & set(each)] == []


def test_the_time_of_a_condition_is_that_of_its_last_turn_and_not_of_another_reason(a_pod):
    context = Life(a_pod()).worker

    context.set_condition(10.0, "Own", False, "First", "m")
    since = context.conditions["Own"].since
    context.set_condition(20.0, "Own", False, "Second", "m")
    context.set_condition(30.0, "Own", False, "Second", "n")
    held = context.conditions["Own"]

    assert (held.since, held.reason, held.message) == (since, "Second", "n")
    context.set_condition(40.0, "Own", True)
    assert context.conditions["Own"].since > since


def initialized(life):
    held = life.worker.conditions["Initialized"]
    return held.status, held.reason, held.message


def test_a_failed_init_container_is_named_as_incomplete(a_pod):
    spec = {"restartPolicy": "Never", "initContainers": [{"name": "setup", "image": "img"}]}
    life = Life(a_pod(spec=spec, metadata={"annotations": {"keplab.dev/run.setup": "exit 3"}})).run(60)

    assert life.status["phase"] == "Failed"
    assert initialized(life) == ("False", "ContainersNotInitialized", "containers with incomplete status: [setup]")


def test_init_containers_that_wait_run_or_are_restarted_are_incomplete(a_pod):
    init = [{"name": "one", "image": "img"}, {"name": "two", "image": "img"}]
    notes = {"keplab.dev/run.one": "exit 0 after 5s", "keplab.dev/run.two": "exit 1 after 5s"}
    life = Life(a_pod(spec={"initContainers": init}, metadata={"annotations": notes}))

    seen = [initialized(life.run(t))[2].partition(": ")[2] for t in (1, 6, 11, 60)]

    assert seen == ["[one two]", "[two]", "[two]", "[two]"]


def test_a_pod_without_init_containers_is_initialized_before_its_sandbox_is_there(a_pod):
    life = Life(a_pod(), latency=("all=constant:0", "sandbox=constant:9")).run(1)

    assert not life.worker.has_ip
    assert initialized(life) == ("True", "", "")


def test_a_pod_stays_initialized_while_its_sidecar_is_restarted(a_pod):
    init = [{"name": "side", "image": "img", "restartPolicy": "Always"}]
    life = Life(
        a_pod(spec={"initContainers": init}, metadata={"annotations": {"keplab.dev/run.side": "crash after 20s"}})
    )

    seen = {initialized(life.run(t)) for t in range(5, 90)}

    assert life.status["initContainerStatuses"][0]["restartCount"] >= 2
    assert seen == {("True", "", "")}
