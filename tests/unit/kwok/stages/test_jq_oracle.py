"""Our part of jq and the whole of it (libjq, decision 0055) say the same of the same expression and document.

What our part does not have is refused when it is read, so there is nothing to compare; what both read gives the same
values in the same order, or an error from both.
"""

import re
from functools import cache
from pathlib import Path

import jq
from hypothesis import given, settings
from hypothesis import strategies as st

from services.kwok.stages.jq import JqError, Query

ROOT = Path(__file__).parents[4]
NAMES = st.sampled_from("abc")
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "ab", "7", "-1.5", "x"])
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3).map(lambda each: dict(sorted(each.items())))
    ),
    max_leaves=12,
)
"""Keys in order: libjq yields an object's values as they stand, gojq, which KWOK evaluates with, and ours by key."""
PATHS = st.sampled_from(
    [*(".", ".a", ".b.c", ".a[]", ".a.[]", ".a[0]", ".a[-1]", '.["a"]', '.a["b"]', ".[]?", ".a?", ".[]", '."a"')]
)
LITERALS = st.sampled_from(["null", "true", "false", "0", "7", "-1", '"a"', '"7"', '""', "1.5"])
PLAIN = st.sampled_from([*("not", "length", "keys", "empty", "tostring", "tonumber", "any", "all", "first", "last")])


def _larger(inner):
    pairs = st.tuples(inner, inner)
    signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "and", "or", "|", ","])
    return (
        # An error left of `//` is libjq's error, and the right side with gojq and ours.
        st.builds(lambda pair: f"(({pair[0]})?) // ({pair[1]})", pairs)
        | st.builds(lambda pair, sign: f"({pair[0]}) {sign} ({pair[1]})", pairs, signs)
        | st.builds("{} | {}".format, inner, PLAIN)
        | st.builds("select({})".format, inner)
        | st.builds("({} | {}({}))".format, inner, st.sampled_from(["any", "all"]), inner)
        | st.builds("{} | {}({})".format, inner, st.sampled_from(["startswith", "endswith"]), inner)
        | st.builds("({})?".format, inner)
    )


EXPRESSIONS = st.recursive(PATHS | LITERALS, _larger, max_leaves=5)


compiled = cache(jq.compile)


def whole(expression, document):
    """Return the values that libjq gives; None for an error."""
    try:
        return compiled(expression).input_value(document).all()
    except ValueError:
        return None


def same(one, other):
    """Whether values are equal as JSON: true is not 1."""
    return repr(one) == repr(other) or (one == other and repr(one).replace(".0", "") == repr(other).replace(".0", ""))


@given(EXPRESSIONS, DOCUMENTS)
def test_both_give_the_same_values_or_both_an_error(expression, document):
    try:
        query = Query(expression)
    except JqError:
        return
    ours, theirs = query.values(document), whole(expression, document)
    assert same(ours, theirs), (expression, document, ours, theirs)


def shipped():
    """Return the expressions of every Stage file that is shipped or tested."""
    found = set()
    for path in sorted([*ROOT.glob("experiments/**/*.yaml"), *ROOT.glob("tests/**/*.yaml")]):
        text = path.read_text()
        if "kind: Stage" in text:
            found |= set(re.findall(r"(?:key|expressionFrom|expression): (?:'([^']+)'|(\.[^,}\s]+))", text))
    return sorted({quoted or bare for quoted, bare in found})


@settings(max_examples=300)
@given(DOCUMENTS)
def test_an_expression_of_a_shipped_stage_is_the_same_in_both(document):
    """Every document is tried with every expression: drawing it is most of what it costs."""
    given_documents = [document, {"metadata": document, "status": document}, POD]
    for expression, query in SHIPPED.items():
        for each in given_documents:
            assert same(query.values(each), whole(expression, each)), (expression, each)


SHIPPED = {expression: Query(expression) for expression in shipped()}
POD = {
    "metadata": {
        "finalizers": ["kwok.x-k8s.io/fake"],
        "ownerReferences": [{"kind": "Job"}],
        "annotations": {"a": "3s"},
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}],
        "initContainerStatuses": [{"state": {"running": {"startedAt": "x"}}}, {"state": {"waiting": {"reason": "r"}}}],
    },
}


def test_there_are_expressions_to_compare():
    assert len(SHIPPED) > 8
