"""Flags and environment become one frozen configuration, or one line that says what was wrong."""

from dataclasses import dataclass
from typing import Literal

import pytest

from services.runtime.config import EXIT_USAGE, CommonConfig, HelpRequested, StartError, parse, setting


@dataclass(frozen=True, kw_only=True)
class BakeryConfig(CommonConfig):
    """A process that bakes."""

    loaves: int = setting(3, "loaves an hour")
    oven: Literal["wood", "gas"] = setting("gas", "kind of oven")
    lease_s: float = setting(1.5, "seconds a lease holds")
    rest_port: int | None = setting(0, "port; none for no listener")
    is_open: bool = setting(True, "whether customers may come in")


def refusal(argv, environ=None):
    with pytest.raises(StartError) as caught:
        parse(BakeryConfig, argv, environ or {})
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value.message


def test_what_is_not_set_has_its_default():
    assert BakeryConfig() == parse(BakeryConfig, [], {})


@pytest.mark.parametrize(
    ("argv", "environ", "field", "value"),
    [
        (["--loaves", "5"], {}, "loaves", 5),
        (["--loaves=5"], {"KEPLAB_LOAVES": "7"}, "loaves", 5),
        ([], {"KEPLAB_LOAVES": "7"}, "loaves", 7),
        (["--lease-s", "2"], {}, "lease_s", 2.0),
        (["--oven", "wood"], {}, "oven", "wood"),
        (["--rest-port", "none"], {}, "rest_port", None),
        (["--no-is-open"], {}, "is_open", False),
        (["--is-open", "false"], {}, "is_open", False),
        (["--die-with-parent"], {}, "die_with_parent", True),
        ([], {"KEPLAB_SEED": "4"}, "seed", 4),
        (
            ["--set", "unbind.max_attempts=3", "--set", "podgc.recheck=false"],
            {},
            "set",
            ("unbind.max_attempts=3", "podgc.recheck=false"),
        ),
        (
            [],
            {"KEPLAB_SET": "unbind.max_attempts=3,podgc.recheck=false"},
            "set",
            ("unbind.max_attempts=3", "podgc.recheck=false"),
        ),
    ],
)
def test_a_flag_wins_over_the_environment_and_both_over_the_default(argv, environ, field, value):
    assert value == getattr(parse(BakeryConfig, argv, environ), field)


def test_a_bad_value_is_refused_with_the_name_under_which_it_came():
    assert "--loaves: want an integer, not 'five'" == refusal(["--loaves", "five"])
    assert "KEPLAB_LOAVES: want an integer, not 'five'" == refusal([], {"KEPLAB_LOAVES": "five"})
    assert "--oven: want one of wood, gas, not 'coal'" == refusal(["--oven", "coal"])
    assert "--bogus" in refusal(["--bogus"])


def test_a_bad_switch_is_refused_before_anything_starts():
    assert "no switch is called 'unbind.max_atempts'" in refusal(["--set", "unbind.max_atempts=3"])
    assert "unbind.max_attempts='-1': want 0" in refusal(["--set", "unbind.max_attempts=-1"])


def test_help_lists_every_setting_with_its_default_and_variable():
    with pytest.raises(HelpRequested) as caught:
        parse(BakeryConfig, ["--help"], {}, prog="python -m bakery")

    text = " ".join(str(caught.value).split())
    assert "--loaves N loaves an hour (default 3) [KEPLAB_LOAVES]" in text
    assert "--oven wood|gas" in text
