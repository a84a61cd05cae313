"""Pods by phase over time, aggregated over seeds: median, quartiles, least and greatest at each moment. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from lab.scenarios.measures.phases import Sample

POINTS: Final = 200
PHASES: Final = ("pending", "running", "failed", "succeeded")
Row = tuple[float, float, float, float, float]
"""Time in seconds, and the number of pods in each of `PHASES` from then on."""


class Band(msgspec.Struct, frozen=True):
    """Number of pods in one phase at each moment, over seeds."""

    phase: str
    low: list[float]
    q25: list[float]
    median: list[float]
    q75: list[float]
    high: list[float]


class Bands(msgspec.Struct, frozen=True):
    """The phases of one arm. `at_s`: the moments in seconds since the run began, the same for all bands."""

    at_s: list[float]
    phases: list[Band]


def rows_of(samples: Sequence[Sample]) -> list[Row]:
    """Return the pods by phase over time as rows for plots, thinned."""
    counts = ((s.at_s, s.pending, s.running, s.failed, s.succeeded) for s in samples)
    return thin_rows([(round(at_s, 6), float(p), float(r), float(f), float(c)) for at_s, p, r, f, c in counts])


def thin_rows(rows: Sequence[Row], most: int = 4 * POINTS) -> list[Row]:
    """Return at most `most` rows: the first, and the last of each interval of time."""
    if len(rows) <= most:
        return list(rows)
    grain_s = rows[-1][0] / (most - 2)
    kept = {int(row[0] / grain_s): row for row in rows[1:]}
    return [rows[0], *kept.values()]


def bands_of(runs: Sequence[Sequence[Row]]) -> Bands:
    """Return the bands of several runs.

    Counts are steps: each holds until the next. A run that has ended contributes nothing to later moments, so
    the quantiles are over the runs that still go on.
    """
    runs = [run for run in runs if run]
    end_s = max((run[-1][0] for run in runs), default=0.0)
    at_s = [float(at) for at in np.linspace(0.0, end_s, POINTS)] if end_s else [0.0]
    values = np.full((len(runs), len(PHASES), len(at_s)), np.nan)
    for number, run in enumerate(runs):
        moments = [row[0] for row in run]
        for column, at in enumerate(at_s):
            if at <= moments[-1]:
                values[number, :, column] = run[max(0, bisect_right(moments, at) - 1)][1:]
    if not runs:
        return Bands([], [])
    quantiles = np.nanquantile(values, (0, 0.25, 0.5, 0.75, 1), axis=0)
    bands = []
    for place, phase in enumerate(PHASES):
        if np.nanmax(values[:, place]) > 0 or phase in ("running", "pending"):
            bands.append(Band(phase, *(_round_all(each) for each in quantiles[:, place])))
    return Bands([round(at, 6) for at in at_s], bands)


def _round_all(values: Sequence[float]) -> list[float]:
    return [round(float(value), 3) for value in values]
