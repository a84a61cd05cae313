"""What a rejection costs in time: a pod makes good its own, and a replacement the oldest that no other replaced."""

import pytest

from lab.scenarios.measures.rejections import Fate, Rejections, waits_after_rejection
from services.telemetry.eventlog import Line

UNTOUCHED = Fate(0.0, None, 0.5)
GIVEN_BACK = Fate(0.0, 1.0, 2.5)


@pytest.mark.parametrize(
    ("fates", "waits"),
    [
        ([UNTOUCHED], []),
        ([Fate(0.0, 1.0, None, 1.0)], []),
        ([GIVEN_BACK, UNTOUCHED], [1.5]),
        ([Fate(0.0, 1.0, None, 1.0), Fate(1.0, None, 4.0)], [3.0]),
        ([Fate(0.0, 1.0, None, 1.0), Fate(0.5, None, 4.0)], []),  # was there before, and replaces no pod
        (
            [Fate(0.0, 1.0, None, 1.0), Fate(1.0, 1.1, None, 1.1), Fate(1.1, 1.2, None, 1.2), Fate(1.2, None, 4.0)],
            [3.0],
        ),
        ([Fate(0.0, 1.0, None, 1.0), GIVEN_BACK, Fate(1.0, None, 2.0)], [1.5, 1.0]),
        ([Fate(0.0, 1.0, None, 9.0), Fate(1.1, None, 2.0)], []),  # was not lost yet, so the second is one more
        # The workload still grows when the first is lost: the third pod is in its stead, the fourth one more.
        ([Fate(0.0, 1.0, None, 1.0), Fate(0.5, None, 0.9), Fate(1.1, None, 2.0), Fate(1.2, None, 3.0)], [1.0]),
    ],
)
def test_each_rejection_is_made_good_by_its_own_pod_or_by_one_made_after_it(fates, waits):
    assert waits_after_rejection(fates) == waits


def test_the_first_time_that_a_kubelet_says_no_counts():
    rejections = Rejections()
    for seq, (ev, at_s) in enumerate((("kubelet.admit", 1), ("kubelet.reject", 2), ("kubelet.reject", 7))):
        pod = {"kind": "Pod", "ns": "default", "name": "p", "uid": "u1"}
        rejections.take(Line(1, seq, at_s * 1_000_000_000, "", "kubelet/h0", "i", ev, obj=pod))

    assert rejections.first_s == {"u1": 2.0}
