"""ControllerRevisions at the API server: they have data that never changes, and a number that may."""

KIND = "controllerrevisions.apps"


def a_revision(**fields):
    return {
        "metadata": {"name": "web-1"},
        "data": {"spec": {"template": {"$patch": "replace"}}},
        "revision": 1,
        **fields,
    }


def refused(causes):
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_the_number_may_change_and_the_data_may_not(world):
    stored = world.create(KIND, a_revision())

    renumbered, _ = world.try_update(KIND, stored, {**stored, "revision": 7})
    altered, _ = world.try_update(KIND, stored, {**stored, "data": {"spec": {}}})

    assert not renumbered
    assert refused(altered) == ['data: Invalid value: {"spec":{}}: field is immutable']


def test_a_revision_without_data_or_with_a_negative_number_is_refused(world):
    causes, _ = world.try_create(KIND, a_revision(data=None, revision=-1))

    assert refused(causes) == [
        "data: Required value: data is mandatory",
        "revision: Invalid value: -1: must be greater than or equal to 0",
    ]
