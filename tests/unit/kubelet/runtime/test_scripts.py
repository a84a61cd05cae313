"""When a container's readiness changes next: always later than now, however the sums of times were rounded."""

import pytest

from kubelet.runtime.script import Script


@pytest.mark.parametrize(
    ("script", "age_s", "turn_s"),
    [
        (Script(ready_after_s=2.0), 0.0, 2.0),
        (Script(ready_after_s=2.0), 1.9999999999, None),
        (Script(ready_after_s=2.0), 2.0, None),
        (Script(ready_after_s=2.0, flap_every_s=1.0, flaps=2), 1.9999999999, 3.0),
        (Script(ready_after_s=2.0, flap_every_s=1.0, flaps=2), 2.9999999999, 4.0),
        (Script(ready_after_s=2.0, flap_every_s=1.0, flaps=2), 4.0, None),
    ],
)
def test_the_next_turn_is_later_than_now_also_a_rounding_error_before_it(script, age_s, turn_s):
    assert script.next_turn_s(age_s) == turn_s
    assert script.is_ready(age_s) == (age_s > 1.9 and not 2.9 < age_s < 3.9)
