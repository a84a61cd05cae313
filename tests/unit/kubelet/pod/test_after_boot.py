"""Pods whose containers ended with the machine: which run again, from where on (kubelet 6). Time is a plain number."""

import pytest

from kubelet.effects import PodEnded, PrepareClaims, PrepareDevices, RecordEvent, SpanStage
from kubelet.runtime.boots import after_boot
from kubelet.runtime.claims import HeldClaim
from tests.unit.kubelet.pod.test_pod import Life


def booted(pod, at=50.0, ran=30.0):
    """Run the pod, boot the machine, and have the next kubelet take over what the record says."""
    before = Life(pod).run(ran)
    record = after_boot({("n1", before.worker.key): before.record}, at)["n1", before.worker.key]
    return Life(pod, adopt=record, now=at)


@pytest.mark.parametrize(
    ("policy", "starts", "phase"),
    [("Always", [50.0], "Running"), ("OnFailure", [50.0], "Running"), ("Never", [], "Failed")],
)
def test_containers_run_again_as_the_restart_policy_allows(a_pod, policy, starts, phase):
    life = booted(a_pod(spec={"restartPolicy": policy})).run(60.0)

    assert (life.recorded("Started"), life.status["phase"]) == (starts, phase)
    assert len(life.at(PodEnded)) == (policy == "Never")


def test_a_pod_gets_another_sandbox_and_says_so(a_pod):
    life = booted(a_pod()).run(60.0)

    changed = [
        each.message for _, each in life.log if isinstance(each, RecordEvent) and each.reason == "SandboxChanged"
    ]
    assert changed == ["Pod sandbox changed, it will be killed and re-created."]
    assert next(each.stage for _, each in life.log if isinstance(each, SpanStage)) == "sandbox"
    assert life.container()["restartCount"] == 1
    assert life.container()["lastState"]["terminated"]["exitCode"] == 255
    assert life.container()["lastState"]["terminated"]["reason"] == "Unknown"


def test_init_containers_run_again_before_the_others(a_pod):
    init = [{"name": "setup", "image": "s"}]
    notes = {"annotations": {"keplab.dev/run.setup": "exit 0 after 5s"}}
    life = booted(a_pod(spec={"initContainers": init}, metadata=notes)).run(60.0)

    assert life.recorded("Started") == [50.0, 55.0]
    assert life.status["phase"] == "Running"


def test_a_container_that_had_completed_stays_so_beside_those_that_run_again(a_pod):
    notes = {"annotations": {"keplab.dev/run.done": "exit 0 after 5s"}}
    pod = a_pod(containers=[{"name": "done"}, {"name": "main"}], metadata=notes, spec={"restartPolicy": "OnFailure"})
    life = booted(pod).run(60.0)

    assert [life.container(name)["restartCount"] for name in ("done", "main")] == [0, 1]
    assert life.container("done")["state"]["terminated"]["exitCode"] == 0


def test_the_claims_of_a_pod_are_read_and_prepared_anew_before_its_sandbox(a_pod):
    pod = a_pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    before = Life(pod).run(1.0)
    held = (HeldClaim("uid-c", "default", "c"),)
    before.take(before.worker.claims_listed(held, 2.0))
    before.take(before.worker.claims_prepared("", 3.0))
    before.run(30.0)
    record = after_boot({("n1", before.worker.key): before.record}, 50.0)["n1", before.worker.key]

    life = Life(pod, adopt=record, now=50.0).run(60.0)
    waits = life.recorded("Started")
    life.take(life.worker.claims_listed(held, 60.0))
    life.take(life.worker.claims_prepared("", 60.0))
    life.run(70.0)

    assert (life.at(PrepareClaims), waits, life.recorded("Started")) == ([50.0], [], [60.0])


def test_conditions_go_on_and_only_those_of_a_resize_name_a_generation(a_pod):
    conditions = [
        {"type": "Own", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z", "reason": "R", "message": "m",
         "observedGeneration": 7},
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "observedGeneration": 7},
    ]  # fmt: skip
    pod = a_pod(status={"conditions": conditions})
    before = Life(pod).run(10.0)

    held = Life(pod, adopt=before.record, now=20.0).worker.conditions

    assert (held["Own"].since, held["Own"].reason, held["Own"].message) == ("2026-01-01T00:00:09Z", "R", "m")
    assert held["Own"].generation == 0


def test_devices_are_prepared_before_every_start_and_tried_again_at_the_next_sync(a_pod):
    life = Life(a_pod(run="crash after 5s"), latency=("all=constant:0", "worker=constant:1"))
    life.worker.pre_start = frozenset({"main"})
    life.run(2.0)
    life.take(life.worker.devices_prepared("main", "no answer", 2.0))
    waiting = life.container()["state"]["waiting"]
    life.run(20.0)
    life.take(life.worker.devices_prepared("other", "", 20.0))
    early = life.recorded("Started")
    life.take(life.worker.devices_prepared("main", "", 20.0))
    life.take(life.worker.devices_prepared("main", "", 20.0))
    life.run(30.0)

    assert (waiting["reason"], waiting["message"]) == ("CreateContainerConfigError", "no answer")
    assert life.recorded("Failed") == [2.0]
    assert life.at(PrepareDevices) == [1.0, 12.0, 25.0]
    assert (early, life.recorded("Started")) == ([], [20.0])
