"""Spread over seeds, differences within a seed: medians, an interval that is the same each time, signs; never NaN."""

import math
import random
import warnings

import pytest

from lab.experiments.statistics import RESAMPLES, SEEDS_MIN, Paired, Spread, spread_of, summarize_differences


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_spread_is_median_quartiles_and_ends():
    assert spread_of([5, 1, 2, 4, 3]) == Spread(5, 3.0, 2.0, 4.0, 1.0, 5.0)
    assert spread_of([1.0, 2.0]).median == 1.5
    assert spread_of([7.0]) == Spread(1, 7.0, 7.0, 7.0, 7.0, 7.0)
    assert spread_of([]) == Spread(0)


def test_the_interval_of_differences_holds_the_median_and_is_the_same_each_time():
    chance = random.Random(1)
    differences = [chance.gauss(-3.0, 1.0) for _ in range(20)]
    found = summarize_differences("x", differences)

    assert found == summarize_differences("x", differences)
    low, high = found.interval
    assert min(differences) <= low < found.median < high < 0
    assert (found.seeds, found.lower, found.higher, found.equal) == (20, 20, 0, 0)
    assert (found.sign, found.holds_in, found.is_clear, found.is_constant) == (-1, 20, True, False)
    assert found.p == pytest.approx(2 * 0.5**20)


def test_the_interval_is_that_of_the_median_over_resampled_seeds():
    differences = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    chance = random.Random(5)
    medians = sorted(sorted(chance.choices(differences, k=7))[3] for _ in range(4 * RESAMPLES))
    cut = len(medians) // 40

    assert summarize_differences("x", differences).interval == (medians[cut], medians[-cut - 1])


@pytest.mark.parametrize(
    ("differences", "interval"),
    [([0.3, -1.2, 2.2, 5.0, 0.7, 1.1, 4.4, -0.2], (-0.2, 4.4)), ([-1.0, -1.0, 0.0, -2.0, 3.0, -1.0], (-1.5, 1.5))],
)
def test_intervals_are_those_of_another_library(differences, interval):
    """Expected: SciPy 1.17 `scipy.stats.bootstrap`, percentile method, 4,999 resamples, NumPy's generator of seed 0."""
    assert summarize_differences("x", differences).interval == pytest.approx(interval, rel=1e-12)


@pytest.mark.parametrize(
    ("higher", "lower", "p"), [(3, 7, 0.34375), (5, 5, 1.0), (0, 20, 2 * 0.5**20), (60, 40, 0.0568879)]
)
def test_the_sign_test_is_exact_and_has_two_sides(higher, lower, p):
    """Expected: the binomial distribution of a fair coin, as in tables and `scipy.stats.binomtest`."""
    found = summarize_differences("x", [1.0] * higher + [-1.0] * lower + [0.0] * 3)

    assert (found.higher, found.lower, found.equal) == (higher, lower, 3)
    assert found.p == pytest.approx(p, rel=1e-5)


@pytest.mark.parametrize("count", range(1, SEEDS_MIN))
def test_few_seeds_have_no_interval_but_their_ends_and_signs(count):
    found = summarize_differences("x", [float(each + 1) for each in range(count)])

    assert found.interval is None
    assert (found.low, found.high, found.higher) == (1.0, count, count)
    assert found.is_clear, "every seed has the same sign"
    assert not summarize_differences("x", [1.0, -1.0]).is_clear


@pytest.mark.parametrize("differences", [[-4.0] * 20, [0.0] * 20, [0.0] * 19 + [1.0], [1.0, -1.0] * 10, [2.5]])
def test_differences_that_hardly_vary_give_numbers(differences):
    found = summarize_differences("x", differences)
    numbers = [found.median, found.low, found.high, *(found.interval or ())]

    assert all(math.isfinite(number) for number in numbers)
    assert found.is_constant == (len(set(differences)) == 1)
    assert found.is_clear == (len(set(differences)) == 1 and differences[0] != 0)
    assert (found.p is None) == (set(differences) == {0.0})


def test_no_common_seed_is_no_difference_and_not_clear():
    found = summarize_differences("x", [])

    assert found == Paired("x", 0)
    assert (found.is_clear, found.is_constant) == (False, False)


def test_seeds_without_a_difference_do_not_count_in_the_sign_test():
    found = summarize_differences("x", [0.0] * 10 + [1.0] * 4)

    assert (found.higher, found.equal, found.p) == (4, 10, pytest.approx(2 * 0.5**4))
    assert (found.sign, found.holds_in) == (0, 10), "the median is no difference"
