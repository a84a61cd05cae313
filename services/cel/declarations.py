"""Contents of a library for expressions: functions with their overloads, macros, and names of types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cel.syntax import Macros
from services.cel.types import Type


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. `member`: called as `first.function(rest)`.

    `id` is cel-go's; it selects the cost.
    """

    id: str
    params: tuple[Type, ...]
    result: Type
    impl: Callable[..., Any]
    member: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A protobuf message that expressions can make: `name{field: value}`. `make` gets the fields that are set."""

    type: Type
    fields: Mapping[str, Type]
    make: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Library:
    """A library: functions by name, macros, types by their name in expressions, and messages."""

    functions: Mapping[str, Sequence[Overload]]
    macros: Macros = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)
    messages: Mapping[str, Message] = field(default_factory=dict)


def on(id: str, params: Sequence[Type], result: Type, impl: Callable[..., Any]) -> Overload:  # noqa: A002
    """Return an overload called on its first parameter."""
    return Overload(id, tuple(params), result, impl, member=True)


def of(id: str, params: Sequence[Type], result: Type, impl: Callable[..., Any]) -> Overload:  # noqa: A002
    """Return an overload of a function without a receiver."""
    return Overload(id, tuple(params), result, impl)
