"""What a rejection costs in time: each pod that comes to run makes good the oldest one."""

import pytest

from services.scenarios.rejections import waits_after_rejection


@pytest.mark.parametrize(
    ("rejected_s", "running_s", "waits"),
    [
        ([], [1.0], []),
        ([1.0], [], []),
        ([1.0], [2.5], [1.5]),
        ([2.0], [1.0, 5.0], [3.0]),  # the first was running before
        ([1.0, 1.1, 1.2, 1.3], [4.0], [3.0]),  # a runaway is one wait
        ([1.0, 2.0], [2.5, 6.0], [1.5, 4.0]),
    ],
)
def test_each_running_pod_makes_good_the_oldest_rejection(rejected_s, running_s, waits):
    assert waits_after_rejection(rejected_s, running_s) == waits
