from services.api.meta import Key
from services.reconcile.expectations import Expectations

KEY = Key("default", "web")


def test_a_key_never_expected_anything_is_satisfied():
    assert Expectations().are_satisfied(KEY, now_s=0.0)


def test_creations_are_awaited_until_each_was_seen():
    expectations = Expectations()
    expectations.expect(KEY, creations=2, now_s=0.0)

    expectations.creation_observed(KEY)
    assert not expectations.are_satisfied(KEY, now_s=1.0)

    expectations.creation_observed(KEY)
    assert expectations.are_satisfied(KEY, now_s=1.0)


def test_a_deletion_seen_twice_counts_once():
    expectations = Expectations()
    expectations.expect(KEY, deletions=("u1", "u2"), now_s=0.0)

    expectations.deletion_observed(KEY, "u1")
    expectations.deletion_observed(KEY, "u1")

    assert expectations.pending_counts(KEY) == (0, 1)
    assert not expectations.are_satisfied(KEY, now_s=1.0)


def test_controllers_3_a_lost_expectation_is_given_up_after_five_minutes():
    expectations = Expectations()
    expectations.expect(KEY, creations=1, now_s=10.0)

    assert not expectations.are_satisfied(KEY, now_s=310.0)
    assert expectations.are_satisfied(KEY, now_s=310.1)


def test_forgetting_a_key_leaves_nothing_behind():
    expectations = Expectations()
    expectations.expect(KEY, creations=1, now_s=0.0)

    expectations.forget(KEY)

    assert len(expectations) == 0
    assert expectations.are_satisfied(KEY, now_s=0.0)
