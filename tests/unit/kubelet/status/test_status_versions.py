"""The status manager: versions, coalescing, differences, the fence."""

import pytest

from kubelet.status.versions import StatusVersions
from kubelet.view import WorkerKey

KEY = WorkerKey("uid-p", 2)


def status(phase="Running", ready="True", generation=2):
    conditions = [{"type": "Ready", "status": ready}, {"type": "Initialized", "status": "True"}]
    return {"phase": phase, "observedGeneration": generation, "conditions": conditions}


@pytest.fixture
def manager():
    return StatusVersions()


def write(manager, pod, rendered, now=0.0):
    manager.on_changed(KEY, now)
    made = manager.take(KEY, pod, rendered)
    if made is not None:
        manager.on_acknowledged(made, now)
    return made


def test_kubelet_6_five_changes_during_one_write_become_one_more_write(manager, a_pod):
    manager.on_changed(KEY, 0.0)
    first = manager.take(KEY, a_pod(), status(ready="True"))
    for _ in range(5):
        manager.on_changed(KEY, 0.5)
    manager.on_acknowledged(first, 1.0)

    assert manager.next_key(1.0) == KEY
    second = manager.take(KEY, a_pod(), status(ready="False"))
    manager.on_acknowledged(second, 2.0)
    assert manager.next_key(2.0) is None


def test_the_first_write_sends_everything_and_later_ones_what_changed(manager, a_pod):
    first = write(manager, a_pod(), status(ready="False"))
    second = write(manager, a_pod(), status(ready="True"))

    assert first.patch == {"metadata": {"uid": "uid-p"}, "status": status(ready="False")}
    assert second.patch["status"] == {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 2}
    assert write(manager, a_pod(), status(ready="True")) is None


def test_what_a_condition_no_longer_says_is_taken_back(manager, a_pod):
    why = {"reason": "ContainersNotReady", "message": "containers with unready status: [main]"}
    waiting = {"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "False", **why}]}
    write(manager, a_pod(), waiting)

    patch = write(manager, a_pod(), {**waiting, "conditions": [{"type": "Ready", "status": "True"}]}).patch

    assert patch["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": None, "message": None}]


def test_guarantees_n8_every_patch_carries_uid_and_observed_generation(manager, a_pod):
    write(manager, a_pod(), status())

    patch = write(manager, a_pod(), status(phase="Failed")).patch

    assert patch["metadata"]["uid"] == "uid-p"
    assert patch["status"]["observedGeneration"] == 2


def test_after_a_failure_the_newest_whole_status_is_sent_ten_seconds_later(manager, a_pod):
    write(manager, a_pod(), status(ready="False"))
    manager.on_changed(KEY, 1.0)
    failed = manager.take(KEY, a_pod(), status(ready="True"))

    assert manager.on_failed(failed, 1.0) == 11.0

    assert manager.next_key(5.0) is None
    assert manager.next_key(11.0) == KEY
    assert manager.take(KEY, a_pod(), status(phase="Failed")).status == status(phase="Failed")


def test_guarantees_fm_a1_an_unanswered_write_is_tried_again_soon_then_ever_later(manager, a_pod):
    waits, now = [], 0.0
    for version in range(8):
        manager.on_changed(KEY, now)
        lost = manager.take(KEY, a_pod(), status(ready=str(version)))
        later = manager.on_failed(lost, now, is_lost=True)
        assert manager.next_key((now + later) / 2) is None
        assert manager.next_key(later) == KEY
        waits.append(round(later - now, 3))
        now = later

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_timer_that_fires_within_a_microsecond_of_the_retry_is_not_lost(manager, a_pod):
    manager.on_changed(KEY, 0.0)
    manager.on_failed(manager.take(KEY, a_pod(), status(ready="False")), 0.0)

    assert manager.next_key(10.0 - 5e-7) == KEY


def test_a_terminal_phase_in_the_api_is_never_written_over(manager, a_pod):
    made = write(manager, a_pod(status={"phase": "Failed"}), status(phase="Running"))

    assert made.patch["status"]["phase"] == "Failed"


def test_unbinding_6_2_a_suppressed_pod_is_not_written_until_permitted(manager, a_pod):
    manager.on_changed(KEY, 0.0)
    manager.suppress(KEY)

    assert not manager.on_changed(KEY, 1.0)
    assert manager.next_key(1.0) is None

    manager.permit(KEY)
    assert manager.on_changed(KEY, 2.0)


def test_drift_makes_the_whole_status_be_written_again(manager, a_pod):
    write(manager, a_pod(), status())

    assert manager.on_drift(KEY, 1.0)
    assert manager.take(KEY, a_pod(), status()).patch["status"] == status()


def test_written_at_once_every_change_is_a_write_of_its_own(a_pod):
    manager = StatusVersions(is_immediate=True)
    for ready in ("False", "True", "False"):
        manager.on_changed(KEY, 0.0, status(ready=ready))

    seen = []
    while (key := manager.next_key(0.0)) is not None:
        made = manager.take(key, a_pod(), {})
        if made is not None:
            seen.append(made.status["conditions"][0]["status"])
    assert seen == ["False", "True", "False"]


