"""How much a share consumes (dra-core 3.3, the table of request policies)."""

import pytest

from services.dra.capacity import canonical, consumption_of
from tests.unit.dra.objects import DRIVER, policy

STEPS = policy("10Gi", default="2Gi", least="1Gi", most="8Gi", step="1Gi")
VALUES = policy("8", values=("1", "2", "4"))


@pytest.mark.parametrize(
    ("capacity", "requested", "consumed"),
    [
        (policy("10Gi"), "3Gi", "3Gi"),
        (policy("10Gi"), None, "10Gi"),
        (STEPS, None, "2Gi"),
        (STEPS, "1", "1Gi"),
        (STEPS, "1500Mi", "2Gi"),
        (STEPS, "3Gi", "3Gi"),
        (STEPS, "8193Mi", None),
        (policy("10Gi", least="1Gi", step="1Gi"), None, "10Gi"),
        (policy("10", least="1", most="5"), "2500m", "2500m"),
        (policy("10k", least="1k", step="500"), "1200", "1500"),
        (policy("10k", least="1k", step="1k"), "1200", "2k"),
        (VALUES, "3", "4"),
        (VALUES, "4", "4"),
        (VALUES, "5", None),
        (VALUES, None, None),
        (policy("8", default="3", values=("1", "2", "4")), None, "3"),
    ],
)
def test_requests_are_rounded_up_by_the_policy_or_cannot_be_served(capacity, requested, consumed):
    found = consumption_of({"x": capacity}, DRIVER, {"x": requested} if requested else {})

    assert (found[0].text if found is not None else None) == consumed


def test_every_capacity_of_the_device_is_consumed_and_one_it_lacks_is_no_match():
    published = {"a": policy("4", default="1"), f"{DRIVER}/b": policy("8"), "other.example/c": policy("2")}

    found = consumption_of(published, DRIVER, {f"{DRIVER}/a": "2", "b": "3"})

    assert [(each.name, each.full_name, each.text) for each in found] == [
        ("a", f"{DRIVER}/a", "2"), (f"{DRIVER}/b", f"{DRIVER}/b", "3"), ("other.example/c", "other.example/c", "2"),
    ]  # fmt: skip
    assert consumption_of(published, DRIVER, {"c": "1"}) is None


@pytest.mark.parametrize(
    ("text", "canon"),
    [
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("0.5Gi", "512Mi"),
    ],
)
def test_quantities_are_written_as_kubernetes_does(text, canon):
    assert canonical(text) == canon
