"""Type checker: it finds the type of every part of an expression, and the possible overloads of its calls.
Pure.

Source: google/cel-spec doc/langdef.md, "Gradual Type Checking"; google/cel-go checker/checker.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.cel import types
from services.cel.declarations import Message, Overload
from services.cel.syntax import Call, Fold, Ident, Issue, ListOf, Literal, MapOf, Node, ObjectOf, Select
from services.cel.types import Substitution, Type
from services.cel.values import type_of

Fields = Mapping[str, Type]
_WITHOUT_FIELDS: Final = frozenset(("kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL"))
"""Types that are objects to cel-go, but without fields it can find; other types of Kubernetes are no objects to it."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """Meaning of names: variables, functions, fields of objects, names of types, and messages."""

    variables: Mapping[str, Type]
    functions: Mapping[str, Sequence[Overload]]
    objects: Mapping[str, Fields]
    type_names: Mapping[str, Type]
    messages: Mapping[str, Message] = field(default_factory=dict)


@dataclass(slots=True)
class Checked:
    """The tree with the checker's results: types and overloads by node. Qualified names have become one `Ident`."""

    root: Node
    types: dict[Node, Type] = field(default_factory=dict)
    overloads: dict[Node, list[Overload]] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)
    """The variable or type that an `Ident`, or a whole chain of fields, names."""
    functions: dict[Node, str] = field(default_factory=dict)
    """The qualified name of a call whose target is part of the name, such as `sets.contains`."""


def check(root: Node, declared: Declarations) -> tuple[Checked, list[Issue]]:
    """Return the checked tree and the issues; with an issue the expression is not valid."""
    checker = _Checker(declared, Checked(root))
    checker.check(root)
    checked = checker.checked
    for node, node_type in checked.types.items():
        checked.types[node] = checker.known.apply(node_type, final=True)
    return checked, checker.issues


def qualified_name(node: Node | None) -> str | None:
    """Return the dotted name of a chain of fields; None if the node is no such chain."""
    match node:
        case Ident(name=name):
            return name
        case Select(operand=operand, field=last, test=False):
            prefix = qualified_name(operand)
            return None if prefix is None else f"{prefix}.{last}"
    return None


