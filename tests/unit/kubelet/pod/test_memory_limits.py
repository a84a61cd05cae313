"""Containers that use more memory than they may are ended when they do, wherever the limit has moved."""

import msgspec
import pytest

from kubelet.view import KubeletPod
from services.api.metrics.usage import next_above_s, parse_curves
from tests.unit.kubelet.pod.test_pod import Life

MI = 1 << 20
GROWS = "memory 100Mi; memory 1100Mi by 100s"


def limited(a_pod, limit, curve=GROWS, **changes):
    return a_pod(memory=limit, metadata={"annotations": {"keplab.dev/usage": curve}}, **changes)


def resized(pod, limit):
    document = msgspec.to_builtins(pod)
    resources = {"requests": {"memory": limit}, "limits": {"memory": limit}}
    document["spec"]["containers"][0]["resources"] = resources
    document["metadata"]["generation"] += 1
    return msgspec.convert(document, KubeletPod)


def ended(life):
    return life.container()["lastState"]["terminated"]


@pytest.mark.parametrize(
    ("age", "limit", "at"),
    [(0, 600, 50), (60, 600, 60), (0, 50, 0), (0, 1100, None), (0, 2000, None), (20, 1099, 99.9)],
)
def test_a_curve_is_above_a_limit_from_the_moment_it_crosses_it(age, limit, at):
    curve = parse_curves(GROWS)["memory"]

    found = next_above_s(curve, limit * MI, age)

    assert found == (None if at is None else pytest.approx(at))


def test_a_jump_crosses_when_it_happens():
    curve = parse_curves("memory 10Mi; memory 2Gi at 30s; memory 10Mi at 40s")["memory"]

    assert [next_above_s(curve, 1 << 30, age) for age in (0, 35, 41)] == [30, 35, None]


def test_a_container_is_killed_when_it_uses_more_than_its_limit(a_pod):
    life = Life(limited(a_pod, "600Mi")).run(105)

    assert life.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    life.run(111)
    assert (ended(life)["exitCode"], ended(life)["reason"]) == (137, "OOMKilled")
    assert life.recorded("Started") == [0, 50, 110]
    life.run(200)
    assert life.recorded("Started") == [0, 50, 110, 180]


def test_a_container_that_may_use_enough_lives_on(a_pod):
    assert Life(limited(a_pod, "2Gi")).run(500).container()["restartCount"] == 0


def test_a_larger_limit_in_time_saves_it(a_pod):
    pod = limited(a_pod, "600Mi")
    life = Life(pod).run(40)

    life.take(life.worker.allocate(resized(pod, "800Mi"), 40))
    life.run(69)
    assert life.container()["restartCount"] == 0
    life.run(90)

    assert ended(life)["finishedAt"] == life.worker.time_text(70)


def test_a_restarted_kubelet_knows_when_the_kernel_ended_it(a_pod):
    pod = limited(a_pod, "600Mi", spec={"restartPolicy": "Never"})
    before = Life(pod).run(10)

    after = Life(pod, adopt=before.record, now=300)

    assert after.container()["state"]["terminated"]["finishedAt"] == before.worker.time_text(50)
    assert after.status["phase"] == "Failed"
