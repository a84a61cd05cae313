"""The resizes of a node: when they are tried again, what is counted, what is written down and taken back."""

import msgspec
import pytest

from kubelet.admission.predicates import Ledger, NodeFacts
from kubelet.effects import Outbox, RecordEvent, ResizeAttempted, Save
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING, WallTimes
from kubelet.pod.pod import Pod
from kubelet.pod.start_times import StartTimes
from kubelet.pod.status import render
from kubelet.pod.table import PodTable
from kubelet.resize.allocation import Deferred, Fits, NodeRules
from kubelet.resize.manager import ResizeManager
from kubelet.runtime.records import (
    Checkpoint,
    PodRecord,
    checkpoint_of,
    encode_checkpoint,
    encode_record,
    join_records,
    newest,
)
from kubelet.runtime.resources import resources_of
from kubelet.status.versions import StatusVersions
from kubelet.view import worker_key
from services.api.kinds.pod import RESIZE_RESERVED
from services.api.meta import Condition
from tests.unit.kubelet.pod.test_pod import a_runtime

NODE = NodeFacts("n1", {})
NO_PODS = frozenset()


class Node:
    """The resizes of one node of a CPU, with pods whose records are durable at once."""

    def __init__(self, rules=None):
        self.ledger = Ledger({"cpu": "1", "memory": "4Gi", "pods": "110"})
        self.out = Outbox()
        versions = StatusVersions()
        self.table = PodTable("n1", versions, StartTimes(self.out, WallTimes(1e9)), self.out)
        self.resizes = ResizeManager(
            self.ledger,
            rules or NodeRules(),
            self.table,
            self.out,
            node=lambda: NODE,
            evict=lambda *_: None,
            status_changed=lambda *_: None,
        )
        self.effects = []

    def take(self, worker, actions, now):
        for action in actions:
            self.effects.append(action)
            if isinstance(action, Save):
                self.take(worker, worker.on_saved(action.seq, now), now)

    def run(self, pod, now=0.0):
        runtime = a_runtime(("all=constant:0", "resize=constant:1"))
        worker = Pod(pod, worker_key(pod), runtime, pod_ip="10.0.0.1", allocation=NO_ALLOCATION, now=now)
        self.table.add(worker)
        self.ledger.add(worker.key, pod, self.ledger.needs(pod), NO_ALLOCATION)
        self.take(worker, worker.begin(now), now)
        return worker

    def update(self, worker, pod, now=0.0):
        self.take(worker, worker.update(pod, now), now)
        self.resizes.on_requested(worker, pod)

    def decide(self, worker, now=0.0, trigger="pod_updated"):
        return self.resizes.decide(worker, NODE, NO_PODS, trigger, now)

    def allocate(self, worker, now=0.0):
        assert isinstance(self.decide(worker, now), Fits)
        self.take(worker, worker.allocate(worker.pod, now), now)


@pytest.fixture
def node():
    return Node()


def accepted(pod, generation=2, status="True"):
    """The pod as the scheduler shows it whose kubelet is to keep what that generation asks for."""
    condition = Condition(type=RESIZE_RESERVED, status=status, observed_generation=generation)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


@pytest.mark.parametrize(
    ("condition", "kept"),
    [({}, {"cpu": 400}), ({"generation": 7}, {}), ({"status": "False"}, {})],
    ids=["told", "of_another_request", "taken_back"],
)
def test_a_deferred_resize_has_its_capacity_kept_when_the_scheduler_has_accepted_just_that(a_pod, condition, kept):
    node = Node(NodeRules(keeps_reservations=True))
    worker, other = node.run(a_pod(cpu="400m")), node.run(a_pod("q", cpu="500m"))
    wanted = a_pod(cpu="800m")
    node.update(worker, wanted)
    node.decide(worker)

    worker.pod = accepted(wanted, **condition)
    node.resizes.keep_reservation(worker)

    assert node.ledger.reserved == ({worker.key: kept} if kept else {})
    node.ledger.remove(other.key)
    assert node.ledger.shortages({"cpu": 400}) == (["cpu"] if kept else [])
    assert isinstance(node.decide(worker), Fits)
    assert node.ledger.reserved == {}


