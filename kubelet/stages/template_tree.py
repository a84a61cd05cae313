"""What a template consists of once it is read: one value for each node of its tree. Pure."""

from __future__ import annotations

from dataclasses import dataclass


class TemplateError(ValueError):
    """A template that cannot be read, or not be filled with this object; the message names the line."""


@dataclass(frozen=True)
class Literal:
    """A text, a number, true, false or nil."""

    value: object


@dataclass(frozen=True)
class Field:
    """`.a.b`: fields of the dot; no names: the dot itself."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Variable:
    """`$x.a.b`; `$` is what the template was given."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A function named without arguments of its own."""

    name: str


@dataclass(frozen=True)
class Nested:
    """`( pipeline ).a.b`."""

    pipeline: Pipeline
    names: tuple[str, ...] = ()


Operand = Literal | Field | Variable | Call | Nested


@dataclass(frozen=True)
class Pipeline:
    """`$x, $y := command | command`; each command is its operands, the first of them a function if there are more."""

    commands: tuple[tuple[Operand, ...], ...]
    line: int
    variables: tuple[str, ...] = ()
    declares: bool = True


@dataclass(frozen=True)
class Text:
    """What stands outside the braces."""

    text: str


@dataclass(frozen=True)
class Action:
    """Print what a pipeline gives, or set its variable."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Branch:
    """`if`, `with` or `range`, and what follows `else`."""

    kind: str
    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True)
class Include:
    """`template "name" pipeline`."""

    name: str
    pipeline: Pipeline | None
    line: int


@dataclass(frozen=True)
class Leave:
    """`break` or `continue`."""

    kind: str


Node = Text | Action | Branch | Include | Leave
