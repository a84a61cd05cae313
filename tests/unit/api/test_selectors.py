"""Label and field selectors, as kubectl writes them."""

import pytest

from services.api.errors import BadRequest
from services.api.kinds.node import Taint
from services.api.kinds.pod import Toleration
from services.api.meta import LabelSelector, LabelSelectorRequirement
from services.api.selectors import from_label_selector, parse_field_selector, parse_label_selector
from services.api.taints import tolerates

LABELS = {"app": "web", "tier": "front", "example.com/x": "1"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app!=web", False), ("app!=db", True), ("missing!=db", True),
        ("app in (web, db)", True), ("app notin (web)", False), ("missing notin (a)", True), ("app", True), ("!app", False),
        ("!missing", True), ("app=web,tier=front", True), ("app=web,tier=back", False), ("example.com/x=1", True),
        ("app in (a,b),tier", False),
    ],
)  # fmt: skip
def test_a_label_selector_means_what_kubernetes_says(text, matches):
    assert matches == parse_label_selector(text).matches(LABELS)


@pytest.mark.parametrize("text", ["a b", "=x", "a in b", "a in (b", "a=b,,", "a=$x", "(a)"])
def test_a_bad_label_selector_is_a_bad_request(text):
    with pytest.raises(BadRequest):
        parse_label_selector(text)


def test_a_selector_has_at_most_64_terms_of_1024_characters():
    with pytest.raises(BadRequest, match="65 terms"):
        parse_label_selector(",".join(f"k{i}=v" for i in range(65)))
    with pytest.raises(BadRequest, match="invalid label value"):
        parse_label_selector("a=" + "x" * 1025)


def test_a_field_selector_may_ask_for_the_empty_value():
    selector = parse_field_selector("spec.nodeName=,status.phase!=Failed")

    assert selector.matches({"spec.nodeName": "", "status.phase": "Pending"})
    assert not selector.matches({"spec.nodeName": "n1", "status.phase": "Pending"})


def test_match_labels_and_expressions_are_anded():
    selector = from_label_selector(
        LabelSelector(
            match_labels={"app": "web"}, match_expressions=(LabelSelectorRequirement(key="tier", operator="Exists"),)
        )
    )

    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})


@pytest.mark.parametrize(
    ("toleration", "wanted"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k", value="v", effect="NoSchedule"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_a_toleration_matches_key_value_and_effect(toleration, wanted):
    assert wanted == tolerates(toleration, Taint(key="k", value="v", effect="NoExecute"))
