"""Taints that administrators put on devices (dra-core 8)."""

import pytest

from services.api.kinds.devicetaintrule import DeviceTaintSelector
from services.dra.taints import with_rules
from tests.unit.dra.objects import DRIVER, device, offer, rule, taint

SLICES = [offer("a", device("x", taints=[taint("own")]), "y"), offer("b", "x", pool="q", driver="nic.example")]


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        (DeviceTaintSelector(), {"a/x", "a/y", "b/x"}),
        (DeviceTaintSelector(driver=DRIVER), {"a/x", "a/y"}),
        (DeviceTaintSelector(pool="q"), {"b/x"}),
        (DeviceTaintSelector(device="x"), {"a/x", "b/x"}),
        (DeviceTaintSelector(driver=DRIVER, pool="n1", device="y"), {"a/y"}),
        (DeviceTaintSelector(driver=DRIVER, pool="q"), set()),
        (None, set()),
    ],
)
def test_a_rule_is_for_the_devices_whose_given_fields_are_equal(selector, tainted):
    made = with_rules(SLICES, [rule("r", selector=selector)])

    found = {f"{s.metadata.name}/{d.name}" for s in made for d in s.spec.devices if any(t.key == "r" for t in d.taints)}
    assert found == tainted


def test_rules_come_by_name_behind_the_drivers_own_taints_and_other_slices_stay_as_they_are():
    made = with_rules(SLICES, [rule("s", device="x", pool="n1"), rule("r", driver=DRIVER)])

    assert [[t.key for t in d.taints] for d in made[0].spec.devices] == [["own", "r", "s"], ["r"]]
    assert made[1] is SLICES[1]
