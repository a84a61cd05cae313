"""Which mutants are drawn, and which tests are asked, in which order."""

import pytest

from tests.mutation import trial
from tests.mutation.__main__ import ROOT, draw, identity, shares
from tests.mutation.equivalent import declared_changes, matches
from tests.mutation.line_map import RecordedTest
from tests.mutation.operators import Change, changes
from tests.mutation.trial import rounds


class Lines:
    """A map of lines that holds what it is given."""

    def __init__(self, covering=(), using=(), touching=()):
        self._covering, self._using, self._touching = dict(covering), list(using), list(touching)

    def covering(self, _, line):
        return list(self._covering.get(line, ()))

    def using(self, _):
        return self._using

    def touching(self, _):
        return self._touching


def fast(name, seconds=0.01, breadth=3):
    return RecordedTest(f"tests/unit/test_{name}.py::test", seconds, breadth)


SLOW = RecordedTest("tests/scenarios/test_s.py::test", 2.0, 300)


def change(**more):
    fields = {
        "file": "a.py",
        "line": 7,
        "begin": 1,
        "end": 2,
        "operator": "o",
        "before": "x",
        "after": "y",
        "code": "x",
    }
    return Change(**{**fields, "scope": "f", **more})


def test_tests_that_execute_the_line_come_first_the_narrowest_of_them_before_all():
    wide, narrow, near = fast("wide", breadth=90), fast("narrow"), fast("near")

    plan = rounds(change(), Lines({7: [wide, narrow]}, touching=[near, narrow]))

    assert [[narrow, wide], [near]] == plan


def test_scenarios_are_asked_last_and_first_where_nothing_faster_executes_the_line():
    assert [[fast("a")], [SLOW]] == rounds(change(), Lines({7: [SLOW, fast("a")]}))
    assert [[SLOW]] == rounds(change(), Lines({7: [SLOW]}))


def test_a_default_argument_has_the_tests_of_its_function_and_a_constant_those_of_its_users():
    body, user = fast("body"), fast("user")

    assert [[body]] == rounds(change(first_line=9), Lines({9: [body]}))
    assert [[user]] == rounds(change(names=("LIMIT",)), Lines(using=[user]))


def test_a_line_that_no_test_executes_has_no_round():
    assert [] == rounds(change(), Lines())


def test_the_rounds_after_the_first_have_a_limit_in_seconds(monkeypatch):
    monkeypatch.setattr(trial, "FIRST_TESTS", 1)
    tests = [fast(f"t{number}", seconds=20.0, breadth=number) for number in range(1, 9)]

    plan = rounds(change(), Lines({7: tests}))

    assert [1, 3] == [len(each) for each in plan]


def test_equal_seeds_draw_equal_mutants_of_every_component():
    first, again, other = (draw(20, seed) for seed in (3, 3, 4))

    assert [identity(each) for each in first] == [identity(each) for each in again]
    assert {identity(each) for each in first} != {identity(each) for each in other}
    components = {each.file.partition("/")[0] for each in first}
    assert {"apiserver_fake", "scheduler", "kubelet", "claim_controller", "services", "lab"} == components


def test_shares_go_by_size_but_each_component_gets_a_twentieth():
    dealt = shares({"large": 900_000, "small": 1_000}, 200)

    assert {"large": 190, "small": 10} == dealt


@pytest.mark.parametrize("entry", declared_changes().entries, ids=lambda entry: f"{entry.file}: {entry.change}")
def test_a_declared_equivalent_is_still_a_change_of_the_product_and_says_why(entry):
    path = ROOT / entry.file

    found = [change for change in changes(entry.file, path.read_bytes()) if matches(entry, change)]

    assert found, "the line has changed: see whether the entry is still true, or remove it"
    assert len(entry.reason) > 20
