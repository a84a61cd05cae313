"""Soft constraints over all nodes: the fuller a node's domains are, the higher its raw score, the worse it ranks.

Source: scheduler-queue-and-cycles 6, 12.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.cache.columns import Columns, Floats, Mask
from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_index import Area, PodIndex
from scheduler.plugins.pod_topology_spread.constraints import Constraint

HOSTNAME: Final = "kubernetes.io/hostname"


class DomainLoad(NamedTuple):
    """The raw score of each row, and the rows that lack a key (None: none), which get 0."""

    raw: Floats
    ignored: Mask | None


def domain_load(
    pod: PodInfo,
    constraints: Sequence[Constraint],
    areas: Sequence[Area],
    ignored: Mask | None,
    feasible: Mask,
    index: PodIndex,
    columns: Columns,
) -> DomainLoad:
    """Return the sum over constraints of count * weight + maxSkew - 1, rounded as Go rounds.

    The weight is ln(domains + 2), so that a label with few values is not drowned by one with many. `areas`: one a
    constraint. For the hostname a node counts its own pods, whatever the policies say (12.5).
    """
    scored = feasible if ignored is None else feasible & ~ignored
    raw = np.zeros(columns.capacity)
    for constraint, area in zip(constraints, areas, strict=True):
        tally = index.tally(constraint.question(pod.key.namespace))
        ids, values = columns.label_ids(constraint.key)
        if constraint.key == HOSTNAME:
            part = tally.on_rows() * math.log(int(np.count_nonzero(scored)) + 2)
            part += constraint.max_skew - 1
            part *= ids != 0
        else:
            domains = int(np.count_nonzero(np.bincount(ids[scored], minlength=len(values) + 1)))
            of_value = tally.by(constraint.key, area).counts * math.log(domains + 2) + (constraint.max_skew - 1)
            of_value[0] = 0.0
            part = of_value[ids]
        raw += part
    return DomainLoad(_rounded(raw), ignored)


def _rounded(scores: Floats) -> Floats:
    """Round halves up. Adding 0.5 first would round the number just below a half up, too."""
    whole = np.floor(scores)
    whole += scores - whole >= 0.5
    return whole


def ranked(load: DomainLoad, feasible: Mask) -> Floats:
    """Return 0 to 100: the emptiest row gets the most, the fullest what the emptiest is worth beside it."""
    raw, ignored = load.raw, load.ignored
    among = raw[feasible if ignored is None else feasible & ~ignored]
    most = float(among.max(initial=0.0))
    if most:
        scores = most + float(among.min()) - raw
        scores *= 100.0
        scores /= most
        np.floor(scores, out=scores)
    else:
        scores = np.full(len(raw), 100.0)
    if ignored is not None:
        scores[ignored] = 0.0
    return scores