class _Checker:
    def __init__(self, declared: Declarations, checked: Checked) -> None:
        self._declared = declared
        self._locals: list[dict[str, Type]] = []
        self._variables = 0
        self.checked = checked
        self.known = Substitution()
        self.issues: list[Issue] = []

    def check(self, node: Node) -> Type:
        """Return the type of a node; optMap() has one in two places, which is checked once."""
        if node in self.checked.types:
            return self.checked.types[node]
        found = self._check(node)
        self.checked.types[node] = found
        return found

    def _check(self, node: Node) -> Type:
        match node:
            case Literal(value=value):
                return type_of(value)
            case Ident(name=name):
                ident_type = self._name_type(node, name)
                return self._fail_undeclared(node.at, name) if ident_type is None else ident_type
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf(items=items, optional=optional):
                return types.list_of(self._common_type([(each, i in optional) for i, each in enumerate(items)]))
            case MapOf(entries=entries):
                # Keys and values are checked in the order they are written in.
                key = value = None
                for each_key, each_value, may in entries:
                    key = self._join(key, self.check(each_key))
                    value = self._join(value, self._element(each_value, may))
                return types.map_of(key or self._variable(), value or self._variable())
            case ObjectOf():
                return self._object(node)
            case Fold():
                return self._fold(node)
        raise TypeError(node)

    def _fail(self, at: int, message: str) -> Type:
        self.issues.append(Issue(at, message))
        return types.ERROR

    def _fail_undeclared(self, at: int, name: str) -> Type:
        return self._fail(at, f"undeclared reference to '{name}' (in container '')")

    def _variable(self) -> Type:
        self._variables += 1
        return types.parameter(f"_var{self._variables - 1}")

    def _assignable(self, one: Type, two: Type) -> bool:
        return self.known.assign((one, two))

    def _name_type(self, node: Node, name: str) -> Type | None:
        name_type = None
        if not name.startswith("."):
            name_type = next((scope[name] for scope in reversed(self._locals) if name in scope), None)
        name = name.removeprefix(".")
        if name_type is None:
            name_type = self._declared.variables.get(name)
        if name_type is None and name in self._declared.type_names:
            name_type = types.type_of(self._declared.type_names[name])
        if name_type is not None:
            self.checked.names[node] = name
        return name_type

    def _select(self, node: Select) -> Type:
        name = None if node.test else qualified_name(node)
        if name is not None and "." in name:
            first = name.removeprefix(".").partition(".")[0]
            if not any(first in scope for scope in self._locals):
                field_type = self._name_type(node, name)
                if field_type is not None:
                    return field_type
        field_type = self._field(node.at, node.operand, node.field)
        return types.BOOL if node.test else self.known.apply(field_type)

    def _field(self, at: int, operand: Node, name: str, *, optional: bool = False) -> Type:
        holder, was_optional = types.unwrap_optional(self.known.apply(self.check(operand)))
        field_type = types.DYN
        if holder.kind == "map":
            field_type = holder.params[1]
        elif holder.kind == "object":
            fields = self._declared.objects.get(holder.name)
            if fields is None:
                field_type = self._fail(at, f"unexpected failed resolution of '{holder.name}'")
            else:
                field_type = fields[name] if name in fields else self._fail(at, f"undefined field '{name}'")
        elif holder.kind == "parameter":
            self._assignable(types.DYN, holder)
        elif holder.name in _WITHOUT_FIELDS:
            self._fail(at, f"unexpected failed resolution of '{holder.name}'")
        elif not holder.is_dynamic:
            self._fail(at, f"type '{holder.display_name()}' does not support field selection")
        return types.optional_of(field_type) if optional or was_optional else field_type

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            name = node.args[1]
            assert isinstance(name, Literal)
            self.checked.types[name] = types.STRING
            return self.known.apply(self._field(node.at, node.args[0], name.value, optional=True))
        args = [self.check(each) for each in node.args]
        if node.target is None:
            return self._call_type(node, node.function.removeprefix("."), args, member=False)
        prefix = qualified_name(node.target)
        if prefix is not None and f"{prefix}.{node.function}" in self._declared.functions:
            self.checked.functions[node] = f"{prefix}.{node.function}"
            return self._call_type(node, f"{prefix}.{node.function}", args, member=False)
        return self._call_type(node, node.function, [self.check(node.target), *args], member=True)

    def _call_type(self, node: Call, name: str, args: list[Type], *, member: bool) -> Type:
        overloads = self._declared.functions.get(name)
        if overloads is None:
            return self._fail_undeclared(node.at, name)
        if name in ("_&&_", "_||_"):
            self.checked.overloads[node] = list(overloads)
            for arg, arg_type in zip(node.args, args, strict=True):
                if not self._assignable(arg_type, types.BOOL):
                    self._fail(arg.at, f"expected type 'bool' but found '{self.known.apply(arg_type).display_name()}'")
            return types.BOOL
        chosen: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member is not member or len(overload.params) != len(args):
                continue
            *params, returned = self._fresh(overload)
            if self.known.assign(*zip(args, params, strict=True)):
                chosen.append(overload)
                returned = self.known.apply(returned)
                if result is None:
                    result = returned
                elif not result.is_dynamic and returned != result:
                    result = types.DYN
        if result is None:
            spoken = [self.known.apply(each, final=True).display_name() for each in args]
            signature = f"{spoken[0]}.({', '.join(spoken[1:])})" if member else f"({', '.join(spoken)})"
            return self._fail(node.at, f"found no matching overload for '{name}' applied to '{signature}'")
        self.checked.overloads[node] = chosen
        return result

    def _fresh(self, overload: Overload) -> list[Type]:
        """Return the types of parameters and result, with type variables of this call's own."""
        fresh: dict[str, Type] = {}

        def renew(what: Type) -> Type:
            if what.kind == "parameter":
                if what.name not in fresh:
                    fresh[what.name] = self._variable()
                return fresh[what.name]
            return Type(what.name, tuple(map(renew, what.params)), what.kind) if what.params else what

        return [renew(each) for each in (*overload.params, overload.result)]

    def _element(self, node: Node, optional: bool) -> Type:
        element_type = self.check(node)
        if not optional:
            return element_type
        inside, was_optional = types.unwrap_optional(element_type)
        if not was_optional and (inside == types.ERROR or not inside.is_dynamic):
            wanted = types.optional_of(inside)
            self._fail(node.at, f"expected type '{wanted.display_name()}' but found '{inside.display_name()}'")
        return inside

    def _common_type(self, items: list[tuple[Node, bool]]) -> Type:
        found: Type | None = None
        for each, optional in items:
            found = self._join(found, self._element(each, optional))
        return found or self._variable()

    def _join(self, before: Type | None, now: Type) -> Type:
        """Return the type of both; that the API server wants literals of one type is checked later."""
        if before is None:
            return now
        if self._assignable(before, now):
            return types.most_general(before, now)
        return types.DYN

    def _object(self, node: ObjectOf) -> Type:
        message = self._declared.messages.get(node.name.removeprefix("."))
        if message is not None:
            for (name, value, optional), colon in zip(node.fields, node.colons, strict=True):
                given, wanted = self._element(value, optional), message.fields.get(name)
                if wanted is None:
                    self._fail(colon, f"undefined field '{name}'")
                elif given == types.NULL or not self._assignable(given, wanted):
                    spoken = self.known.apply(given, final=True).display_name()
                    why = (
                        f"expected type of field '{name}' is '{wanted.display_name()}' but provided type is '{spoken}'"
                    )
                    self._fail(colon, why)
            return message.type
        object_type = self._declared.type_names.get(node.name)
        if object_type is None:
            return self._fail_undeclared(node.at, node.name)
        for _, value, _ in node.fields:
            self.check(value)
        return self._fail(node.at, f"'{node.name}' is not a message type")

    def _fold(self, node: Fold) -> Type:
        over = self.known.apply(self.check(node.over))
        accu = self.check(node.init)
        self._locals.append({node.accu: accu})
        first = second = types.DYN
        if over.kind == "list":
            first, second = (types.INT, over.params[0]) if node.second else (over.params[0], types.DYN)
        elif over.kind == "map":
            first, second = over.params
        elif over.kind == "parameter":
            self._assignable(types.DYN, over)
        elif over not in (types.DYN, types.ERROR):
            self._fail(
                node.over.at,
                f"expression of type '{over.display_name()}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
            first = second = types.ERROR
        self._locals.append({node.first: first, node.second: second} if node.second else {node.first: first})
        self._require_type(node.condition, types.BOOL, self.check(node.condition))
        self._require_type(node.step, accu, self.check(node.step))
        self._locals.pop()
        result_type = self.check(node.result)
        self._locals.pop()
        return self.known.apply(result_type)

    def _require_type(self, node: Node, wanted: Type, found: Type) -> None:
        if not self._assignable(wanted, found):
            spoken = [self.known.apply(each, final=True).display_name() for each in (wanted, found)]
            self._fail(node.at, f"expected type '{spoken[0]}' but found '{spoken[1]}'")
