"""Which toleration puts up with which taint (core/v1; KEP-5471 for comparisons)."""

from __future__ import annotations

import pytest

from services.api.kinds.node import Taint
from services.api.kinds.pod import Toleration
from services.api.taints import tolerates


@pytest.mark.parametrize(
    ("operator", "bound", "value", "expected"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "900", "900", False),
        ("Lt", "-1", "-5", True),
        ("Lt", "-5", "-1", False),
        ("Gt", "900", "high", False),
        ("Lt", "", "1", False),
        ("Gt", "1", "02", False),
    ],
)
def test_a_comparing_toleration_wants_the_taints_number_above_or_below_its_own(operator, bound, value, expected):
    toleration = Toleration(key="sla", operator=operator, value=bound)

    assert tolerates(toleration, Taint(key="sla", value=value, effect="NoSchedule")) is expected
    assert not tolerates(toleration, Taint(key="other", value=value, effect="NoSchedule"))
