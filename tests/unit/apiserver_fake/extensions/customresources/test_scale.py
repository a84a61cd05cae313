"""The replicas that a definition's scale names, in upstream's words."""

import pytest

from apiserver_fake.extensions.customresources import scale

PATHS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
CASES = {
    "nothing": ({}, []),
    "all": ({"spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}}, []),
    "below zero": ({"spec": {"replicas": -1}}, [".spec.replicas: Invalid value: -1: should be a non-negative integer"]),
    "beyond 32 bits": (
        {"status": {"replicas": 1 << 31}},
        [".status.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"],
    ),
    "a text": (
        {"spec": {"replicas": "3"}},
        [".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 3 is of the type string, expected int64"],
    ),
    "a list on the way": (
        {"spec": [1, "a"]},
        [
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: [1 a] is of the type []interface {}, expected map[string]interface{}"
        ],
    ),
    "a selector that is no text": (
        {"status": {"selector": {"b": True}}},
        [
            '.status.selector: Invalid value: "": .status.selector accessor error: map[b:true] is of the type map[string]interface {}, expected string'
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_replicas_are_refused_in_upstreams_words(name):
    document, expected = CASES[name]
    assert [f"{cause.path}: {cause.message}" for cause in scale.problems(PATHS, document)] == expected


def test_a_status_update_does_not_look_at_the_spec():
    assert list(scale.problems(PATHS, {"spec": {"replicas": -1}}, is_status=True)) == []
