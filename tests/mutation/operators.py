"""The changes that a mutant may be made of, found in a module's syntax tree.

A change replaces one expression or statement by another text, so that every other line of the file stays what it is.
Left out: docstrings, texts that are logged or are help, type annotations and what declares types, `__repr__`, f-strings.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
RETURNED = {"str": '""', "list": "[]", "tuple": "()", "dict": "{}", "set": "set()", "frozenset": "frozenset()"}
"""What a function of this type returns in place of what it should."""
OTHER_ERROR = "ZeroDivisionError"
"""An exception that the product neither raises nor expects."""
LOGS = frozenset({"log", "logger", "logging", "warnings"})
TYPE_MAKERS = frozenset({"TypeVar", "NewType", "ParamSpec", "cast", "getLogger", "get_logger", "TypeAliasType"})
DECLARING = frozenset({"help", "frozen", "kw_only", "slots", "gc", "eq", "repr", "weakref", "cache_hash", "metavar"})
"""Keywords that declare a type or are texts for people: no test of behaviour could notice."""
TEXTS = {"Switch": {2, 3, 4}, "setting": {1}, "counter": {1}, "gauge": {1}, "histogram": {1}}
"""Arguments that are texts for people, by position: meaning, source and scenario of a switch, help of flags and metrics."""
SILENT = frozenset({"__repr__", "__str__", "__rich__"})
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Change:
    """One mutant. `line` counts from 1, `begin` and `end` are offsets into the file's UTF-8 bytes.

    `code` is the changed line as it stands, without its indentation; `scope` the function or class around it; `names` what
    the statement around it defines where no function is around it.
    """

    file: str
    line: int
    begin: int
    end: int
    operator: str
    before: str
    after: str
    code: str
    scope: str
    names: tuple[str, ...] = ()
    first_line: int = 0

    def apply(self, source: bytes) -> bytes:
        """Return the file with this change in it."""
        return source[: self.begin] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        """Return place, operator and change on one line."""
        return f"{self.file}:{self.line} {self.operator}: {_short(self.before)} -> {_short(self.after)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:87] + "..."


def changes(file: str, source: bytes) -> list[Change]:
    """Return every change of a module, in the order of the file; a few may not compile (`compiles`)."""
    finder = _Finder(file, source)
    finder.visit_body(ast.parse(source))
    found = {(change.begin, change.end, change.after): change for change in finder.found}
    return sorted(found.values(), key=lambda change: (change.begin, change.end, change.operator, change.after))


def compiles(change: Change, source: bytes) -> bool:
    """Say whether the file is a Python module with the change in it."""
    try:
        compile(change.apply(source), change.file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder:
    """Walks a module; each `_of_…` method offers the changes of one kind of node."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Change] = []
        self._file = file
        self._source = source
        self._lines = source.decode().splitlines()
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._scope: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._in_function = False
        self._returns = ""
        self._first_line = 0

    def visit_body(self, node: ast.AST) -> None:
        """Visit what is in a module, class or function, without what is only text."""
        for statement in getattr(node, "body", []):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text:
                self._visit_statement(statement)

    def _visit_statement(self, node: ast.stmt) -> None:
        if not self._in_function:  # what a class holds is found by its class: its own name may be in every other line
            self._names = self._scope[:1] or _defined(node)
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_for_types(node) or _is_log(node):
            return
        if isinstance(node, FUNCTION):
            self._visit_function(node)
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases):
            return  # what an implementation has to offer: a type
        elif isinstance(node, ast.ClassDef):
            outer, self._scope = self._scope, (*self._scope, node.name)
            for keyword in node.keywords:
                self._visit(keyword)
            self.visit_body(node)
            self._scope = outer
        else:
            self._offer_statement(node)
            for child in ast.iter_child_nodes(node):
                if not (isinstance(node, ast.AnnAssign) and child is node.annotation):
                    self._visit(child)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in SILENT or any(ast.unparse(each).endswith("overload") for each in node.decorator_list):
            return
        outer = (self._scope, self._in_function, self._returns, self._first_line)
        self._scope = (*self._scope, node.name)
        if not self._in_function:
            self._names = (node.name,)
            self._first_line = next(
                (each.lineno for each in node.body if not isinstance(each, ast.Expr)), node.body[-1].lineno
            )
        for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
            self._of_default(default)
        self._in_function, self._returns = True, ast.unparse(node.returns) if node.returns else ""
        self.visit_body(node)
        self._scope, self._in_function, self._returns, self._first_line = outer

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_text:
                self._visit_statement(node)
            return
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in DECLARING):
            return
        if isinstance(node, ast.Call) and (_is_logging(node) or _name(node.func) in TYPE_MAKERS):
            return
        offer = _OFFERS.get(type(node))
        if offer is not None:
            offer(self, node)
        texts = TEXTS.get(_name(node.func), set()) if isinstance(node, ast.Call) else set()
        left_out = [each for place, each in enumerate(node.args) if place in texts] if texts else []
        for child in ast.iter_child_nodes(node):
            if child not in left_out:
                self._visit(child)

    def _offer(self, node: Any, operator: str, after: str, *, end: Any = None) -> None:
        last = end or node
        begin = self._offsets[node.lineno - 1] + node.col_offset
        stop = self._offsets[last.end_lineno - 1] + last.end_col_offset
        before = self._source[begin:stop].decode()
        if before != after and before != after.removeprefix("(").removesuffix(")"):
            code = self._lines[node.lineno - 1].strip()
            scope = ".".join(self._scope)
            self.found.append(
                Change(
                    self._file,
                    node.lineno,
                    begin,
                    stop,
                    operator,
                    before,
                    after,
                    code,
                    scope,
                    self._names,
                    0 if self._in_function else self._first_line,
                )
            )

    def _with(self, node: ast.AST, operator: str, **fields: Any) -> None:
        """Offer the node with other fields."""
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        self._offer(node, operator, f"({ast.unparse(other)})")

    def _offer_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Break):
            self._offer(node, "break/continue", "continue")
        elif isinstance(node, ast.Continue):
            self._offer(node, "break/continue", "break")
        elif isinstance(node, ast.Return):
            self._of_return(node)
        elif isinstance(node, ast.Raise):
            self._of_raise(node)
        elif isinstance(node, ast.If | ast.While | ast.Assert):
            self._negate(node.test)
        elif isinstance(node, ast.Try):
            self._of_try(node)
        elif isinstance(node, ast.AugAssign):
            self._of_augmented(node)
        elif (
            isinstance(node, ast.Delete)
            or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Yield))
            or (isinstance(node, ast.Assign) and self._in_function and not any(_is_variable(t) for t in node.targets))
        ):
            self._offer(node, "statement removal", "pass")

    def _of_return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        text = ast.unparse(value)
        kind = self._returns.partition("[")[0]
        if kind == "bool":
            after = f"not ({text})"
        elif kind in {"int", "float"}:
            after = f"({text}) + 1"
        else:
            after = RETURNED.get(kind, "None")
        self._offer(value, "return value", after)

    def _of_raise(self, node: ast.Raise) -> None:
        self._offer(node, "statement removal", "pass")
        if isinstance(node.exc, ast.Call) and not isinstance(node.exc.func, ast.Call):
            self._offer(node.exc, "exception type", f"{OTHER_ERROR}('mutant')")

    def _of_try(self, node: ast.Try) -> None:
        for handler in node.handlers:
            if isinstance(handler.type, ast.Tuple):
                for member in handler.type.elts:
                    self._offer(member, "exception type", OTHER_ERROR)
            elif handler.type is not None:
                self._offer(handler.type, "exception type", OTHER_ERROR)

    def _of_augmented(self, node: ast.AugAssign) -> None:
        self._offer(node, "statement removal", "pass")
        other = copy.copy(node)
        other.op = ARITHMETIC[type(node.op)]()
        self._offer(node, "arithmetic", ast.unparse(other))

    def _of_compare(self, node: ast.Compare) -> None:
        for place, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                self._with(node, "comparison", ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])

    def _of_binary(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        is_text = any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", 0), str) for side in sides)
        is_types = isinstance(node.op, ast.BitOr) and any(_is_type(side) for side in sides)
        if not is_text and not is_types and type(node.op) in ARITHMETIC:
            self._with(node, "arithmetic", op=ARITHMETIC[type(node.op)]())

    def _of_boolean(self, node: ast.BoolOp) -> None:
        self._with(node, "boolean", op=ast.Or() if isinstance(node.op, ast.And) else ast.And())

    def _of_unary(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            operator = "boolean" if isinstance(node.op, ast.Not) else "arithmetic"
            self._offer(node, operator, f"({ast.unparse(node.operand)})")

    def _of_constant(self, node: ast.Constant, operator: str = "constant") -> None:
        value = node.value
        if isinstance(value, bool):
            self._offer(node, "boolean" if operator == "constant" else operator, str(not value))
        elif isinstance(value, int | float):
            self._offer(node, operator, repr(value + 1))
            if value:
                self._offer(node, operator, f"({value - 1!r})")
        elif isinstance(value, str | bytes) and value:
            self._offer(node, operator, '""' if isinstance(value, str) else 'b""')
        elif isinstance(value, str):
            self._offer(node, operator, '"mutant"')

    def _of_default(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            self._of_constant(node, "default argument")
        else:
            self._visit(node)

    def _of_slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None:
                self._offer(bound, "slice", f"({ast.unparse(bound)}) + 1")
                self._offer(bound, "slice", f"({ast.unparse(bound)}) - 1")

    def _of_conditional(self, node: ast.IfExp) -> None:
        self._negate(node.test)

    def _of_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)

    def _of_call(self, node: ast.Call) -> None:
        if _name(node.func) == "suppress":
            for error in node.args:
                self._offer(error, "exception type", OTHER_ERROR)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Constant):
            self._offer(test, "condition negation", f"(not ({ast.unparse(test)}))")


_OFFERS: dict[type[ast.AST], Callable[[_Finder, Any], None]] = {
    ast.Compare: _Finder._of_compare,
    ast.BinOp: _Finder._of_binary,
    ast.BoolOp: _Finder._of_boolean,
    ast.UnaryOp: _Finder._of_unary,
    ast.Constant: _Finder._of_constant,
    ast.Slice: _Finder._of_slice,
    ast.IfExp: _Finder._of_conditional,
    ast.comprehension: _Finder._of_comprehension,
    ast.Call: _Finder._of_call,
}


def _is_variable(target: ast.expr) -> bool:
    """Say whether an assignment makes a variable: without it the next line would fail at once."""
    return not isinstance(target, ast.Attribute | ast.Subscript)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_logging(node: ast.Call) -> bool:
    func = node.func
    while isinstance(func, ast.Attribute):
        if func.attr in {"log", "_log"}:
            return True
        func = func.value
    return isinstance(func, ast.Name) and func.id in LOGS


def _is_log(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    value = value.value if isinstance(value, ast.Await) else value
    return isinstance(value, ast.Call) and _is_logging(value)


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    name = _name(node)
    return (name[:1].isupper() and not name.isupper()) or name in {
        "int",
        "str",
        "float",
        "bool",
        "list",
        "dict",
        "bytes",
    }


def _is_for_types(node: ast.stmt) -> bool:
    """Say whether a statement exists for the type checker, the name of a module's exports or the entry point alone."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return "TYPE_CHECKING" in test or test.startswith("__name__ ==")
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(node.annotation) or node.value is None
    return isinstance(node, ast.Assign) and any(_name(target) in {"__all__", "__slots__"} for target in node.targets)


def _defined(node: ast.stmt) -> tuple[str, ...]:
    """Return the names a statement outside of functions gives."""
    if isinstance(node, ast.Assign):
        return tuple(name for target in node.targets for name in _targets(target))
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return tuple(_targets(node.target))
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return (node.name,)
    return ()


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Tuple):
        for each in node.elts:
            yield from _targets(each)
    elif _name(node):
        yield _name(node)
