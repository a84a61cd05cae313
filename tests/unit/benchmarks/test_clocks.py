import time

from lab.benchmarks.clocks import Clocks, clocking
from lab.benchmarks.result import breakdown_of


def _work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Inner:
    name = "Inner"

    def score(self):
        _work(0.02)


class Outer:
    name = "Outer"

    def post_filter(self, inner):
        inner.score()


def test_time_spent_in_another_clocked_method_is_the_others():
    clocks = Clocks()

    with clocking(clocks, [Inner, Outer], []):
        Outer().post_filter(Inner())

    assert clocks.spent_s["Inner", "Score"] >= 0.02
    assert clocks.spent_s["Outer", "PostFilter"] < clocks.spent_s["Inner", "Score"]


def test_nothing_is_clocked_afterwards():
    before = Inner.score

    with clocking(Clocks(), [Inner], []):
        assert Inner.score is not before

    assert Inner.score is before


def test_a_breakdown_is_in_microseconds_a_pod_and_what_no_plugin_spent_is_the_cycles():
    spent = {("Fit", "Filter"): 0.002, ("Fit", "Score"): 0.001, ("queue", ""): 0.003}

    found = breakdown_of(spent, took_s=0.010, pods=100)

    assert found["by_plugin"] == {"Fit": 30.0}
    assert found["by_extension_point"] == {"Filter": 20.0, "Score": 10.0}
    assert found["by_part"] == {"cycle": 40.0, "queue": 30.0}
