"""A mutant on trial, with real test runs: noticed, not noticed, endless; and the working tree stays as it is."""

import os
from pathlib import Path

import pytest

from tests.mutation import trial
from tests.mutation.line_map import RecordedTest
from tests.mutation.operators import changes
from tests.mutation.trial import Copy, try_out

PRODUCT = """\
def total(values):
    found = 0
    while values:
        found += values.pop()
    return found


def unseen(value):
    return value > 3
"""
TESTS = """\
from product import total, unseen


def test_total():
    assert total([1, 2]) == 3


def test_unseen():
    unseen(9)
"""


class Lines:
    """Every line has both tests."""

    def covering(self, *_):
        return [
            RecordedTest("tests/test_product.py::test_total", 0.01, 1),
            RecordedTest("tests/test_product.py::test_unseen", 0.01, 1),
        ]

    def touching(self, _):
        return []


@pytest.fixture
def tree(tmp_path, monkeypatch):
    # The driver's plug-in is part of the real tree's copy; this one has none.
    found = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(found))
    root = tmp_path / "tree"
    (root / "tests").mkdir(parents=True)
    (root / "product.py").write_text(PRODUCT)
    (root / "tests" / "test_product.py").write_text(TESTS)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    return root


def tried(tree, before, after, place="copy"):
    source = (tree / "product.py").read_bytes()
    change = next(each for each in changes("product.py", source) if (each.before, each.after) == (before, after))
    copy = Copy(tree, tree.parent / place)
    found = try_out(change, source, copy, Lines(), set())
    assert source == (tree / "product.py").read_bytes() == (copy.place / "product.py").read_bytes()
    return found


def test_a_change_that_a_test_notices_is_killed_by_it(tree):
    found = tried(tree, "found += values.pop()", "found -= values.pop()")

    assert ("killed", "tests/test_product.py::test_total") == (found.outcome, found.by)


def test_a_change_that_no_test_notices_survives(tree):
    found = tried(tree, "value > 3", "(value >= 3)")

    assert ("survived", 2) == (found.outcome, found.tests)


def test_an_endless_loop_is_killed_by_its_limit(tree, monkeypatch):
    monkeypatch.setattr(trial, "START_S", 8.0)

    found = tried(tree, "values", "(not (values))")  # pop from an empty list: noticed
    endless = tried(tree, "found += values.pop()", "pass", "another")

    assert ("killed", "timeout") == (found.outcome, endless.outcome)


def test_tests_that_fail_without_the_change_are_no_result(tree):
    (tree / "tests" / "test_product.py").write_text("import missing\n" + TESTS)

    with pytest.raises(RuntimeError, match="fails without the change"):
        tried(tree, "value > 3", "(value >= 3)")
