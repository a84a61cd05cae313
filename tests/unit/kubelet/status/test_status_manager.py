"""What becomes of a status after its write was answered, and when the object of a pod may go (kubelet 3.4, 4; guarantees N8)."""

import pytest

from kubelet.effects import DeletePod, EndSpan, Outbox, ReadPod, SetTimer, WriteStatuses
from kubelet.status.manager import StatusManager
from kubelet.status.versions import StatusVersions
from kubelet.view import worker_key

DELETED = {"deletionTimestamp": "2026-01-01T00:01:00Z"}


class Node:
    """The statuses of a node with one pod, whose status is `said`."""

    def __init__(self, pod, said=None, shown=None):
        self.pods = {pod.metadata.uid: pod}
        self.key, self.out, self.is_over, self.acknowledged = worker_key(pod), Outbox(), False, []
        self.said = {"phase": "Running", "observedGeneration": 2} if said is None else said
        self.mirror = shown
        self.statuses = StatusManager(
            self.pods,
            StatusVersions(),
            self.out,
            render=lambda _: self.said,
            shown=lambda key: self.mirror or self.pods.get(key.uid),
            is_over=lambda _: self.is_over,
            acknowledged=lambda key, now: self.acknowledged.append((key, now)),
        )

    def taken(self, now=0.0):
        """Change the status; return the write."""
        self.statuses.status_changed(self.key, now)
        return self.statuses.next_write(now)

    def written(self, code=200, reason="", now=0.0):
        self.statuses.status_written(self.taken(now), code, reason, now)
        return self

    def effects(self, kind):
        return [each for each in self.out.effects if isinstance(each, kind)]

    @property
    def timers(self):
        return [(each.at_s, each.what) for each in self.effects(SetTimer)]

    @property
    def deletions(self):
        return [each.grace_s for each in self.effects(DeletePod)]


def test_a_change_is_written_and_the_answer_is_reported(a_pod):
    node = Node(a_pod())

    node.written(now=3.0)

    assert len(node.effects(WriteStatuses)) == 1
    assert node.acknowledged == [(node.key, 3.0)]
    assert node.statuses.is_synced(node.key)
    assert node.statuses.next_write(3.0) is None


@pytest.mark.parametrize(("phase", "ends"), [("Pending", []), ("Running", [""]), ("Failed", [""])])
def test_a_start_is_traced_until_the_api_server_has_a_phase_beyond_pending(a_pod, phase, ends):
    pod = a_pod()
    node = Node(pod, {"phase": phase})
    node.out.start_span(node.key, pod, "")

    node.written()

    assert [each.error for each in node.effects(EndSpan)] == ends


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (409, "StaleBinding")])
def test_n8_a_refused_write_has_the_pod_read_and_the_newest_status_is_sent_ten_seconds_later(a_pod, code, reason):
    pod = a_pod()
    node = Node(pod).written(code, reason, 5.0)

    assert node.effects(ReadPod) == [ReadPod(node.key, pod)]
    assert node.timers == [(15.0, "status")]
    assert node.statuses.next_write(14.0) is None
    assert node.statuses.next_write(15.0).status == node.said


def test_n8_of_a_pod_that_is_gone_meanwhile_nothing_is_read(a_pod):
    node = Node(a_pod())
    write = node.taken()
    node.pods.clear()

    node.statuses.status_written(write, 403, "Forbidden", 5.0)

    assert node.effects(ReadPod) == []
    assert node.timers == [(15.0, "status")]


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "UIDMismatch")])
def test_n8_a_status_whose_pod_is_not_there_any_more_is_dropped(a_pod, code, reason):
    node = Node(a_pod()).written(code, reason)

    assert (node.effects(ReadPod), node.timers) == ([], [])
    assert not node.statuses.versions.owes(node.key)


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "UIDMismatch"), (403, "Forbidden")])
def test_a_mirror_that_is_not_there_any_more_leaves_the_whole_status_to_the_next(a_pod, code, reason):
    node = Node(a_pod(), shown=a_pod(uid="mirror-1"))

    node.written(code, reason)
    waits = node.statuses.next_write(60.0)
    node.mirror = a_pod(uid="mirror-2")
    write = node.taken(61.0)

    assert (node.effects(ReadPod), node.timers, waits) == ([], [], None)
    assert (write.uid, write.patch["status"]) == ("mirror-2", node.said)


