"""Which fields differ between two versions of an object, and what they are called."""

import pytest

from apiserver_fake.registry.differences import Difference, differences

READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": 1}}, {"spec": {"a": 2, "b": None}}, [("spec.a", 1, 2)]),
        ({}, {"status": {"phase": "Running"}}, [("status", None, {"phase": "Running"})]),
        (
            {"metadata": {"labels": {"a.b/c": "1"}, "resourceVersion": "1", "managedFields": [1]}},
            {"metadata": {"labels": {}, "resourceVersion": "2", "managedFields": []}},
            [("metadata.labels[a.b/c]", "1", None)],
        ),
        (
            {"c": [READY, {"type": "Old"}]},
            {"c": [{"type": "New"}, {**READY, "status": "False"}]},
            [("c[type=Ready].status", "True", "False"), ("c[type=Old]", {"type": "Old"}, None),
             ("c[type=New]", None, {"type": "New"})],
        ),
        # Members that nothing identifies are compared as a whole.
        ({"c": [READY, READY]}, {"c": [READY]}, [("c", [READY, READY], [READY])]),
        ({"args": ["a"]}, {"args": ["a", "b"]}, [("args", ["a"], ["a", "b"])]),
        ({"c": [READY]}, {"c": {}}, [("c", [READY], {})]),
    ],
)  # fmt: skip
def test_differences_name_the_fields(before, after, found):
    assert [(each.path, each.before, each.after) for each in differences(before, after)] == found


def test_an_object_that_is_not_there_has_no_fields():
    assert differences(None, {"kind": "Pod"}) == [Difference("kind", None, "Pod")]
    assert differences({"kind": "Pod"}, None) == [Difference("kind", "Pod", None)]
