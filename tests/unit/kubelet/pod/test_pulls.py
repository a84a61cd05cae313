"""Images that have to be fetched, and those that cannot be. Time is a plain number."""

import pytest

from kubelet.effects import PodEnded, RecordEvent
from kubelet.runtime.images import NodeImages
from kubelet.runtime.script import parse_script
from tests.unit.kubelet.pod.test_pod import Life


def recorded(life):
    return [(round(t, 3), a.reason) for t, a in life.log if isinstance(a, RecordEvent)]


def waiting(life, name="main"):
    return life.container(name)["state"]["waiting"]["reason"]


def test_an_image_that_is_not_on_the_node_is_pulled_first(a_pod):
    life = Life(a_pod(run="pull 7s")).run(60)

    assert recorded(life) == [(0, "Pulling"), (7, "Pulled"), (7, "Created"), (7, "Started")]
    assert [a.message for _, a in life.log if isinstance(a, RecordEvent)][:2] == [
        'Pulling image "img"', 'Successfully pulled image "img" in 7s (7s including waiting). Image size: 340000000 bytes.',
    ]  # fmt: skip


def test_a_restarted_container_does_not_pull_again(a_pod):
    life = Life(a_pod(run="pull 7s; crash after 1s")).run(30)

    assert life.recorded("Pulling") == [0]
    assert life.recorded("Started") == [7, 8, 19]


def test_a_restarted_kubelet_knows_that_the_image_was_pulled(a_pod):
    pod = a_pod(run="pull 7s; crash after 60s")
    before = Life(pod).run(10)

    after = Life(pod, adopt=before.record, now=20).run(100)

    assert after.recorded("Pulling") == []
    assert after.recorded("Started") == [67]


def test_a_failed_pull_is_tried_again_after_10_20_40_seconds_up_to_five_minutes(a_pod):
    life = Life(a_pod(run="pull 0s; pull fails")).run(1300)

    assert life.recorded("Pulling") == [0, 10, 30, 70, 150, 310, 610, 910, 1210]


def test_it_waits_with_err_image_pull_then_image_pull_back_off(a_pod):
    life = Life(a_pod(run="pull 1s; pull fails"))

    assert [waiting(life.run(t)) for t in (0.5, 2, 12, 25)] == [
        "ContainerCreating", "ErrImagePull", "ErrImagePull", "ImagePullBackOff",
    ]  # fmt: skip
    assert "img: not found" in life.container()["state"]["waiting"]["message"]
    assert life.status["phase"] == "Pending"
    events = [(a.reason, a.type) for _, a in life.log if isinstance(a, RecordEvent)]
    assert events[:3] == [("Pulling", "Normal"), ("Failed", "Warning"), ("Failed", "Warning")]
    assert ("BackOff", "Normal") in events


def test_a_registry_that_recovers_lets_the_pod_start(a_pod):
    life = Life(a_pod(run="pull 1s; pull fails for 25s")).run(60)

    assert life.recorded("Started") == [33]  # tries end at 1, 12 and 33 s
    assert life.status["phase"] == "Running"


def test_one_image_that_is_missing_does_not_hold_up_the_other_containers(a_pod):
    notes = {"annotations": {"keplab.dev/run.a": "pull fails"}}
    life = Life(a_pod(containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "y"}], metadata=notes)).run(5)

    assert waiting(life, "a") == "ErrImagePull"
    assert "running" in life.container("b")["state"]
    assert life.status["phase"] == "Running"
    assert life.worker.conditions["Ready"].status == "False"


@pytest.mark.parametrize(
    ("policy", "run", "reason"),
    [("Never", "pull 1s", "ErrImageNeverPull"), ("IfNotPresent", "pull 1s; pull fails", "ImagePullBackOff")],
)
def test_a_container_without_its_image_lets_the_next_begin_from_its_first_failure_on(a_pod, policy, run, reason):
    containers = [{"name": "a", "image": "x", "imagePullPolicy": policy}, {"name": "b", "image": "y"}]
    life = Life(a_pod(containers=containers, metadata={"annotations": {"keplab.dev/run.a": run}})).run(25)

    assert waiting(life, "a") == reason
    assert "running" in life.container("b")["state"]
    assert life.recorded("Started") == [0 if policy == "Never" else 1]


