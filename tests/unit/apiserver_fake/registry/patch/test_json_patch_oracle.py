"""JSON patches do what jsonpatch does: the same document, or both refuse (RFC 6902)."""

import copy

import jsonpatch
import jsonpointer
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.registry.patch.json_patch import json_patch
from services.api.errors import ApiError

NAMES = st.sampled_from(["a", "b", "~", "/", "0", ""])
LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
TOKENS = st.sampled_from(["a", "b", "~0", "~1", "0", "1", "2", "-", "01", ""])
POINTERS = st.lists(TOKENS, min_size=1, max_size=3).map(lambda tokens: "".join(f"/{token}" for token in tokens))
OPERATIONS = (
    st.builds(lambda op, path, value: {"op": op, "path": path, "value": value},
              st.sampled_from(["add", "replace", "test"]), POINTERS, VALUES)
    | st.builds(lambda path: {"op": "remove", "path": path}, POINTERS)
    | st.builds(lambda op, path, source: {"op": op, "path": path, "from": source},
                st.sampled_from(["move", "copy"]), POINTERS, POINTERS)
)  # fmt: skip


def ours(document, operations):
    try:
        return json_patch(copy.deepcopy(document), operations)
    except ApiError:
        return ApiError


def theirs(document, operations):
    try:
        return jsonpatch.apply_patch(copy.deepcopy(document), operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, IndexError):
        return ApiError


def same(one, other):
    """Equal as JSON: `true` is not 1 (RFC 6902 4.6)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@given(DOCUMENTS, st.lists(OPERATIONS, max_size=4))
def test_a_patch_gives_the_same_document_or_both_refuse_it(document, operations):
    before = copy.deepcopy(document)

    found, wanted = ours(document, operations), theirs(document, operations)

    assert document == before
    assert same(found, wanted), (found, wanted)