def test_what_is_kept_for_a_pod_goes_with_it(a_pod):
    node = Node(NodeRules(keeps_reservations=True))
    worker = node.run(a_pod(cpu="400m"))
    node.ledger.reserve(worker.key, {"cpu": 300})
    before = node.ledger.taken_amount("cpu")

    node.ledger.remove(worker.key)

    assert (before, node.ledger.taken_amount("cpu")) == (700, 0)


def test_kep_1287_18_the_next_try_is_in_30_s_until_the_sources_are_ready_and_then_in_3_minutes(node, a_pod):
    worker, _ = node.run(a_pod(cpu="400m")), node.run(a_pod("q", cpu="500m"))
    node.resizes.retry("pods_added", 100.0)
    found = [node.resizes.retry_at_s]

    node.update(worker, a_pod(cpu="700m"))
    for has_sources in (False, True):
        node.resizes.has_sources = has_sources
        node.resizes.retry("pods_added", 100.0)
        found.append(node.resizes.retry_at_s)

    assert found == [float("inf"), 130.0, 280.0]


def test_what_is_deferred_stays_in_the_queue_and_what_is_decided_leaves_it(node, a_pod):
    worker, other = node.run(a_pod(cpu="400m")), node.run(a_pod("q", cpu="500m"))
    node.update(worker, a_pod(cpu="600m"))

    assert isinstance(node.decide(worker), Deferred)
    assert worker.key in node.resizes.queue
    node.ledger.remove(other.key)
    node.allocate(worker)

    assert worker.key not in node.resizes.queue
    assert node.ledger.used["cpu"] == 600


def test_a_judgement_that_says_the_same_again_is_recorded_once(node, a_pod):
    worker, _ = node.run(a_pod(cpu="400m")), node.run(a_pod("q", cpu="500m"))
    node.update(worker, a_pod(cpu="600m"))

    for now in (0.0, 5.0):
        node.decide(worker, now)

    assert [e.reason for e in node.out.effects if hasattr(e, "reason")] == ["ResizeDeferred"]
    assert worker.conditions[RESIZE_PENDING].since == WallTimes(1e9).text(0.0)


def test_only_a_resize_that_shrank_its_pod_has_others_tried_again(node, a_pod):
    grown, shrunk = node.run(a_pod(cpu="100m")), node.run(a_pod("q", cpu="500m"))
    node.update(grown, a_pod(cpu="200m"))
    node.update(shrunk, a_pod("q", cpu="300m"))

    for worker in (grown, shrunk):
        node.allocate(worker)

    triggers = []
    for worker, succeeded in ((shrunk, False), (grown, True), (shrunk, True)):
        node.table.perform(worker, [ResizeAttempted(1.0, succeeded=succeeded)], 1.0)
        triggers.append(node.resizes.trigger)
    assert triggers == ["", "", "pod_resized"]


def test_attempts_are_counted_in_milliseconds_by_success(node, a_pod):
    worker = node.run(a_pod(cpu="500m"))
    for took_s, succeeded in ((0.15, False), (0.7, True), (700.0, True)):
        node.table.perform(worker, [ResizeAttempted(took_s, succeeded=succeeded)], 1.0)

    found = node.out.distributions["kubelet_pod_resize_duration_milliseconds"]
    assert {labels: held.count for labels, held in found.items()} == {("false",): 1, ("true",): 2}
    assert found["true",].sum == 700_700
    buckets = dict(found["true",].buckets())
    assert [buckets[le] for le in ("500", "1000", "600000", "+Inf")] == [0, 1, 1, 2]


