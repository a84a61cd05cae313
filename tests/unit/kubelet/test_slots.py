"""Which slot a host takes, as a table of what it has seen."""

import pytest

from kubelet.slots import Slot, choose
from services.client.lease_record import LeaseRecord

SILENCE_S = 6.0


def lease(holder, renewed="t0", transitions=0):
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": transitions, "leaseDurationSeconds": 15}
    return {"spec": spec}


class Host:
    """A host that looks at slots; `looks`: what it finds, None for a Lease that is not there."""

    def __init__(self, name="me"):
        self.name, self.slots = name, []

    def look(self, now, *found):
        for number, each in enumerate([*found, None]):
            if number == len(self.slots):
                self.slots.append(Slot(LeaseRecord(self.name)))
            slot = self.slots[number]
            before = slot.record.seen
            if each is not None:
                slot.record.observe(each, now)
            slot.observe(is_there=each is not None, before=before, now=now)
        return choose(self.slots[: len(found) + 1], now, SILENCE_S)


def test_the_first_host_of_all_makes_the_first_slot():
    assert 0 == Host().look(0.0)


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ([lease("")], 0),
        ([lease("other"), lease("")], 1),
        ([lease(""), lease(""), lease("")], 0),
        ([lease(""), lease("me")], 1),
        ([lease("me"), lease("me")], 0),
    ],
)
def test_a_free_slot_is_taken_at_once_and_the_own_one_of_an_earlier_life_before_it(found, taken):
    assert taken == Host().look(0.0, *found)


def test_no_slot_is_made_while_a_holder_may_be_dead():
    host = Host()

    assert host.look(0.0, lease("a"), lease("b")) is None
    assert host.look(0.5, lease("a", "t1"), lease("b")) is None
    assert 2 == host.look(1.0, lease("a", "t1"), lease("b", "t1"))


def test_a_slot_whose_holder_is_silent_for_the_leases_duration_is_taken_over_and_none_is_made():
    host = Host()
    host.look(0.0, lease("a"), lease("b"))

    for half in range(1, 30):
        assert host.look(half / 2, lease("a", f"t{half}"), lease("b")) is None
    assert 1 == host.look(15.0, lease("a", "t30"), lease("b"))


def test_a_lease_that_another_made_while_this_host_was_looking_has_a_living_holder():
    host = Host()
    host.look(0.0)

    assert 1 == host.look(0.1, lease("a"))


def test_who_renewed_once_and_then_fell_silent_is_alive_only_for_a_while():
    host = Host()
    host.look(0.0, lease("a"), lease("b"))
    host.look(1.0, lease("a", "t1"), lease("b"))

    assert host.look(1.0 + SILENCE_S, lease("a", "t1"), lease("b", "t1")) is None


def test_times_that_are_written_in_a_lease_do_not_count():
    assert Host().look(0.0, lease("a", "1970-01-01T00:00:00Z")) is None
