"""The jq of Stages: what KWOK's selectors say, and what is refused."""

import pytest

from services.kwok.stages.jq import JqError, Query

POD = {
    "metadata": {"name": "web-0", "labels": {"a.b/c": "yes"}, "ownerReferences": [{"kind": "Job"}], "finalizers": []},
    "spec": {"containers": [{"name": "x"}, {"name": "y"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}], "n": 3},
}


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        (".metadata.name", ["web-0"]),
        (".status.podIP", [None]),
        ('.metadata.labels["a.b/c"]', ["yes"]),
        ('.metadata.annotations["a"]', [None]),
        (".metadata.ownerReferences.[].kind", ["Job"]),
        (".spec.containers[].name", ["x", "y"]),
        (".spec.containers[1].name", ["y"]),
        ('.status.conditions.[] | select( .type == "Ready" ) | .status', ["True"]),
        ('.status.conditions.[] | select(.type != "Ready" and (.status == "True" | not)) | .type', ["Other"]),
        (".spec.replicas // 7", [7]),
        (".status.conditions | length", [2]),
        ("[", None),
        (".status.n >= 3, .status.n < 3", [True, False]),
        ('.metadata.name | startswith("web")', [True]),
        (".status.missing[]?", []),
        ('.spec.containers | any(.name == "y")', [True]),
    ],
)  # fmt: skip
def test_an_expression_gives_its_values_in_order(expression, values):
    if values is None:
        with pytest.raises(JqError, match="unexpected"):
            Query(expression)
        return
    assert Query(expression).values(POD) == values


def test_what_does_not_fit_the_input_gives_nothing_at_all():
    # `.[]` of null and a field of a text are errors to jq; KWOK then treats the key as not there.
    assert Query(".status.initContainerStatuses.[].state").values(POD) is None
    assert Query(".metadata.name.first").values(POD) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [(".a = 1", "unexpected"), (".a | map(.b)", "function 'map' is not supported"), (".a ==", "unexpected 'the end'"),
     ("(.a", "unexpected 'the end'"), ("..", "unexpected")],
)  # fmt: skip
def test_what_is_not_supported_is_named(expression, said):
    with pytest.raises(JqError, match=said):
        Query(expression)


def test_the_root_is_the_path_an_expression_begins_with():
    assert Query('.metadata.labels["x"]').root == ("metadata", "labels")
    assert Query('.status.conditions.[] | select(.type == "Ready")').root == ("status", "conditions")
    assert Query(".").root == ()


def test_an_expression_with_many_alternatives_is_refused_before_it_takes_for_ever():
    assert len(Query(" | ".join(["(., .)"] * 12)).values(1) or ()) == 4096
    with pytest.raises(JqError, match="13 commas, want at most 12"):
        Query(" | ".join(["(., .)"] * 13))


@pytest.mark.parametrize(
    ("expression", "given", "values"),
    [("keys", None, None), ("keys", -2, None), ("length", -1.5, [1.5]), (".[null]", None, None)],
)
def test_lengths_keys_and_indices_are_as_in_libjq(expression, given, values):
    assert Query(expression).values(given) == values


@pytest.mark.parametrize("text", ["(" * 30 + "." + ")" * 30, "." + "a" * 3 + ".b" * 300, " // ".join(["."] * 30)])
def test_a_filter_is_refused_that_nests_or_goes_on_too_far(text):
    with pytest.raises(JqError, match="more than"):
        Query(text)


def test_an_index_beyond_any_list_leads_to_null():
    assert [None] == Query(f".[{'9' * 400}.5]").values([1])
    assert [None] == Query(f".[{'9' * 5000}]").values([1])


def test_a_filter_that_goes_through_too_many_values_does_not_fit():
    assert Query(".[] == .[]").values(list(range(500))) is None
    assert 100 * 100 == len(Query(".[] == .[]").values(list(range(100))))
