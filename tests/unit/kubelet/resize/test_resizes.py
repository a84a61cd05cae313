"""The resizes of a node: when they are tried again, what is counted, what is written down and taken back."""

import msgspec
import pytest

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.managers.resource_managers import NO_ALLOCATION
from kubelet.outbox import Outbox
from kubelet.pod.actions import Persist, Resized, Told
from kubelet.pod.running import Policy
from kubelet.pod.status import RESIZE_IN_PROGRESS, RESIZE_PENDING, WallTimes
from kubelet.pod.worker import PodWorker
from kubelet.resize.allocation import Deferred, Fits, NodeRules
from kubelet.resize.manager import Resizing
from kubelet.runtime.checkpoint import checkpoint_of, encode_checkpoint, joined, read_checkpoints
from kubelet.runtime.fake_cri import PodRecord, encode_record, replay
from kubelet.runtime.latency import LatencyModel
from kubelet.runtime.resources import resources_of
from kubelet.status.versions import StatusManager
from kubelet.view import worker_key

NODE = NodeFacts("n1", {})
NOBODY = frozenset()


class Desk:
    """The resizes of one node of a CPU, with workers whose records are durable at once."""

    def __init__(self):
        self.ledger = Ledger({"cpu": "1", "memory": "4Gi", "pods": "110"})
        self.out = Outbox()
        self.resizing = Resizing(self.ledger, NodeRules(), self.out)
        self.workers = {}
        self.told = []

    def take(self, worker, actions, now):
        for action in actions:
            self.told.append(action)
            if isinstance(action, Persist):
                self.take(worker, worker.persisted(action.seq, now), now)

    def run(self, pod, now=0.0):
        latency = LatencyModel.parse(("all=constant:0", "resize=constant:1"), 1).for_pod("n1", pod.metadata.uid)
        worker = PodWorker(
            pod, worker_key(pod), node="n1", host_ip="1.1.1.1", pod_ip="10.0.0.1", allocation=NO_ALLOCATION,
            latency=latency, policy=Policy(), times=WallTimes(1e9), now=now,
        )  # fmt: skip
        self.workers[worker.key] = worker
        self.ledger.add(worker.key, pod, self.ledger.needs(pod), NO_ALLOCATION)
        self.take(worker, worker.begin(now), now)
        return worker

    def wish(self, worker, pod, now=0.0):
        self.take(worker, worker.update(pod, now), now)
        self.resizing.wished(worker, pod, self.workers)

    def decide(self, worker, now=0.0, trigger="pod_updated"):
        return self.resizing.decide(worker, NODE, NOBODY, trigger, now)

    def allocate(self, worker, now=0.0):
        assert isinstance(self.decide(worker, now), Fits)
        self.take(worker, worker.allocate(worker.pod, now), now)


@pytest.fixture
def desk():
    return Desk()


def test_kep_1287_18_the_next_try_is_in_30_s_until_the_sources_are_ready_and_then_in_3_minutes(desk, a_pod):
    worker = desk.run(a_pod(cpu="500m"))
    assert desk.resizing.passed(100.0) is None

    desk.wish(worker, a_pod(cpu="700m"))
    before = desk.resizing.passed(100.0)
    desk.resizing.has_sources = True

    assert (before, desk.resizing.passed(100.0)) == (130.0, 280.0)


def test_what_is_deferred_stays_in_the_queue_and_what_is_decided_leaves_it(desk, a_pod):
    worker, other = desk.run(a_pod(cpu="400m")), desk.run(a_pod("q", cpu="500m"))
    desk.wish(worker, a_pod(cpu="600m"))

    assert isinstance(desk.decide(worker), Deferred)
    assert worker.key in desk.resizing.queue
    desk.ledger.remove(other.key)
    desk.allocate(worker)

    assert worker.key not in desk.resizing.queue
    assert desk.ledger.used["cpu"] == 600


def test_a_judgement_that_says_the_same_again_is_told_once(desk, a_pod):
    worker, _ = desk.run(a_pod(cpu="400m")), desk.run(a_pod("q", cpu="500m"))
    desk.wish(worker, a_pod(cpu="600m"))

    for now in (0.0, 5.0):
        desk.decide(worker, now)

    assert [e.reason for e in desk.out.effects if hasattr(e, "reason")] == ["ResizeDeferred"]
    assert worker.conditions[RESIZE_PENDING].since == WallTimes(1e9).text(0.0)


