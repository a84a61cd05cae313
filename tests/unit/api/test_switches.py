"""The register of switches."""

import re
from dataclasses import dataclass

import pytest

from services.api.release import ABSENT
from services.api.resources import resources
from services.api.switches import REGISTER, SwitchError, Switches, names_in, switch
from services.api.times import duration


def test_every_switch_has_a_legal_default_a_meaning_and_a_source():
    for known in REGISTER:
        text = str(known.default).lower() if isinstance(known.default, bool) else str(known.default)

        assert known.default == known.parse(text)
        assert known.meaning
        assert known.source


def test_the_values_of_a_switch_are_words_of_its_own_and_its_default_is_one_of_them():
    for known in REGISTER:
        words = [value for value in known.values if value or known.default]  # where "" is as nodes say themselves
        assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", word) for word in words), known.name
        assert len(set(known.values)) == len(known.values)
        assert not known.values or known.default in known.values
        assert [known.parse(value) for value in known.values] == list(known.values)


def test_names_are_unique():
    assert len(REGISTER) == len({switch.name for switch in REGISTER})


def test_a_view_is_made_once_for_the_same_switches_and_anew_for_others():
    @dataclass(frozen=True)
    class Seen:
        on_reject: str = switch("kubelet.on_reject")

    switches = Switches()
    other = switches.replace({"kubelet.on_reject": "unbind"})

    assert switches.of(Seen) is switches.of(Seen)
    assert ("fail", "unbind") == (switches.of(Seen).on_reject, other.of(Seen).on_reject)


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


@dataclass(frozen=True)
class _View:
    on_reject: str = switch("kubelet.on_reject")
    attempts: int = switch("unbind.max_attempts")
    gate: bool = switch("PodUnbinding")


def test_a_typed_view_without_arguments_has_the_defaults_of_the_register():
    assert _View("fail", 5, True) == _View()


def test_a_typed_view_is_filled_from_the_switches_that_were_set():
    switches = Switches.parse(["kubelet.on_reject=unbind", "unbind.max_attempts=7"])

    assert _View("unbind", 7, True) == switches.of(_View)


def test_a_typed_view_names_the_switches_it_reads():
    assert ("kubelet.on_reject", "unbind.max_attempts", "PodUnbinding") == names_in(_View)


def test_a_view_of_a_switch_that_does_not_exist_is_refused_when_it_is_declared():
    with pytest.raises(SwitchError, match=r"'unbind\.max_atempts'; did you mean"):
        switch("unbind.max_atempts")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "TopologyAwareWorkloadScheduling",
            "is a gate of Kubernetes (KEP-5732, alpha in 1.37) that keplab does not model",
        ),
        ("ConstrainedImpersonation", "is a gate of Kubernetes (KEP-5284, beta in 1.37) that keplab does not model"),
    ],
)
def test_a_gate_that_is_not_modelled_is_named_as_one_of_kubernetes(name, said):
    with pytest.raises(SwitchError, match=re.escape(f"{name} {said}")):
        Switches.parse([f"{name}=true"])


def test_no_gate_is_both_a_switch_and_absent():
    assert ABSENT.keys() & {known.name for known in REGISTER} == set()
