"""What became of pods in a run, as figures that runs can be compared by. Pure."""


def quantile(values: list[float], q: float) -> float | None:
    """Return the nearest-rank quantile, or None of nothing: the one way in which figures of runs are ranked."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
