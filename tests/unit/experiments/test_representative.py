"""Where the runs of one seed stand for all, it is the one nearest to the medians, and it is said why."""

from lab.experiments.representative import representative
from tests.unit.experiments.runs import a_failed_run, a_run, compared, seeds_of


def test_it_is_the_seed_nearest_to_the_medians_of_both_arms():
    made = compared(seeds_of([9, 5, 1], [5, 3, 1]))

    assert (1, "whose runs lie nearest to the medians of Pods failed") == representative(made, {0, 1, 2})
    assert (0, "whose runs lie nearest to the medians of Pods failed")[0] == representative(made, {0, 2})[0]


def test_of_equally_near_ones_it_is_the_lowest_and_no_measure_is_claimed():
    made = compared(seeds_of([4, 4], [1, 1]))

    assert (0, "the first, as none is nearer to the medians") == representative(made, {0, 1})


def test_a_seed_that_is_not_recorded_or_did_not_end_stands_for_nothing():
    runs = [*seeds_of([9, 5, 1], [5, 3, 1]), a_run("fail", 3, pods_failed=5.0), a_failed_run("unbind", 3)]
    made = compared(runs)

    assert representative(made, {3}) is None
    assert representative(made, set()) is None
    assert (2, "the only one that is recorded and came to its end in every arm") == representative(made, {2, 3})
    assert (0, "the only one") == representative(compared(seeds_of([9], [5])), {0})


def test_a_run_without_a_value_is_far_from_every_median():
    made = compared(seeds_of([None, 7, 1], [3, 3, 3]))

    assert 0 != representative(made, {0, 1, 2})[0]


def test_it_follows_the_measure_that_the_sentence_on_top_names():
    """The scatter of a measure without a direction does not choose it."""
    runs = [
        a_run(arm, seed, pods_failed=float(seed % 2 == (arm == "fail")), victims=victims)
        for arm, values in (("fail", (9.0, 5.0, 1.0)), ("unbind", (3.0, 2.0, 0.0)))
        for seed, victims in enumerate(values)
    ]

    assert (1, "whose runs lie nearest to the medians of Victims of preemption") == representative(
        compared(runs), {0, 1, 2}
    )
