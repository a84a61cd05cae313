"""The macros of CEL; the parser expands them into comprehensions. Pure.

Source: google/cel-spec doc/langdef.md, "Macros"; google/cel-go ext/bindings.go, ext/comprehensions.go,
cel/library.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from services.cel.syntax import Call, Fold, Ident, ListOf, Literal, Macro, Macros, MapOf, Node, Parser, Select

RESULT: Final = "@result"
UNUSED: Final = "#unused"
_NO_NAME: Final = "argument is not an identifier"


def _name(parser: Parser, node: Node, message: str = "argument must be a simple name") -> str:
    if isinstance(node, Ident) and not node.name.startswith("."):
        if node.name == "__result__":
            parser.fail(node.at, "iteration variable overwrites accumulator variable")
        return node.name
    parser.fail(node.at, message)
    return "#wrong"


def _names(parser: Parser, one: Node, two: Node) -> tuple[str, str]:
    first, second = _name(parser, one), _name(parser, two)
    if first == second != "#wrong":
        parser.fail(two.at, f"duplicate variable name: {first}")
    return first, second


def _has(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
    (what,) = args
    if isinstance(what, Select) and not what.test:
        return parser.check_depth(Select(at, what.operand, what.field, test=True), what.operand)
    parser.fail(what.at, "invalid argument to has() macro")
    return what


def _loop(
    parser: Parser,
    at: int,
    over: Node,
    names: tuple[str, str],
    *,
    init: Node,
    condition: Node,
    step: Node,
    result: Node,
) -> Node:
    return parser.check_depth(
        Fold(at, over, *names, RESULT, init, condition, step, result), over, init, condition, step, result
    )


Body = Callable[[Parser, int, list[Node]], tuple[Node, Node, Node, Node]]
"""Function that returns the rest of a comprehension, from the macro's arguments after the names: init,
condition, step, result.
"""


def _all(parser: Parser, at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    condition = parser.call(at, "@not_strictly_false", Ident(at, RESULT))
    return Literal(at, True), condition, parser.call(at, "_&&_", Ident(at, RESULT), args[0]), Ident(at, RESULT)


def _exists(parser: Parser, at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    condition = parser.call(at, "@not_strictly_false", parser.call(at, "!_", Ident(at, RESULT)))
    return Literal(at, False), condition, parser.call(at, "_||_", Ident(at, RESULT), args[0]), Ident(at, RESULT)


def _exists_one(parser: Parser, at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    more = parser.call(at, "_+_", Ident(at, RESULT), Literal(at, 1))
    step = parser.call(at, "_?_:_", args[0], more, Ident(at, RESULT))
    return Literal(at, 0), Literal(at, True), step, parser.call(at, "_==_", Ident(at, RESULT), Literal(at, 1))


def _filter_step(parser: Parser, at: int, args: list[Node], step: Node) -> Node:
    """Return the step, only where the filter holds if there is one before the transformation."""
    return parser.call(at, "_?_:_", args[0], step, Ident(at, RESULT)) if len(args) > 1 else step


def _map(parser: Parser, at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    step = parser.call(at, "_+_", Ident(at, RESULT), parser.check_depth(ListOf(at, [args[-1]]), args[-1]))
    return ListOf(at, []), Literal(at, True), _filter_step(parser, at, args, step), Ident(at, RESULT)


def _filter(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    name = _name(parser, args[0], _NO_NAME)
    item: Node = ListOf(at, [Ident(args[0].at, name)])
    step = parser.call(at, "_+_", Ident(at, RESULT), item)
    step = parser.call(at, "_?_:_", args[1], step, Ident(at, RESULT))
    return _loop(
        parser,
        at,
        target,
        (name, ""),
        init=ListOf(at, []),
        condition=Literal(at, True),
        step=step,
        result=Ident(at, RESULT),
    )


def _one(body: Body, message: str = "argument must be a simple name") -> Macro:
    """Return the macro with one variable."""

    def macro(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        init, condition, step, result = body(parser, at, args[1:])
        return _loop(
            parser,
            at,
            target,
            (_name(parser, args[0], message), ""),
            init=init,
            condition=condition,
            step=step,
            result=result,
        )

    return macro


def _two(body: Body) -> Macro:
    """Return the macro with two variables: index or key, and value."""

    def macro(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        names = _names(parser, args[0], args[1])
        init, condition, step, result = body(parser, at, args[2:])
        return _loop(parser, at, target, names, init=init, condition=condition, step=step, result=result)

    return macro


def _transform_map(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    names = _names(parser, args[0], args[1])
    step: Node = parser.call(at, "cel.@mapInsert", Ident(at, RESULT), Ident(args[0].at, names[0]), args[-1])
    step = _filter_step(parser, at, args[2:], step)
    return _loop(
        parser, at, target, names, init=MapOf(at, []), condition=Literal(at, True), step=step, result=Ident(at, RESULT)
    )


def _transform_entry(parser: Parser, at: int, args: list[Node]) -> tuple[Node, Node, Node, Node]:
    step = parser.call(at, "cel.@mapInsert", Ident(at, RESULT), args[-1])
    return MapOf(at, []), Literal(at, True), _filter_step(parser, at, args, step), Ident(at, RESULT)


def bind_name(parser: Parser, at: int, name: str, value: Node, result: Node) -> Node:
    """Return `result` with `name` bound to `value`, which is computed at first use."""
    fold = Fold(at, ListOf(at, []), UNUSED, "", name, value, Literal(at, False), Ident(at, name), result, bind=True)
    return parser.check_depth(fold, value, result)


def _bind(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name, value, result = args
    known = _name(parser, name, "cel.bind() variable names must be simple identifiers")
    return bind_name(parser, at, known, value, result)


def _opt_map(flat: bool) -> Macro:
    def macro(parser: Parser, at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        name = "optFlatMap" if flat else "optMap"
        known = _name(parser, args[0], f"{name}() variable name must be a simple identifier")
        inner = bind_name(parser, at, known, parser.call(at, "value", target=target), args[1])
        if not flat:
            inner = parser.call(at, "optional.of", inner)
        test: Call = parser.call(at, "hasValue", target=target)
        return parser.call(at, "_?_:_", test, inner, parser.call(at, "optional.none"))

    return macro


STANDARD: Final[Macros] = {
    ("has", 1, False): _has,
    ("all", 2, True): _one(_all),
    ("exists", 2, True): _one(_exists),
    ("exists_one", 2, True): _one(_exists_one),
    ("existsOne", 2, True): _one(_exists_one),
    ("map", 2, True): _one(_map, _NO_NAME),
    ("map", 3, True): _one(_map, _NO_NAME),
    ("filter", 2, True): _filter,
}
BINDINGS: Final[Macros] = {("bind", 3, True): _bind}
OPTIONALS: Final[Macros] = {("optMap", 2, True): _opt_map(False), ("optFlatMap", 2, True): _opt_map(True)}
TWO_VARIABLES: Final[Macros] = {
    ("all", 3, True): _two(_all),
    ("exists", 3, True): _two(_exists),
    ("existsOne", 3, True): _two(_exists_one),
    ("exists_one", 3, True): _two(_exists_one),
    ("transformList", 3, True): _two(_map),
    ("transformList", 4, True): _two(_map),
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _two(_transform_entry),
    ("transformMapEntry", 4, True): _two(_transform_entry),
}
