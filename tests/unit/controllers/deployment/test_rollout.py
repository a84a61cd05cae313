import pytest

from services.api.kinds.replicaset import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from services.api.meta import ObjectMeta
from services.controllers.deployment.replica_sets import template_hash, without_hash
from services.controllers.deployment.rollout import MAX, fenceposts, new_size, old_sizes, proportional


def a_set(name, replicas, available=0, max_replicas=None, created=""):
    notes = {} if max_replicas is None else {MAX: str(max_replicas)}
    return ReplicaSet(
        metadata=ObjectMeta(name=name, creation_timestamp=created, annotations=notes),
        spec=ReplicaSetSpec(replicas=replicas),
        status=ReplicaSetStatus(available_replicas=available),
    )


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("25%", "25%", 10, (3, 2)),
        (0, 0, 10, (0, 1)),
        ("1%", "1%", 10, (1, 0)),
        (0, 5, 3, (0, 3)),
        ("25%", 0, 1, (1, 0)),
    ],
)
def test_surge_rounds_up_and_unavailable_down_and_never_both_are_zero(surge, unavailable, replicas, expected):
    assert fenceposts(surge, unavailable, replicas) == expected


def test_controllers_6_ten_replicas_at_25_percent_stay_within_eight_and_thirteen_to_the_end():
    new, old = a_set("new", 0, 0), a_set("old", 10, 10)
    for _ in range(20):
        size = new_size(10, 3, new.spec.replicas, (new, old))
        if size != new.spec.replicas:
            new = a_set("new", size, new.status.available_replicas)
        else:
            sizes = old_sizes(10, 2, new, (old,))
            count = sizes.get("old", old.spec.replicas)
            old = a_set("old", count, min(old.status.available_replicas, count))

        assert new.spec.replicas + old.spec.replicas <= 13
        assert new.status.available_replicas + old.status.available_replicas >= 8
        new = a_set("new", new.spec.replicas, min(new.spec.replicas, new.status.available_replicas + 1))

    assert (new.spec.replicas, new.status.available_replicas, old.spec.replicas) == (10, 10, 0)


def test_broken_old_pods_go_first_from_the_oldest_set():
    new = a_set("new", 3, 0)
    olds = (a_set("b", 4, 4, created="2"), a_set("a", 4, 2, created="1"))

    assert old_sizes(8, 2, new, olds) == {"a": 2}


def test_scaling_in_mid_rollout_is_shared_in_proportion_and_the_largest_takes_the_rest():
    sets = (a_set("old", 8, max_replicas=13, created="1"), a_set("new", 5, max_replicas=13, created="2"))

    assert proportional(20, 5, 13, sets) == {"old": 15, "new": 10}
    assert proportional(0, 0, 13, sets) == {"old": 0, "new": 0}


def test_when_all_that_may_be_added_is_dealt_out_smaller_sets_stay_as_they_are():
    """The largest comes first, and its share is all that there is."""
    sets = (a_set("a", 6, max_replicas=6, created="1"), a_set("b", 4, max_replicas=20, created="2"),
            a_set("c", 2, max_replicas=4, created="3"))  # fmt: skip

    assert proportional(12, 2, 14, sets) == {"a": 8, "b": 4, "c": 2}


@pytest.mark.parametrize(("notes", "size"), [("12", 10), ("0", 20), ("many", 20), (None, 20)])
def test_a_share_is_of_the_maximum_that_the_set_was_last_scaled_for_or_else_of_the_present_one(notes, size):
    """A set of 5 that was scaled for at most 12, or 6 where it does not say, of 24 now."""
    own = a_set("own", 5, max_replicas=notes, created="1")

    assert proportional(20, 4, 6, (own, a_set("new", 4, max_replicas=6, created="2")))["own"] == size


def test_where_no_maximum_is_known_there_are_no_shares_and_the_largest_set_takes_all():
    assert proportional(10, 0, 0, (a_set("a", 3), a_set("b", 2))) == {"a": 8, "b": 2}


@pytest.mark.parametrize(("replicas", "sizes"), [(7, (2, 2, 3)), (8, (2, 3, 3)), (10, (3, 3, 4)), (11, (3, 4, 4))])
def test_of_equal_sets_older_ones_shrink_first_and_newer_ones_grow_first(replicas, sizes):
    """Also by what rounding leaves over."""
    sets = tuple(
        a_set(name, 3, max_replicas=9, created=created) for name, created in (("a", "1"), ("b", "2"), ("c", "3"))
    )

    assert proportional(replicas, 0, 9, sets) == dict(zip("abc", sizes, strict=True))


def test_the_template_hash_is_the_same_for_equal_templates_and_changes_with_the_collision_count():
    a = {"spec": {"x": 1, "y": [1, 2]}, "metadata": {"labels": {"a": "b"}}}
    b = {"metadata": {"labels": {"a": "b"}}, "spec": {"y": [1, 2], "x": 1}}

    assert template_hash(a, 0) == template_hash(b, 0)
    assert template_hash(a, 0) != template_hash(a, 1)
    assert set(template_hash(a, 0) + template_hash(a, 1)) <= set("456789bcdf")
    assert without_hash(a) == without_hash({**b, "metadata": {"labels": {"a": "b", "pod-template-hash": "z"}}})