def test_only_a_resize_that_gave_something_back_may_have_made_room(desk, a_pod):
    grown, shrunk = desk.run(a_pod(cpu="100m")), desk.run(a_pod("q", cpu="500m"))
    desk.wish(grown, a_pod(cpu="200m"))
    desk.wish(shrunk, a_pod("q", cpu="300m"))

    for worker in (grown, shrunk):
        desk.allocate(worker)

    failed = desk.resizing.attempted(shrunk.key, Resized(1.0, succeeded=False))
    assert not failed
    assert [desk.resizing.attempted(worker.key, Resized(1.0)) for worker in (grown, shrunk)] == [False, True]


def test_what_is_wished_is_counted_item_by_item(desk, a_pod):
    old = a_pod(cpu="500m", memory="1Gi", limits=False)
    new = a_pod(cpu="700m", memory="512Mi", limits=True)

    desk.resizing.count_wish(old, new)

    assert {name.partition("{")[2] for name in desk.out.counters} == {
        'operation="increase",requirement="requests",resource="cpu"}',
        'operation="decrease",requirement="requests",resource="memory"}',
        'operation="add",requirement="limits",resource="cpu"}',
        'operation="add",requirement="limits",resource="memory"}',
    }


def test_nothing_is_done_about_a_promise_that_is_not_durable(desk, a_pod):
    worker = desk.run(a_pod(cpu="500m"))
    pod = a_pod(cpu="700m", metadata={"generation": 3})
    worker.update(pod, 0.0)

    actions = worker.allocate(pod, 0.0)

    seq = next(a.seq for a in actions if isinstance(a, Persist))
    assert worker.due_s is None
    worker.persisted(seq, 5.0)
    assert worker.due_s == 6.0
    assert worker.conditions[RESIZE_IN_PROGRESS].generation == 3


def test_a_finished_resize_says_how_long_it_took_and_leaves_no_condition(desk, a_pod):
    worker = desk.run(a_pod(cpu="500m"))
    desk.wish(worker, a_pod(cpu="700m"))
    desk.allocate(worker)

    desk.take(worker, worker.advance(1.0), 1.0)

    assert Resized(1.0) in desk.told
    assert [a.reason for a in desk.told if isinstance(a, Told)][-2:] == ["ResizeStarted", "ResizeCompleted"]
    assert not {RESIZE_PENDING, RESIZE_IN_PROGRESS} & worker.conditions.keys()
    assert worker.actual is worker.allocated


def test_checkpoint_and_runtime_tell_what_was_promised_and_how_far_it_came(a_pod):
    record = PodRecord("n1", "u", 2, allocated=resources_of(a_pod(cpu="700m")), actual=resources_of(a_pod(cpu="500m")))
    here = frozenset({"n1"})

    runtime = replay([encode_record(record).rstrip()], here).found
    promised = read_checkpoints([encode_checkpoint(checkpoint_of(record)).rstrip()], here).found

    assert list(joined(runtime, promised)[0].values()) == [record]


def test_a_kubelet_that_finds_more_promised_than_done_does_the_rest(desk, a_pod):
    pod = a_pod(cpu="700m")
    before = desk.run(a_pod(cpu="500m"))
    worker = PodWorker(
        pod, worker_key(pod), node="n1", host_ip="", pod_ip="", allocation=NO_ALLOCATION,
        latency=LatencyModel.parse(("all=constant:1",), 1).for_pod("n1", "u"), policy=Policy(), times=WallTimes(),
        now=9.0,
    )  # fmt: skip
    record = msgspec.structs.replace(before.record(), allocated=resources_of(pod), actual=before.actual)

    worker.adopt(record, 9.0)
    assert worker.render()["containerStatuses"][0]["resources"]["requests"] == {"cpu": "500m"}

    worker.advance(10.0)
    assert worker.render()["containerStatuses"][0]["resources"]["requests"] == {"cpu": "700m"}


# --- conditions that go ---


def status(*kinds):
    return {"phase": "Running", "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", *kinds)]}


def sent(manager, pod, rendered):
    key = worker_key(pod)
    manager.changed(key, 0.0)
    write = manager.take(key, pod, rendered)
    manager.acknowledged(write, 0.0)
    return write.patch["status"].get("conditions")


def test_a_condition_that_no_longer_stands_is_taken_back(a_pod):
    manager, pod = StatusManager(), a_pod()
    sent(manager, pod, status(RESIZE_PENDING))

    assert sent(manager, pod, status()) == [{"$patch": "delete", "type": RESIZE_PENDING}]


def test_a_new_kubelet_takes_back_what_the_one_before_it_wrote(a_pod):
    pod = a_pod(status={"conditions": [{"type": RESIZE_IN_PROGRESS, "status": "True"}]})

    conditions = sent(StatusManager(), pod, status())

    assert conditions == [*status()["conditions"], {"$patch": "delete", "type": RESIZE_IN_PROGRESS}]
