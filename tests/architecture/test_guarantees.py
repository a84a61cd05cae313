"""docs/reference/guarantees.md has every rule of the families it lists, each with tests that exist and are named after it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "guarantees.md").read_text()
SPECIFICATION = (ROOT / "docs" / "spec" / "guarantees.md").read_text()
FAMILIES = ("W", "S")
"""Whose rules the page lists: the letter that their names begin with."""
ROW = re.compile(r"^\| ([A-Z])(\d+) \|", re.M)
TEST = re.compile(r"`(tests/[\w/.]+)::(\w+)`")


def _rules(text, family):
    return [int(number) for letter, number in ROW.findall(text) if letter == family]


def _rows():
    lines = [line for line in PAGE.splitlines() if ROW.match(line)]
    return {line.split("|")[1].strip(): TEST.findall(line) for line in lines}


@cache
def _tests_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_of_the_specification_has_one_row(family):
    defined = re.findall(rf"^\| {family}(\d+) \| ", SPECIFICATION, re.M)

    assert [int(number) for number in defined] == _rules(PAGE, family)


@pytest.mark.parametrize(("rule", "tests"), _rows().items())
def test_every_rule_has_tests_that_exist_and_bear_its_name(rule, tests):
    missing = [f"{path}::{name}" for path, name in tests if name not in _tests_of(path)]
    unnamed = [name for _, name in tests if rule.lower() not in name.split("_")]

    assert tests, f"{rule} has no test"
    assert ([], []) == (missing, unnamed)
