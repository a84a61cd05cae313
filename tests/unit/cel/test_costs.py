"""What an expression is estimated to cost at least and at most: sizes of what functions return, and names in macros.

What is expected is what upstream's estimate comes to (kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/
cost.go, google/cel-go checker/cost.go).
"""

from __future__ import annotations

import pytest

from services.cel import types
from services.cel.costs import Range
from services.cel.environment import KUBERNETES, Environment
from services.cel.libraries import extensions

SIZES = {("s",): Range(0, 100), ("items",): Range(0, 10), ("items", "@items"): Range(0, 7)}
CEL = Environment(
    {"s": types.STRING, "items": types.list_of(types.STRING)},
    libraries=(*KUBERNETES, extensions.BINDINGS),
    sizes=SIZES.get,
)
HUNDRED = f"'{'a' * 100}'"


def cost(expression):
    return CEL.compile(expression).cost


@pytest.mark.parametrize(
    ("text", "old", "new", "least", "most"),
    [
        ("s", "''", "'0123456789'", 10, 1110),
        (HUNDRED, "''", "'0123456789'", 1110, 1110),
        (HUNDRED, "'ab'", "'abc'", 100, 150),
        (HUNDRED, "'ab'", "'c'", 50, 100),
        (HUNDRED, "'ab'", "'cd'", 100, 100),
    ],
    ids=["an empty one is around every character", "at least, too", "longer", "shorter", "as long"],
)
def test_a_text_in_which_another_is_replaced_is_as_long_as_its_replacements(text, old, new, least, most):
    replaced = f"{text}.replace({old}, {new})"
    made, read = cost(replaced), cost(f"{replaced}.contains('x')")

    assert (read.least - made.least, read.most - made.most) == (least / 10, most / 10)


@pytest.mark.parametrize(
    "macro",
    ["items.all({0}, {0}.size() > 0)", "items.map({0}, {0}).size() > 0", "items.all(i, {0}, i > 0)",
     "cel.bind({0}, 'a', {0} == 'b')"],
)  # fmt: skip
def test_a_name_that_a_macro_hides_is_the_variable_again_behind_it(macro):
    assert cost(f"{macro.format('s')} && s.contains('x')") == cost(f"{macro.format('z')} && s.contains('x')")


@pytest.mark.parametrize("condition", ["x != ''", "items.all(y, y != x)", "items.map(y, y) != [x]"])
def test_what_a_filter_keeps_is_as_long_as_what_it_filters_whatever_its_condition(condition):
    kept, read = (cost(f"items.filter(x, {condition}).all(z, {each})") for each in ("true", "z.contains('x')"))

    assert read.most - kept.most == 10 * 2  # the name and one tenth of seven characters, for each
