"""How long pods took to start and to end, by upstream's names (kubelet 10). Time is a plain number."""

import msgspec
import pytest

from kubelet.effects import Outbox
from kubelet.pod.context import WallTimes
from kubelet.pod.start_times import SLI, START, WORKER, StartTimes
from kubelet.view import KubeletPod
from services.api.times import parse_time
from tests.unit.kubelet.pod.test_pod import Life

CREATED = "2026-01-01T00:00:00Z"


class Times:
    """A node whose clock began when the pods were created."""

    def __init__(self):
        self.out = Outbox()
        self.times = StartTimes(self.out, WallTimes(parse_time(CREATED)))

    def observed(self, name, *labels):
        found = self.out.distributions.get(name, {}).get(labels)
        return (0, 0.0) if found is None else (found.count, round(found.sum, 3))

    def shown(self, life, now):
        """The API server shows the pod as the node has it."""
        life.run(now)
        document = msgspec.to_builtins(life.worker.pod)
        document["status"] |= life.status
        self.times.observe_pod(life.worker, msgspec.convert(document, KubeletPod), now)


@pytest.fixture
def times():
    return Times()


def sli(times, life, now=100.0):
    times.times.on_admitted(life.worker.key, 0.0)
    times.shown(life, now)
    return times.observed(SLI)


def test_a_start_is_from_the_creation_until_the_watch_shows_all_containers_started(times, a_pod):
    life = Life(a_pod(), latency=("all=constant:0", "create=constant:4"))

    times.times.on_admitted(life.worker.key, 0.0)
    times.shown(life, 3.0)
    early = times.observed(SLI)
    times.shown(life, 6.0)
    times.shown(life, 9.0)

    assert (early, times.observed(SLI)) == ((0, 0.0), (1, 6.0))


def two(a_pod, first, second, **spec):
    notes = {"annotations": {"keplab.dev/run.a": first, "keplab.dev/run.b": second}}
    return a_pod(containers=[{"name": "a", "image": "x"}, {"name": "b", "image": "y"}], metadata=notes, spec=spec)


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [("forever", "forever", 100), ("pull 30s", "forever", 70), ("forever", "pull 30s", 70), ("pull 30s", "pull 20s", 50)],
)  # fmt: skip
def test_images_do_not_count_from_the_first_pull_to_the_last(times, a_pod, first, second, counted):
    assert sli(times, Life(two(a_pod, first, second))) == (1, counted)


def test_what_a_pod_waits_for_between_two_pulls_does_not_count_either(times, a_pod):
    life = Life(two(a_pod, "pull 30s", "pull 20s"), latency=("all=constant:0", "create=constant:10"))

    assert sli(times, life) == (1, 40.0)


def test_init_containers_do_not_count_but_sidecars_do(times, a_pod):
    init = [{"name": "setup", "image": "s"}, {"name": "side", "image": "s", "restartPolicy": "Always"}]
    notes = {"keplab.dev/run.setup": "exit 0 after 25s", "keplab.dev/run": "pull 30s"}
    spec = {"initContainers": init}

    assert sli(times, Life(a_pod(metadata={"annotations": notes}, spec=spec))) == (1, 45.0)


def test_an_image_that_an_earlier_kubelet_pulled_counts_as_no_pull(times, a_pod):
    pod = a_pod(run="pull 30s")
    before = Life(pod).run(40)

    assert sli(times, Life(pod, adopt=before.record, now=50)) == (1, 100.0)


def test_a_start_that_is_seen_before_the_creation_by_the_nodes_clock_took_no_time(times, a_pod):
    times.times = StartTimes(times.out, WallTimes(parse_time(CREATED) - 500.0))

    assert sli(times, Life(a_pod())) == (1, 0.0)


def test_a_pod_that_was_not_started_here_or_is_gone_is_not_counted(times, a_pod):
    life, gone = Life(a_pod()), Life(a_pod("gone"))
    times.times.on_admitted(gone.worker.key, 0.0)
    times.times.forget(gone.worker.key)

    times.shown(life, 5.0)
    times.shown(gone, 5.0)

    assert times.observed(SLI) == (0, 0.0)


def test_the_first_container_ends_the_start_and_nothing_running_the_end(times, a_pod):
    key = Life(a_pod()).worker.key

    times.times.on_admitted(key, 2.0)
    times.times.on_started(key, 5.0)
    for now in (10.0, 12.0):
        times.times.ending(key, now)
    times.times.on_ended(key, 14.0)

    assert times.observed(START) == (1, 3.0)
    assert times.observed(WORKER, "create") == (1, 3.0)
    assert times.observed(WORKER, "kill") == (1, 4.0)


def test_what_is_forgotten_of_a_pod_does_not_count_for_its_next_binding(times, a_pod):
    key = Life(a_pod()).worker.key
    times.times.on_admitted(key, 2.0)
    times.times.ending(key, 3.0)

    times.times.forget(key)
    times.times.on_started(key, 50.0)
    times.times.on_ended(key, 60.0)

    assert (times.observed(START), times.observed(WORKER, "kill")) == ((1, 0.0), (1, 0.0))
