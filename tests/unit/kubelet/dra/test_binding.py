"""What a driver reports of devices that pods wait for before they are bound: values in, values out (KEP-5007)."""

import msgspec
import pytest

from kubelet.dra.emulated.binding import conditions_patch, waiting
from services.api.kinds.resourceclaim import ResourceClaim

NAME, WALL, THEN = "gpu.example.com", 1_767_225_630.0, "2026-01-01T00:00:00Z"
RESULT = {"request": "r", "driver": NAME, "pool": "n1", "device": "gpu-0",
          "bindingConditions": ["x.io/a", "x.io/b"], "bindingFailureConditions": ["x.io/f", "x.io/g"]}  # fmt: skip
OTHERS = {"driver": "nic.example.com", "pool": "n1", "device": "nic-0", "data": {"mac": "x"}}


def document(*entries, **result):
    return {
        "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "7"},
        "status": {
            "allocation": {"devices": {"results": [{**RESULT, **result}]}, "allocationTimestamp": THEN},
            "devices": list(entries),
        },
    }


def entry(*conditions):
    return {"driver": NAME, "pool": "n1", "device": "gpu-0", "conditions": list(conditions)}


def condition(name, status="True", at=THEN):
    return {"type": name, "status": status, "reason": "r", "message": "", "lastTransitionTime": at}


def awaited(stored, pools=("n1",)):
    return list(waiting(msgspec.convert(stored, ResourceClaim), NAME, pools))


@pytest.mark.parametrize(
    ("stored", "count"),
    [
        (document(), 1),
        (document(bindingConditions=[]), 0),
        (document(driver="nic.example.com"), 0),
        (document(pool="n2"), 0),
        (document(entry(condition("x.io/a"))), 1),
        (document(entry(condition("x.io/a"), condition("x.io/b", "False"))), 1),
        (document(entry(condition("x.io/a"), condition("x.io/b"))), 0),
        (document(entry(condition("x.io/g"))), 0),
        ({"metadata": {"uid": "u"}}, 0),
    ],
)
def test_devices_here_are_awaited_until_their_conditions_are_said(stored, count):
    assert len(awaited(stored)) == count


def test_the_report_keeps_what_other_drivers_say_and_holds_for_that_version():
    stored = document(OTHERS, entry(condition("x.io/a"), condition("x.io/b", "False"), condition("Ready", "False")))
    (key,) = awaited(stored)

    patch = conditions_patch(stored, key, NAME, WALL, fails=False)

    assert patch["metadata"] == {"resourceVersion": "7"}
    others, mine = patch["status"]["devices"]
    assert others == OTHERS
    said = [(each["type"], each["status"], each["lastTransitionTime"]) for each in mine["conditions"]]
    assert said == [
        ("x.io/a", "True", THEN), ("x.io/b", "True", "2026-01-01T00:00:30Z"), ("Ready", "False", THEN),
    ]  # fmt: skip


def test_a_failure_is_the_first_failure_condition():
    (key,) = awaited(document())

    (mine,) = conditions_patch(document(), key, NAME, WALL, fails=True)["status"]["devices"]

    (said,) = mine["conditions"]
    assert (said["type"], said["message"]) == ("x.io/f", "device n1/gpu-0 cannot be attached")


def test_nothing_is_reported_of_an_allocation_that_is_not_there_any_more():
    (key,) = awaited(document())
    stored = document()
    stored["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:01Z"

    assert conditions_patch(stored, key, NAME, WALL, fails=False) is None
    assert conditions_patch(document(device="gpu-1"), key, NAME, WALL, fails=False) is None
    assert conditions_patch({"metadata": {"uid": "u"}}, key, NAME, WALL, fails=False) is None
