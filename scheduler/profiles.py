"""Which plugins run, in which order, with which weight: the default profile of section 5.1.

The plugins folder is the register of what exists; this list turns plugins on. Plugins that need more than
their class (a strategy, the exclusions) are made here from switches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scheduler.exclusions import Exclusions
from scheduler.framework.runner import Enabled
from scheduler.plugins import (
    default_binder,
    node_affinity,
    node_name,
    node_ports,
    node_rejection,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_unschedulable,
    priority_sort,
    scheduling_gates,
    taint_toleration,
)
from services.api.switches import Switches

NODE_REJECTION_WEIGHT: Final = 100
"""Above what all others together can give, so that a soft exclusion ranks last but stays possible."""

Factory = Callable[[Switches, Exclusions], Any]

DEFAULT: Final[tuple[tuple[Factory, int], ...]] = (
    (lambda s, x: scheduling_gates.PLUGIN(), 0),
    (lambda s, x: priority_sort.PLUGIN(), 0),
    (lambda s, x: node_unschedulable.PLUGIN(), 0),
    (lambda s, x: node_name.PLUGIN(), 0),
    (lambda s, x: taint_toleration.PLUGIN(detailed_reason=s.choice("scheduler.taint_reason") == "detailed"), 3),
    (lambda s, x: node_affinity.PLUGIN(), 2),
    (lambda s, x: node_ports.PLUGIN(), 0),
    (
        lambda s, x: node_resources_fit.PLUGIN(
            strategy=node_resources_fit.ScoringStrategy(type=s.choice("scheduler.scoring_strategy"))
        ),
        1,
    ),
    (lambda s, x: node_resources_balanced_allocation.PLUGIN(formula=s.choice("balanced.formula")), 1),
    (lambda s, x: node_rejection.PLUGIN(x, mode=s.choice("scheduler.exclusion")), NODE_REJECTION_WEIGHT),
    (lambda s, x: default_binder.PLUGIN(with_unbind_count=s.choice("bind.precondition") == "uid+unbindCount"), 0),
)


def default_profile(switches: Switches, exclusions: Exclusions) -> list[Enabled]:
    """Return the default plugins, in order, made for these switches."""
    return [Enabled(make(switches, exclusions), weight) for make, weight in DEFAULT]
