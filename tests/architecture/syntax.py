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
    functions: list[tuple[str, int, int, list[tuple[str, int]]]] = []
    for node, own in _walk(ast.parse(path.read_text(encoding="utf-8"))):
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
            functions.append((node.name, node.lineno, lines, own))
        elif kind is ast.ClassDef:
            names.append((node.name, node.lineno))
            classes.append((node.name, tuple(base.id for base in node.bases if isinstance(base, ast.Name))))
        elif kind is ast.ImportFrom:
            imports |= {each.asname or each.name: (node.module or "", each.name) for each in node.names}
    return Facts(
        tuple(names),
        imports,
        tuple(classes),
        tuple(written),
        tuple(Function(*most, tuple(own)) for *most, own in functions),
    )


_SCOPES = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
_COMPREHENSIONS = frozenset((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
_LEAVES = frozenset((ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.alias, ast.Pass))
"""Kinds of nodes that no name, call or text lies below."""


def own_variables(function: ast.AST) -> list[tuple[str, int]]:
    """Return the names that a function itself binds, with lines; those of functions and comprehensions in it are theirs."""
    return next(own for node, own in _walk(function) if node is function)


def _walk(tree: ast.AST) -> list[tuple[ast.AST, list[tuple[str, int]]]]:
    """Return each node of a tree, what is above before what is below, with the names that it binds itself if it is a function."""
    nodes: list[tuple[ast.AST, list[tuple[str, int]]]] = []
    # Beside each node: the names of the function that it is in, and whether a comprehension within that has those that it binds.
    waiting: list[tuple[ast.AST, list[tuple[str, int]], bool]] = [(tree, [], False)]
    for node, own, is_theirs in waiting:  # grows
        kind = type(node)
        if kind in _SCOPES:
            own, is_theirs = [], False
        elif kind in _COMPREHENSIONS:
            is_theirs = True
        elif kind is ast.NamedExpr and is_theirs:
            own.append((node.target.id, node.target.lineno))
        elif not is_theirs:
            if kind is ast.Name:
                if type(node.ctx) is ast.Store:
                    own.append((node.id, node.lineno))
            elif kind is ast.arg:
                own.append((node.arg, node.lineno))
        nodes.append((node, own))
        if kind in _LEAVES:
            continue
        for field in node._fields:
            below = getattr(node, field, None)
            if type(below) is list:
                waiting += [(each, own, is_theirs) for each in below if isinstance(each, ast.AST)]
            elif isinstance(below, ast.AST):
                waiting.append((below, own, is_theirs))
    return nodes


def _written_by(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in WRITERS:
        for each in chain.from_iterable(ast.walk(argument) for argument in call.args[:2]):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value
