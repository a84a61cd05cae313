"""Choice of the seed that represents a comparison where the runs of only one seed are shown. Pure."""

from collections.abc import Collection

from lab.experiments.document import Comparison, Measure
from lab.experiments.headline import rank_measures


def representative(comparison: Comparison, seeds: Collection[int]) -> tuple[int, str] | None:
    """Return one of these seeds and the reason for it; None if every one of them has an unfinished run.

    It is the seed whose runs are nearest to the medians of their arms, in the measure that the headline
    names; the lowest of several.
    """
    common = [runs for runs in zip(*comparison.common_runs, strict=True) if runs[0].seed in seeds]
    candidates = sorted(runs[0].seed for runs in common)
    if not candidates:
        return None
    if len(comparison.seeds) == 1:
        return candidates[0], "the only one"
    if len(candidates) == 1:
        return candidates[0], "the only one that is recorded and came to its end in every arm"
    differing = rank_measures(comparison.differing())
    measure = next(
        (each for each in differing if any(comparison.is_clear(each, found) for found in each.differences)), None
    )
    measure = measure or next(iter(differing), None)
    distances = {} if measure is None else {seed: _distance(comparison, measure, seed) for seed in candidates}
    if measure is None or len(set(distances.values())) == 1:
        return candidates[0], "the first, as none is nearer to the medians"
    seed = min(candidates, key=lambda each: (distances[each], each))
    return seed, f"whose runs lie nearest to the medians of {measure.label}"


def _distance(comparison: Comparison, measure: Measure, seed: int) -> float:
    """Return how far the runs of a seed are from the medians of their arms, all arms together; a run without a value is
    infinitely far."""
    total = 0.0
    for arm, own in zip(comparison.arms, measure.arms, strict=True):
        value = next((run.measures.get(measure.name) for run in arm.runs if run.seed == seed), None)
        if own.median is None:
            continue  # no run of this arm has a value
        total += float("inf") if value is None else abs(value - own.median)
    return total
