"""Texts that people read name lists, sets and truth values as Kubernetes does, not as Python prints them."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.structure import ROOT

COMPONENTS = (
    "apiserver_fake",
    "scheduler",
    "kubelet",
    "claim_controller",
    "services/controllers",
    "services/reconcile",
)
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAKERS = ("sorted", "list", "set", "tuple", "dict", "frozenset", "bool", "any", "all", "isinstance")
_TYPES = ("list[", "set[", "frozenset[", "dict[", "tuple[", "Sequence[", "Iterable[", "Mapping[", "Collection[", "bool")


def _is_printed_by_python(value: ast.expr) -> bool:
    """Whether the expression is a container, or a truth value, whatever its parts are."""
    if isinstance(value, (*_DISPLAYS, ast.Compare)) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    ):
        return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _MAKERS


def _names(function: ast.FunctionDef | ast.AsyncFunctionDef, nodes: list[ast.AST]) -> set[str]:
    """Return the names that are given such a value, or declared to have one, in a function that has these nodes."""
    found = set()
    for argument in (*function.args.args, *function.args.kwonlyargs):
        if argument.annotation is not None and ast.unparse(argument.annotation).startswith(_TYPES):
            found.add(argument.arg)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.NamedExpr(ast.Name(id=name), value):
                if _is_printed_by_python(value):
                    found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if ast.unparse(annotation).startswith(_TYPES):
                    found.add(name)
    return found


def printed_by_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the expression of each value of an f-string that Python would print in its own way."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = [*ast.walk(function)]
        if not any(isinstance(node, ast.FormattedValue) for node in nodes):
            continue
        names = _names(function, nodes)
        for node in nodes:
            if isinstance(node, ast.FormattedValue):
                value = node.value
                if _is_printed_by_python(value) or (isinstance(value, ast.Name) and value.id in names):
                    yield node.lineno, ast.unparse(value)


@pytest.mark.parametrize("folder", COMPONENTS)
def test_no_text_of_a_component_shows_a_container_or_a_truth_value_as_python_prints_it(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {value}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, value in printed_by_python(path.read_text())
    ]

    assert found == []


@pytest.mark.parametrize(
    "body",
    [
        "added = [x for x in y]\n    return f'found {added}'",
        "return f'of {list(y)}'",
        "return f'is {not y}'",
        "flag: bool = y.z\n    return f'is {flag}'",
    ],
)
def test_such_a_text_is_found(body: str) -> None:
    assert len(list(printed_by_python(f"def f(y):\n    {body}\n"))) == 1
