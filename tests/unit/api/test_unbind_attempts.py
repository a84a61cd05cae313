"""How many unbinds count against the limit, and how the operation is spelled."""

import pytest

from services.api.switches import Switches
from services.api.times import format_time
from services.api.unbind import UnbindSwitches

DECAYS = UnbindSwitches(attempt_decay=True)


@pytest.mark.parametrize(
    ("count", "minutes_ago", "counted"),
    [
        (0, [], 0),
        (2, [1, 2], 2),
        (2, [11, 12], 1),
        (2, [21, 22], 0),
        (2, [1, 12], 1),  # the first was forgiven before the second came
        (3, [1, 2, 25], 2),  # never more is forgiven than there was
        (12, [1, 1, 1, 1, 1, 1, 1, 1], 8),  # what the history no longer has is longer ago than anything
    ],
)
def test_kubelet_unbinding_9_one_attempt_is_forgiven_for_every_ten_minutes_without_another(count, minutes_ago, counted):
    now = 1_800_000_000.0
    times = [format_time(now - 60 * minutes) for minutes in minutes_ago]

    assert DECAYS.count_attempts(count, times, now) == counted
    assert UnbindSwitches().count_attempts(count, times, now) == count


def test_kubelet_unbinding_4_2_each_form_has_one_spelling():
    assert Switches({"unbind.api": "binding_delete"}).of(UnbindSwitches).spelling == ("delete", "binding")
    assert UnbindSwitches().spelling == UnbindSwitches(api="condition").spelling == ("create", "unbind")
