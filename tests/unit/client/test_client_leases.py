from services.client.lease_record import LeaseRecord


def lease(holder: str, renewed: str, transitions: int = 3) -> dict:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": transitions, "leaseDurationSeconds": 15}
    return {"spec": spec}


def test_another_holders_lease_is_taken_only_after_its_duration_without_change():
    record = LeaseRecord("b")
    record.observe(lease("a", "t1"), 100.0)

    assert not record.may_take(114.9)
    assert record.may_take(115.0)


def test_a_renewal_starts_the_wait_again():
    record = LeaseRecord("b")
    record.observe(lease("a", "t1"), 100.0)
    record.observe(lease("a", "t2"), 110.0)

    assert not record.may_take(120.0)


def test_times_written_in_the_lease_do_not_matter():
    record = LeaseRecord("b")
    record.observe(lease("a", "1970-01-01T00:00:00Z"), 100.0)

    assert not record.may_take(101.0)


def test_a_lease_without_holder_and_one_of_an_earlier_life_are_taken_at_once():
    empty, own = LeaseRecord("b"), LeaseRecord("b")
    empty.observe(lease("", "t1"), 100.0)
    own.observe(lease("b", "t1"), 100.0)

    assert empty.may_take(100.0)
    assert own.may_take(100.0)
