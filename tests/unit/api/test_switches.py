"""The register of switches."""

import pytest

from services.api.printing import duration
from services.api.resources import resources
from services.api.switches import REGISTER, SwitchError, Switches


def test_every_switch_has_a_legal_default_a_meaning_and_a_source():
    for switch in REGISTER:
        text = str(switch.default).lower() if isinstance(switch.default, bool) else str(switch.default)

        assert switch.default == switch.parse(text)
        assert switch.meaning
        assert switch.source


def test_names_are_unique():
    assert len(REGISTER) == len({switch.name for switch in REGISTER})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kubelet.on_reject=maybe", "want one of fail"),
        ("kubelet.on_rejet=fail", "did you mean kubelet.on_reject"),
        ("PodUnbinding=yes", "want true or false"),
        ("unbind.max_attempts=many", "want an integer"),
        ("async_api.parallelism=-1", "want 0 or more"),
        ("unbind.max_attempts=-1", "want 0"),
        ("exclusion.base_s=inf", "want a number that has an end"),
        ("unbind.rate_node_per_min=nan", "want a number that has an end"),
        ("nothing", "want NAME=VALUE"),
    ],
)
def test_a_wrong_assignment_is_named_with_what_is_wanted(text, message):
    with pytest.raises(SwitchError, match=message):
        Switches.parse([text])


def test_a_later_assignment_wins_and_only_what_was_set_is_listed():
    switches = Switches.parse(["kubelet.on_reject=unbind", "kubelet.on_reject=fail"])

    assert ("kubelet.on_reject=fail",) == switches.assignments
    assert switches.integer("unbind.max_attempts") == 5


def test_every_kind_is_served_under_a_name_of_its_own():
    assert len(resources()) == len({(r.api_version, r.kind) for r in resources().values()})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (3 * 3600 + 60, "3h1m"), (9 * 3600, "9h"), (50 * 3600, "2d2h"), (20 * 86400, "20d")],
)  # fmt: skip
def test_ages_are_spelled_as_kubectl_spells_them(seconds, text):
    assert text == duration(seconds)
