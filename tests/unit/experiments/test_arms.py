"""An arm is a name with switches; what it cannot mean is refused with the arm's name."""

import re

import pytest

from lab.experiments.arms import Arm, parse_arm, parse_arms


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("a b",), "arm 'a b': want NAME:SWITCH=VALUE"),
        ((":kubelet.on_reject=fail",), "want NAME:SWITCH=VALUE"),
        (("a:kubelet.on_reject",), "arm a: 'kubelet.on_reject': want SWITCH=VALUE"),
        (("a:kubelet.on_reject=maybe",), "arm a: switch kubelet.on_reject='maybe': want one of fail"),
        (
            ("a:kubelet.on_rejekt=fail",),
            "arm a: no switch is called 'kubelet.on_rejekt'; did you mean kubelet.on_reject",
        ),
        (
            ("a:kubelet.on_reject=fail,kubelet.on_reject=unbind",),
            "arm a: switch kubelet.on_reject is set twice, to fail and to unbind",
        ),
        (("a", "b", "a:kubelet.on_reject=fail"), "two arms are called 'a'"),
    ],
)
def test_an_arm_that_means_nothing_is_named(texts, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_arms(texts)


def test_an_arm_is_a_name_with_its_switches_and_is_written_as_it_is_read():
    arm = parse_arm("new-one_2: kubelet.on_reject = unbind ,PodUnbinding=true")

    assert arm == Arm("new-one_2", {"kubelet.on_reject": "unbind", "PodUnbinding": True})
    assert parse_arm(arm.text) == arm
    assert parse_arm("plain") == Arm("plain", {})
    assert Arm("plain", {}).text == "plain"