@pytest.mark.parametrize(("code", "retry_s"), [(0, 0.2), (503, 0.2), (504, 0.2), (500, 10.0), (409, 10.0)])
def test_fm_a1_a_write_without_an_answer_is_tried_again_sooner_than_one_that_was_refused(a_pod, code, retry_s):
    assert Node(a_pod()).written(code, "Conflict", 1.0).timers == [(1.0 + retry_s, "status")]


def test_a_static_pod_is_written_once_its_mirror_is_there(a_pod):
    node = Node(a_pod())
    node.statuses.shown = lambda _: node.mirror

    early = node.taken()
    node.mirror = a_pod(uid="mirror")

    assert early is None
    assert node.taken().uid == "mirror"


@pytest.mark.parametrize("change", ["gone", "rebound", "nothing to say"])
def test_a_status_is_not_written_of_a_pod_that_is_not_this_bindings_any_more(a_pod, change):
    node = Node(a_pod())
    node.statuses.status_changed(node.key, 0.0)
    match change:
        case "gone":
            node.pods.clear()
        case "rebound":
            node.pods[node.key.uid] = a_pod(status={"bindingGeneration": 4})
        case _:
            node.said = None

    assert node.statuses.next_write(0.0) is None
    assert not node.statuses.versions.owes(node.key)


@pytest.mark.parametrize(
    ("status", "is_repaired"),
    [
        ({"phase": "Running"}, False),
        ({"phase": "Pending"}, True),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, True),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}, False),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "status": "True"}]}, True),
    ],
)  # fmt: skip
def test_what_another_client_wrote_over_is_put_right(a_pod, status, is_repaired):
    conditions = [{"type": "Ready", "status": "True"}] if status.get("conditions") else []
    node = Node(a_pod(), {"phase": "Running", "conditions": conditions}).written()

    node.statuses.pod_updated(node.key, a_pod(status=status), 5.0)

    assert len(node.effects(WriteStatuses)) == 1 + is_repaired
    assert (node.statuses.next_write(5.0) is not None) is is_repaired


def test_a_pod_of_which_nothing_was_written_yet_has_not_drifted(a_pod):
    node = Node(a_pod())

    node.statuses.pod_updated(node.key, a_pod(status={"phase": "Failed"}), 0.0)

    assert node.effects(WriteStatuses) == []


@pytest.mark.parametrize(
    ("is_deleted", "is_over", "is_written", "goes"),
    [(True, True, True, True), (False, True, True, False), (True, False, True, False), (True, True, False, False)],
)
def test_an_object_goes_only_when_it_is_deleted_and_over_and_the_api_server_has_its_last_status(
    a_pod, is_deleted, is_over, is_written, goes
):
    node = Node(a_pod(metadata=DELETED if is_deleted else {}))
    node.is_over = is_over
    if is_written:
        node.written()

    for _ in range(2):
        node.statuses.maybe_delete(node.key)

    assert node.deletions == ([0] if goes else [])


@pytest.mark.parametrize(("code", "is_again"), [(200, False), (404, False), (409, False), (500, True), (0, True)])
def test_a_delete_that_failed_is_tried_again_ten_seconds_later(a_pod, code, is_again):
    node = Node(a_pod(metadata=DELETED))
    node.is_over = True
    node.written()

    node.statuses.delete_answered(node.key, code, 2.0)

    assert node.timers == ([(12.0, "delete")] if is_again else [])
    node.statuses.delete_again(node.key)
    assert node.deletions == [0, 0]


def test_a_pod_that_is_to_be_made_anew_is_deleted_as_any_client_would_until_that_is_taken(a_pod):
    pod = a_pod()
    node = Node(pod)

    node.statuses.recreate(node.key, pod)
    node.statuses.delete_again(node.key)
    node.pods[pod.metadata.uid] = a_pod(metadata=DELETED)
    node.statuses.delete_again(node.key)

    assert node.deletions == [None, None]


def test_a_final_status_says_of_which_generation_it_is_and_is_forgotten_with_the_pod(a_pod):
    pod = a_pod()
    node = Node(pod)

    node.statuses.set_final(node.key, pod, {"phase": "Failed"}, 0.0)

    assert node.statuses.final_statuses == {node.key: {"phase": "Failed", "observedGeneration": 2}}
    node.statuses.forget(node.key)
    assert node.statuses.final_statuses == {}
    assert node.statuses.next_write(0.0) is None