def test_an_init_container_without_image_holds_up_all(a_pod):
    init = [{"name": "i", "image": "x"}]
    notes = {"annotations": {"keplab.dev/run.i": "pull fails"}}
    life = Life(a_pod(spec={"initContainers": init}, metadata=notes)).run(100)

    assert life.recorded("Started") == []
    assert life.status["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert waiting(life) == "PodInitializing"


def test_a_container_that_may_never_pull_says_so(a_pod):
    pod = a_pod(containers=[{"name": "main", "image": "x", "imagePullPolicy": "Never"}], run="pull 1s")

    assert waiting(Life(pod).run(60)) == "ErrImageNeverPull"


@pytest.mark.parametrize("at", [0.5, 5, 15])
def test_a_pod_that_waits_for_its_image_can_be_deleted(a_pod, at):
    life = Life(a_pod(run="pull 1s; pull fails")).run(at)

    life.take(life.worker.terminate(at, 30, "deleted"))

    assert life.at(PodEnded) == [at]
    assert life.worker.due_s is None


def test_the_script_says_what_becomes_of_a_pull():
    script = parse_script("pull 3s; pull fails for 1m")

    assert (script.must_pull, script.pull_s, script.pull_fails_s) == (True, 3, 60)
    assert not parse_script("forever").must_pull


# --- pull policies ---

PRESENT = 'Container image "tool:1" already present on machine and can be accessed by the pod'
PULLED = [
    'Pulling image "tool:1"',
    'Successfully pulled image "tool:1" in 5ms (5ms including waiting). Image size: 0 bytes.',
]
NEVER = 'Container image "tool:1" is not present with pull policy of Never'


def tool(a_pod, policy, name="p", **spec):
    return a_pod(name, containers=[{"name": "main", "image": "tool:1", "imagePullPolicy": policy}], spec=spec)


def started(pod, images, until=5.0):
    return Life(pod, latency=("all=constant:0", "image=constant:0.005"), images=images).run(until)


def image_texts(life):
    """What was said of images."""
    return [a.message for _, a in life.log if isinstance(a, RecordEvent) and "image" in a.message.lower()]


def test_an_image_that_no_pod_has_pulled_is_not_present_with_the_policy_never(a_pod):
    life = started(tool(a_pod, "Never"), NodeImages())

    state = life.container()["state"]["waiting"]
    assert (state["reason"], state["message"]) == ("ErrImageNeverPull", NEVER)
    assert life.recorded("ErrImageNeverPull") == [0.005]


def test_the_policy_never_takes_what_the_definition_names_or_a_pod_has_pulled(a_pod):
    declared, pulled = NodeImages({"tool:1": 7}), NodeImages()
    started(tool(a_pod, "IfNotPresent"), pulled)

    assert [image_texts(started(tool(a_pod, "Never", "q"), images)) for images in (declared, pulled)] == [[PRESENT]] * 2


def test_a_pod_that_waits_for_an_image_with_the_policy_never_starts_once_another_pod_has_pulled_it(a_pod):
    images = NodeImages()
    life = started(tool(a_pod, "Never"), images)
    started(tool(a_pod, "Always", "q"), images)

    assert life.run(20.0).recorded("Started") == [10.005]


def test_an_image_is_pulled_once_with_the_policy_if_not_present_and_for_each_start_with_always(a_pod):
    once, always = NodeImages(), NodeImages()

    assert [image_texts(started(tool(a_pod, "IfNotPresent", n), once)) for n in "ab"] == [PULLED, [PRESENT]]
    assert [image_texts(started(tool(a_pod, "Always", n), always)) for n in "ab"] == [PULLED, PULLED]


def test_a_pulled_image_of_a_script_is_asked_for_again_with_the_policy_always(a_pod):
    container = {"name": "main", "image": "img", "imagePullPolicy": "Always"}
    life = Life(a_pod(containers=[container], run="pull 7s; crash after 1s")).run(30)

    assert life.recorded("Pulling") == [0, 8, 19.2]
    assert life.recorded("Started") == [7, 8.2, 19.4]


def test_a_restarted_kubelet_knows_the_images_of_what_runs(a_pod):
    before, images = started(tool(a_pod, "Always"), NodeImages()), NodeImages()
    Life(tool(a_pod, "Always"), adopt=before.record, now=20, images=images)

    assert image_texts(started(tool(a_pod, "Never", "q"), images)) == [PRESENT]


@pytest.mark.parametrize(("policy", "reason"), [("Never", "ErrImageNeverPull"), ("IfNotPresent", "")])
def test_a_container_waits_for_the_images_of_the_volumes_that_it_mounts(a_pod, policy, reason):
    containers = [
        {"name": "main", "image": "img", "volumeMounts": [{"name": "model", "mountPath": "/m"}]},
        {"name": "other", "image": "img"},
    ]
    volumes = [{"name": "model", "image": {"reference": "model:1", "pullPolicy": policy}}]
    life = started(a_pod(containers=containers, spec={"volumes": volumes}), NodeImages())

    states = [life.container(name)["state"].get("waiting", {}).get("reason", "") for name in ("main", "other")]
    assert states == [reason, ""]
    assert ('Pulling image "model:1"' in image_texts(life)) == (not reason)
