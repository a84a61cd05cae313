"""What a module's source says, found in one walk through its syntax tree: tests that read all sources share it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

WRITERS = ("write", "_write", "log", "_log", "line", "gate")
"""What functions are called that write a line of the event log, and are given the event's name."""


class Function(NamedTuple):
    """A function of a module: where it begins, how many lines it has, and the names that it binds itself, with lines."""

    name: str
    line: int
    lines: int
    variables: tuple[tuple[str, int], ...]


class Facts(NamedTuple):
    """What tests look for in one module."""

    names: tuple[tuple[str, int], ...]
    """Each name that it gives, with its line: classes, functions, arguments, variables."""
    imports: dict[str, tuple[str, str]]
    """Names imported from modules: of each the module, and its name there."""
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    """Classes with the plain names among their bases."""
    written: tuple[str, ...]
    """Each text in the first two arguments of a call of one of WRITERS."""
    functions: tuple[Function, ...]


@cache
def facts(path: Path) -> Facts:
    """Return what the module in this file says; a file is read once in the life of the process."""
    names: list[tuple[str, int]] = []
    imports: dict[str, tuple[str, str]] = {}
    classes: list[tuple[str, tuple[str, ...]]] = []
    written: list[str] = []
    functions: list[Function] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        kind = type(node)  # which is several times as fast as patterns are
        if kind is ast.Name or kind is ast.Attribute:
            if type(node.ctx) is ast.Store:
                names.append((node.id if kind is ast.Name else node.attr, node.lineno))
        elif kind is ast.Call:
            written.extend(_written_by(node))
        elif kind is ast.arg:
            names.append((node.arg, node.lineno))
        elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            names.append((node.name, node.lineno))
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            functions.append(Function(node.name, node.lineno, lines, tuple(own_variables(node))))
        elif kind is ast.ClassDef:
            names.append((node.name, node.lineno))
            classes.append((node.name, tuple(base.id for base in node.bases if isinstance(base, ast.Name))))
        elif kind is ast.ImportFrom:
            imports |= {each.asname or each.name: (node.module or "", each.name) for each in node.names}
    return Facts(tuple(names), imports, tuple(classes), tuple(written), tuple(functions))


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def own_variables(function: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a function itself binds, with lines; those of functions and comprehensions in it are theirs."""
    nodes = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, _COMPREHENSIONS):
            yield from ((named.target.id, named.lineno) for named in ast.walk(node) if isinstance(named, ast.NamedExpr))
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        nodes += ast.iter_child_nodes(node)


def _written_by(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in WRITERS:
        for each in chain.from_iterable(ast.walk(argument) for argument in call.args[:2]):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value
