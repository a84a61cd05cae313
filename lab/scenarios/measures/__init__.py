"""Measures of a run: figures by which runs are compared. Pure."""


def quantile(values: list[float], q: float) -> float | None:
    """Return the nearest-rank quantile, or None if there are no values. All quantiles of runs are computed here."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
