"""The order in which a StatefulSet's pods come, go and are replaced."""

import msgspec
import pytest

from services.api.kinds.pod import Pod
from services.controllers.statefulset.order import Desired, steps_of

WALL_S = 1_767_225_600.0
OLD, NEW = "web-old", "web-new"


def a_pod(ordinal, phase="Running", *, ready=True, leaving=False, revision=NEW, ready_for_s=100):
    since = "2025-12-31T23:58:20Z" if ready_for_s == 100 else "2025-12-31T23:59:57Z"
    meta = {"name": f"web-{ordinal}", "uid": f"u{ordinal}", "labels": {"controller-revision-hash": revision}}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True" if ready and phase == "Running" else "False",
                 "lastTransitionTime": since}  # fmt: skip
    return msgspec.convert({"metadata": meta, "status": {"phase": phase, "conditions": [condition]}}, Pod)


def look(*pods, replicas=3, blocked=(), **desired):
    """Return the steps as texts; pods are given in order of their numbers, None for a missing one."""
    first = desired.pop("start", 0)
    asked = Desired(range(first, first + replicas), update_revision=NEW, current_revision=OLD, **desired)
    by_number = {int(p.metadata.name.rpartition("-")[2]): p for p in pods if p is not None}
    steps = steps_of(asked, by_number, blocked, WALL_S)
    names = {"made": [f"web-{n}" for n in steps.made]}
    for kind in ("recreated", "removed", "replaced"):
        names[kind] = [p.metadata.name for p in getattr(steps, kind)]
    return {kind: found for kind, found in names.items() if found}


@pytest.mark.parametrize(
    ("pods", "made"),
    [
        ((), ["web-0"]),
        ((a_pod(0, "Pending"),), []),
        ((a_pod(0, ready=False),), []),
        ((a_pod(0),), ["web-1"]),
        ((a_pod(0), a_pod(1)), ["web-2"]),
        ((a_pod(0, leaving=True), a_pod(2)), []),
        ((a_pod(0), a_pod(2)), ["web-1"]),
    ],
)
def test_controllers_08_the_next_pod_is_made_when_all_before_it_are_ready(pods, made):
    assert look(*pods).get("made", []) == made


def test_parallel_makes_all_at_once_and_none_whose_name_is_not_free():
    assert look(a_pod(1, "Pending"), is_parallel=True, blocked=(2,)) == {"made": ["web-0"]}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_controllers_08_an_ended_pod_goes_first_and_nothing_is_made_in_its_place_yet(phase):
    assert look(a_pod(0), a_pod(1, phase)) == {"recreated": ["web-1"]}
    assert look(a_pod(0), a_pod(1, phase, leaving=True)) == {}


def test_a_pod_must_have_been_ready_for_long_enough():
    pods = (a_pod(0, ready_for_s=3),)
    asked = Desired(range(3), min_ready_s=10, update_revision=NEW)

    steps = steps_of(asked, {0: pods[0]}, (), WALL_S)

    assert (steps.made, steps.again_s) == ([], 7.0)
    assert look(*pods, min_ready_s=3) == {"made": ["web-1"]}


def test_scaling_down_takes_one_at_a_time_from_the_top_and_waits_for_its_end():
    pods = [a_pod(n) for n in range(4)]

    assert look(*pods, replicas=2) == {"removed": ["web-3"]}
    assert look(*pods[:3], a_pod(3, leaving=True), replicas=2) == {}
    assert look(*pods, replicas=2, is_parallel=True) == {"removed": ["web-3", "web-2"]}


def test_scaling_down_waits_for_a_sick_pod_below_unless_it_is_that_pods_turn():
    assert look(a_pod(0), a_pod(1, ready=False), a_pod(2), replicas=2) == {}
    assert look(a_pod(0), a_pod(1, ready=False), a_pod(2, ready=False), replicas=1) == {}
    assert look(a_pod(0), a_pod(1), a_pod(2, ready=False), replicas=1) == {"removed": ["web-2"]}
    assert look(a_pod(0), a_pod(1, ready=False), a_pod(2), replicas=1) == {"removed": ["web-2"]}


def test_numbers_may_begin_elsewhere():
    assert look(a_pod(5), start=5) == {"made": ["web-6"]}
    assert look(a_pod(4), a_pod(5), a_pod(6), a_pod(7), start=5) == {"removed": ["web-4"]}


def test_an_update_goes_from_the_top_down_one_by_one():
    old = [a_pod(n, revision=OLD) for n in range(3)]

    assert look(*old) == {"replaced": ["web-2"]}
    assert look(*old[:2], a_pod(2, ready=False), is_parallel=True) == {}
    assert look(*old[:2], a_pod(2)) == {"replaced": ["web-1"]}


def test_pods_below_the_partition_and_with_on_delete_all_pods_stay_as_they_are():
    old = [a_pod(n, revision=OLD) for n in range(3)]

    assert look(*old[:2], a_pod(2), partition=2) == {}
    assert look(*old, partition=2) == {"replaced": ["web-2"]}
    assert look(*old, partition=None) == {}
    asked = Desired(range(3), current_revision=OLD, update_revision=NEW, kept_revision=2)
    assert [asked.revision_of_new(n) for n in range(3)] == [OLD, OLD, NEW]


def test_kk_67250_a_pod_that_never_becomes_ready_blocks_its_own_replacement():
    stuck = a_pod(2, "Pending", revision="web-broken")

    assert look(a_pod(0), a_pod(1), stuck) == {}
    assert look(a_pod(0), a_pod(1), stuck, is_parallel=True) == {"replaced": ["web-2"]}


def test_with_max_unavailable_an_update_takes_several_and_counts_who_is_missing():
    old = [a_pod(n, revision=OLD) for n in range(4)]

    assert look(*old, replicas=4, most_unavailable=2) == {"replaced": ["web-3", "web-2"]}
    assert look(*old[:3], a_pod(3, ready=False), replicas=4, most_unavailable=2, is_parallel=True) == {
        "replaced": ["web-2"]
    }
    assert look(*old[:2], replicas=4, most_unavailable=2, is_parallel=True) == {"made": ["web-2", "web-3"]}


def test_kk_137666_old_pods_that_are_down_do_not_count_and_go_first():
    """A `Parallel` set of 1.37; until then they count, and a set whose first revision is broken is never updated."""
    down = a_pod(0, ready=False, revision=OLD)
    asked = {"most_unavailable": 1, "is_parallel": True}

    assert look(down, replicas=1, **asked) == {}
    assert look(down, replicas=1, counts_broken=False, **asked) == {"replaced": ["web-0"]}
    mixed = (down, *(a_pod(n, revision=OLD) for n in (1, 2)))
    assert look(*mixed, counts_broken=False, **asked) == {"replaced": ["web-0"]}
    assert look(*mixed, counts_broken=False, **{**asked, "most_unavailable": 2}) == {"replaced": ["web-0", "web-2"]}
    new_is_down = (a_pod(0, revision=OLD), a_pod(1, revision=OLD), a_pod(2, ready=False))
    assert look(*new_is_down, counts_broken=False, **asked) == {}
    leaving = (a_pod(0, revision=OLD), a_pod(1, leaving=True, revision=OLD), a_pod(2))
    assert look(*leaving, counts_broken=False, **asked) == {}


def test_an_ended_pod_is_not_deleted_a_second_time_for_its_revision():
    pods = (a_pod(0, revision=OLD), a_pod(1, revision=OLD), a_pod(2, "Failed", revision=OLD))

    assert look(*pods, is_parallel=True) == {"recreated": ["web-2"]}