def test_what_is_requested_is_counted_item_by_item(node, a_pod):
    old = a_pod(cpu="500m", memory="1Gi", limits=False)
    new = a_pod(cpu="700m", memory="512Mi", limits=True)

    node.resizes.count_request(old, new)

    assert set(node.out.counts.of("kubelet_container_requested_resizes_total")) == {
        ("increase", "requests", "cpu"),
        ("decrease", "requests", "memory"),
        ("add", "limits", "cpu"),
        ("add", "limits", "memory"),
    }


def test_an_allocation_is_not_applied_before_it_is_durable(node, a_pod):
    worker = node.run(a_pod(cpu="500m"))
    pod = a_pod(cpu="700m", metadata={"generation": 3})
    worker.update(pod, 0.0)

    actions = worker.allocate(pod, 0.0)

    seq = next(a.seq for a in actions if isinstance(a, Save))
    assert worker.due_s is None
    worker.on_saved(seq, 5.0)
    assert worker.due_s == 6.0
    assert worker.conditions[RESIZE_IN_PROGRESS].generation == 3


def test_a_finished_resize_says_how_long_it_took_and_leaves_no_condition(node, a_pod):
    worker = node.run(a_pod(cpu="500m"))
    node.update(worker, a_pod(cpu="700m"))
    node.allocate(worker)

    node.take(worker, worker.advance(1.0), 1.0)

    assert ResizeAttempted(1.0) in node.effects
    assert [a.reason for a in node.effects if isinstance(a, RecordEvent)][-2:] == ["ResizeStarted", "ResizeCompleted"]
    assert not {RESIZE_PENDING, RESIZE_IN_PROGRESS} & worker.conditions.keys()
    assert worker.actual is worker.allocated


def test_checkpoint_and_runtime_say_what_was_allocated_and_how_much_of_it_was_applied(a_pod):
    record = PodRecord("n1", "u", 2, allocated=resources_of(a_pod(cpu="700m")), actual=resources_of(a_pod(cpu="500m")))
    here = frozenset({"n1"})

    runtime = newest(PodRecord, [encode_record(record).rstrip()], here).found
    allocated = newest(Checkpoint, [encode_checkpoint(checkpoint_of(record)).rstrip()], here).found

    assert list(join_records(runtime, allocated)[0].values()) == [record]


def test_a_kubelet_that_finds_more_allocated_than_applied_applies_the_rest(node, a_pod):
    pod = a_pod(cpu="700m")
    before = node.run(a_pod(cpu="500m"))
    worker = Pod(pod, worker_key(pod), a_runtime(("all=constant:1",)), pod_ip="", allocation=NO_ALLOCATION, now=9.0)
    record = msgspec.structs.replace(before.record(), allocated=resources_of(pod), actual=before.actual)

    worker.adopt(record, 9.0)
    assert render(worker)["containerStatuses"][0]["resources"]["requests"] == {"cpu": "500m"}

    worker.advance(10.0)
    assert render(worker)["containerStatuses"][0]["resources"]["requests"] == {"cpu": "700m"}


# --- conditions that go ---


def status(*kinds):
    return {"phase": "Running", "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", *kinds)]}


def sent(manager, pod, rendered):
    key = worker_key(pod)
    manager.on_changed(key, 0.0)
    write = manager.take(key, pod, rendered)
    manager.on_acknowledged(write, 0.0)
    return write.patch["status"].get("conditions")


def test_a_condition_that_no_longer_stands_is_taken_back(a_pod):
    manager, pod = StatusVersions(), a_pod()
    sent(manager, pod, status(RESIZE_PENDING))

    assert sent(manager, pod, status()) == [{"$patch": "delete", "type": RESIZE_PENDING}]


def test_a_new_kubelet_takes_back_what_the_one_before_it_wrote(a_pod):
    pod = a_pod(status={"conditions": [{"type": RESIZE_IN_PROGRESS, "status": "True"}]})

    conditions = sent(StatusVersions(), pod, status())

    assert conditions == [*status()["conditions"], {"$patch": "delete", "type": RESIZE_IN_PROGRESS}]