def test_a_start_is_over_when_its_status_is_acknowledged(manager, a_pod):
    write(manager, a_pod(), status(phase="Pending"))
    manager.on_changed(KEY, 1.0)

    assert (True, "Pending") == (manager.owes(KEY), manager.acked_phase(KEY))
    manager.on_acknowledged(manager.take(KEY, a_pod(), status()), 2.0)
    assert (False, "Running") == (manager.owes(KEY), manager.acked_phase(KEY))
    manager.forget(KEY)
    assert (False, "") == (manager.owes(KEY), manager.acked_phase(KEY))


def test_how_long_a_status_waits_is_counted_from_its_first_change_that_was_not_written(manager, a_pod):
    for now in (1.0, 3.0):
        manager.on_changed(KEY, now)
    manager.on_acknowledged(manager.take(KEY, a_pod(), status(ready="False")), 5.0)
    manager.on_changed(KEY, 10.0)
    manager.on_acknowledged(manager.take(KEY, a_pod(), status(ready="True")), 11.5)
    manager.on_changed(KEY, 20.0)
    assert manager.take(KEY, a_pod(), status(ready="True")) is None, "nothing is new"
    manager.on_changed(KEY, 30.0)
    manager.on_acknowledged(manager.take(KEY, a_pod(), status(ready="False")), 32.0)

    assert (manager.syncs, manager.sync_seconds_sum) == (3, 4.0 + 1.5 + 2.0)


def test_conditions_of_ours_that_no_longer_stand_are_deleted_whatever_was_written_before(manager, a_pod):
    shown = [{"type": kind, "status": "True"} for kind in ("PodResizePending", "Ready", "OfAnother")]
    pod = a_pod(status={"conditions": shown})
    resizing = {**status(), "conditions": [{"type": "PodResizeInProgress", "status": "True"}]}
    gone = [{"$patch": "delete", "type": "PodResizePending"}]

    first = write(manager, pod, resizing).patch["status"]
    second = write(manager, pod, {**resizing, "conditions": []}).patch["status"]

    assert first == {**resizing, "conditions": [*resizing["conditions"], *gone]}
    assert second["conditions"] == [{"$patch": "delete", "type": "PodResizeInProgress"}]


def test_an_address_that_the_pod_lost_is_taken_away_and_its_own_stays(manager, a_pod):
    own = {**status(), "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}

    lost = write(manager, a_pod(status={"podIP": "10.0.0.1"}), own).patch["status"]["podIPs"]
    manager.forget(KEY)
    kept = write(manager, a_pod(status={"podIP": "10.0.0.9"}), own).patch["status"]["podIPs"]

    assert lost == [{"ip": "10.0.0.9"}, {"$patch": "delete", "ip": "10.0.0.1"}]
    assert kept == [{"ip": "10.0.0.9"}]


def test_written_at_once_a_change_that_waits_is_no_other_write(a_pod):
    manager = StatusVersions(is_immediate=True)
    for ready in ("False", "True"):
        manager.on_changed(KEY, 0.0, status(ready=ready))

    manager.on_acknowledged(manager.take(KEY, a_pod(), {}), 1.0)

    assert (manager.waiting, manager.next_key(1.0)) == (0, KEY)
    manager.on_acknowledged(manager.take(KEY, a_pod(), {}), 2.0)
    assert manager.next_key(2.0) is None


def test_a_failure_leaves_it_open_what_the_api_server_has_also_after_a_later_answer(a_pod):
    manager = StatusVersions(is_immediate=True)
    for ready in ("False", "True"):
        manager.on_changed(KEY, 0.0, status(ready=ready))
    first, second = (manager.take(KEY, a_pod(), {}) for _ in range(2))
    manager.on_acknowledged(second, 1.0)
    manager.on_failed(first, 1.0)

    manager.on_changed(KEY, 2.0, status(ready="True"))

    assert manager.take(KEY, a_pod(), {}).patch["status"] == status(ready="True")


def test_a_pod_whose_newest_status_is_still_to_be_written_has_not_drifted(manager, a_pod):
    assert not manager.on_drift(KEY, 0.0)
    write(manager, a_pod(), status(ready="False"))
    manager.on_changed(KEY, 1.0)

    assert not manager.on_drift(KEY, 1.0)
    assert manager.last_acked(KEY) is None


@pytest.mark.parametrize(("is_lost", "retry_s"), [(False, 10.0), (True, 0.2)])
def test_a_write_of_a_pod_that_is_forgotten_meanwhile_says_when_it_would_be_sent_again(
    manager, a_pod, is_lost, retry_s
):
    manager.on_changed(KEY, 0.0)
    made = manager.take(KEY, a_pod(), status())
    manager.forget(KEY)

    assert manager.on_failed(made, 5.0, is_lost=is_lost) == 5.0 + retry_s
    assert manager.next_key(60.0) is None
