"""What is allocated, claim by claim (dra-core 3.3, 6.1)."""

import random

import pytest

from services.api.kinds.resourceclaim import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from services.dra.allocated_devices import Allocated

D = "gpu.example"


def granted(*devices, **more):
    results = tuple(DeviceRequestAllocationResult(request="r", driver=D, pool="p", device=d, **more) for d in devices)
    return AllocationResult(devices=DeviceAllocationResult(results=results))


def share(device, share_id, **consumed):
    return granted(device, share_id=share_id, consumed_capacity=consumed)


def test_devices_are_in_use_while_a_claim_has_them_and_changes_name_their_pools():
    allocated = Allocated()

    allocated.put("c", granted("a", "b"))
    allocated.put("d", granted("a"))  # given twice: no component refused it
    assert allocated.devices == {(D, "p", "a"): 2, (D, "p", "b"): 1}
    assert set(allocated.of_pool((D, "p"))) == {"a", "b"}
    mark = allocated.changes.mark
    allocated.put("c", granted("a", "b"))
    assert allocated.changes.since(mark) == []
    allocated.drop("c")

    assert allocated.devices == {(D, "p", "a"): 1}
    assert allocated.changes.since(mark) == [(D, "p")] * 2
    allocated.put("d")
    assert (allocated.devices, list(allocated.of_pool((D, "p")))) == ({}, [])


def test_a_claim_written_and_in_flight_with_the_same_devices_counts_once():
    allocated = Allocated()

    allocated.put("c", granted("a"), granted("a"))

    assert allocated.devices == {(D, "p", "a"): 1}


def test_shares_add_up_by_the_full_names_of_capacities():
    allocated = Allocated()

    allocated.put("c", share("n", "1", bandwidth="1Gi"))
    allocated.put("d", share("n", "2", **{f"{D}/bandwidth": "512Mi", "other.example/x": "1"}))
    both = {f"{D}/bandwidth": 1536 * 2**20 * 1000, "other.example/x": 1000}
    assert (allocated.devices, allocated.shared) == ({}, {(D, "p", "n"): 2})
    assert allocated.capacity((D, "p", "n")) == both

    allocated.drop("d")
    allocated.drop("c")

    assert (allocated.shared, allocated.capacity((D, "p", "n"))) == ({}, {})


def test_without_consumable_capacity_a_share_is_the_whole_device():
    allocated = Allocated(consumable_capacity=False)

    allocated.put("c", share("n", "1", bandwidth="1"))

    assert allocated.devices == {(D, "p", "n"): 1}


def test_devices_given_for_admin_access_are_not_in_use():
    allocated = Allocated()

    allocated.put("c", granted("a", admin_access=True))

    assert allocated.devices == {}


@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_it_is_what_the_claims_make_it_from_the_start(seed):
    chance = random.Random(seed)
    claims, followed = {}, Allocated()
    for _ in range(300):
        uid = f"c{chance.randrange(8)}"
        kind = chance.randrange(3)
        allocation = [None, granted(*chance.sample("abcd", 2)), share("n", str(chance.random()), x="1")][kind]
        claims[uid] = allocation
        followed.put(uid, allocation)
    anew = Allocated()
    for uid, allocation in claims.items():
        anew.put(uid, allocation)

    assert (followed.devices, followed.shared) == (anew.devices, anew.shared)
    assert followed.capacity((D, "p", "n")) == anew.capacity((D, "p", "n"))
    assert set(followed.of_pool((D, "p"))) == set(anew.of_pool((D, "p")))
