"""The algebra of field trees is that of sets of paths."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from apiserver_fake.extensions.managedfields import fieldset

STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1"])
PATHS = st.sets(st.lists(STEPS, min_size=1, max_size=4).map(tuple), max_size=8)


def members(fields):
    return set(fieldset.paths(fields))


@given(PATHS)
def test_a_set_has_the_paths_it_was_made_of(paths):
    assert members(fieldset.of(paths)) == paths


@given(PATHS, PATHS)
def test_union_difference_and_intersection_are_those_of_sets(one, other):
    left, right = fieldset.of(one), fieldset.of(other)

    assert members(fieldset.union(left, right)) == one | other
    assert members(fieldset.difference(left, right)) == one - other
    assert members(fieldset.intersection(left, right)) == one & other
    assert fieldset.overlap(left, right) == bool(one & other)
    assert fieldset.covers(left, right) == (other <= one)
    assert members(left) == one, "sets are values"


@given(PATHS, PATHS)
def test_the_steps_of_every_set_stand_in_order(one, other):
    left, right = fieldset.of(one), fieldset.of(other)

    for made in (
        left,
        fieldset.union(left, right),
        fieldset.difference(left, right),
        fieldset.without_trees(left, right),
    ):
        assert encode(made) == encode(fieldset.sort_fields(made))


@given(PATHS, PATHS)
def test_whole_trees_go_with_their_root(one, other):
    left = {path for path in one if not any(path[: len(root)] == root for root in other)}

    assert members(fieldset.without_trees(fieldset.of(one), fieldset.of(other))) == left


def test_steps_are_written_in_upstreams_order_and_paths_as_people_read_them():
    fields = fieldset.of(
        [("f:spec", "f:ports", f'k:{{"containerPort":{port},"protocol":"TCP"}}', "f:name") for port in (443, 80)]
        + [("f:spec", "f:b"), ("f:spec",), ("f:set", 'v:"z"')]
    )

    assert list(fieldset.sort_fields(fields)["f:spec"]) == [".", "f:b", "f:ports"]
    assert next(iter(fieldset.sort_fields(fields)["f:spec"]["f:ports"])).startswith('k:{"containerPort":80')
    assert [fieldset.text_of(path) for path in fieldset.paths(fields)] == [
        ".spec", '.set[="z"]', ".spec.b",
        '.spec.ports[containerPort=80,protocol="TCP"].name',
        '.spec.ports[containerPort=443,protocol="TCP"].name',
    ]  # fmt: skip
