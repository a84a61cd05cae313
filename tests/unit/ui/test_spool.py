"""What is put aside until it may be recorded, and when which version was committed."""

from lab.ui.spool import Spool
from lab.ui.times import Times


def test_what_was_put_aside_comes_back_in_its_order_and_leaves_no_file(tmp_path):
    spool = Spool(tmp_path)
    wanted = [("pods", b"{}"), ("leases.coordination.k8s.io", b""), ("pods", b'{"a":"\xc3\xa4"}')]
    for each in wanted:
        spool.add(*each)

    assert wanted == list(spool)
    assert 3 == spool.count
    assert not list(tmp_path.iterdir())
    spool.close()


def test_times_are_thinned_and_end_with_the_newest():
    times = Times(kept=10)
    for rv in range(1, 1_001):
        times.add(rv / 10, rv)
    found = times.document()

    assert len(found["t"]) <= 11
    assert (0.1, 1.0) == (found["t"][0], found["rv"][0])
    assert (100.0, 1_000.0) == (found["t"][-1], found["rv"][-1])
    assert sorted(found["t"]) == found["t"]


def test_a_version_that_is_not_newer_says_nothing():
    times = Times()
    assert {"t": [], "rv": []} == times.document()
    for t, rv in ((1.0, 5), (2.0, 4), (3.0, 5)):
        times.add(t, rv)

    assert {"t": [1.0], "rv": [5.0]} == times.document()
