"""The benchmark of selectors: what it measures selects the device it is measured with."""

from lab.benchmarks.cel import EXPRESSIONS, bench_cel


def test_every_selector_is_measured():
    found = bench_cel(evaluations=4, compilations=1)

    for figures in (found.evaluations_per_s, found.counted_per_s, found.compilations_per_s):
        assert set(figures) == set(EXPRESSIONS)
        assert min(figures.values()) > 0
    assert found.cost["driver"] == 4
