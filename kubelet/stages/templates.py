"""A template that can be filled with an object: the text it gives, or the JSON value that text is as YAML.

Fields that are missing are nil and print as `<no value>`; a field of nil is an error, as in Go. Pure.
Source: kubernetes-sigs/kwok, `pkg/utils/gotpl/renderer.go`; Go's text/template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubelet.stages import yaml_text
from kubelet.stages.template_functions import FUNCTIONS, NAMES, Context, Function, is_true, shown
from kubelet.stages.template_parsing import parse
from kubelet.stages.template_tree import (
    Action,
    Branch,
    Call,
    Field,
    Include,
    Leave,
    Literal,
    Nested,
    Node,
    Operand,
    Pipeline,
    TemplateError,
    Text,
    Variable,
)

DEPTH_MAX = 100
"""Templates that include each other deeper than this are taken to have no end."""


class Template:
    """A text as read once; equal objects and contexts give equal results."""

    def __init__(self, text: str) -> None:
        """Read it. Raises: TemplateError naming the line."""
        self.text = text
        self._body, self._defined = parse(text.strip(), NAMES)

    def fill(self, given: Any, context: Context) -> str:
        """Return the text for this object. Raises: TemplateError naming the line."""
        run = _Run(given, self._defined, FUNCTIONS | context.functions())
        run.nodes(self._body, given)
        return "".join(run.out)

    def fill_yaml(self, given: Any, context: Context) -> Any:
        """Return what the text is as YAML. Raises: TemplateError when it is none."""
        text = self.fill(given, context)
        try:
            return yaml_text.load(text)
        except ValueError as error:
            raise TemplateError(f"what it gives is no YAML: {error}") from None


class _Left(Exception):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class _Run:
    """One filling. `variables`: the visible ones, innermost last; `$` is the first."""

    def __init__(self, given: Any, defined: Mapping[str, tuple[Node, ...]], functions: Mapping[str, Function]) -> None:
        self.out: list[str] = []
        self._defined, self._functions = defined, functions
        self._variables: list[tuple[str, Any]] = [("$", given)]
        self._depth = 0

    def nodes(self, nodes: Sequence[Node], dot: Any) -> None:
        """Add what these give to `out`; variables they declare end with them."""
        mark = len(self._variables)
        try:
            for node in nodes:
                self._node(node, dot)
        finally:
            del self._variables[mark:]

    def _node(self, node: Node, dot: Any) -> None:
        match node:
            case Text(text=text):
                self.out.append(text)
            case Action(pipeline=pipeline):
                value = self._pipeline(pipeline, dot)
                if not pipeline.variables:
                    self.out.append(shown(value))
            case Branch(kind="range"):
                self._range(node, dot)
            case Branch():
                self._branch(node, dot)
            case Include():
                self._include(node, dot)
            case Leave(kind=kind):
                raise _Left(kind)

    def _branch(self, node: Branch, dot: Any) -> None:
        mark = len(self._variables)
        value = self._pipeline(node.pipeline, dot)
        if is_true(value):
            self.nodes(node.body, value if node.kind == "with" else dot)
        else:
            self.nodes(node.otherwise, dot)
        del self._variables[mark:]

    def _range(self, node: Branch, dot: Any) -> None:
        mark = len(self._variables)
        pipeline = node.pipeline
        bare = Pipeline(pipeline.commands, pipeline.line)
        items = list(_items(self._pipeline(bare, dot), pipeline.line))
        for key, value in items:
            values = (key, value) if len(pipeline.variables) == 2 else (value,)
            for name, each in zip(pipeline.variables, values, strict=False):
                self._set(name, each, pipeline)
            try:
                self.nodes(node.body, value)
            except _Left as left:
                if left.kind == "break":
                    break
            finally:
                del self._variables[mark:]
        if not items:
            self.nodes(node.otherwise, dot)

    def _include(self, node: Include, dot: Any) -> None:
        body = self._defined.get(node.name)
        if body is None:
            raise TemplateError(f"line {node.line}: template {node.name!r} is not defined")
        if self._depth >= DEPTH_MAX:
            raise TemplateError(f"line {node.line}: templates include each other without end")
        value = None if node.pipeline is None else self._pipeline(node.pipeline, dot)
        outer, self._variables = self._variables, [("$", value)]
        self._depth += 1
        try:
            self.nodes(body, value)
        finally:
            self._variables = outer
            self._depth -= 1

    # --- values ---

    def _set(self, name: str, value: Any, pipeline: Pipeline) -> None:
        if pipeline.declares:
            self._variables.append((name, value))
            return
        for i in range(len(self._variables) - 1, -1, -1):
            if self._variables[i][0] == name:
                self._variables[i] = (name, value)
                return
        raise TemplateError(f"line {pipeline.line}: variable {name} is not declared")

    def _pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        try:
            value = self._command(pipeline.commands[0], dot, ())
            for command in pipeline.commands[1:]:
                value = self._command(command, dot, (value,))
        except TemplateError as error:
            said = str(error)
            raise error if said.startswith("line ") else TemplateError(f"line {pipeline.line}: {said}") from None
        if pipeline.variables:
            self._set(pipeline.variables[0], value, pipeline)
        return value

    def _command(self, command: tuple[Operand, ...], dot: Any, piped: tuple[Any, ...]) -> Any:
        first, *arguments = command
        if not isinstance(first, Call):
            return self._value(first, dot)
        if first.name in ("and", "or"):
            return self._chosen(first.name, arguments, dot, piped)
        return self._called(first.name, [self._value(a, dot) for a in arguments] + list(piped))

    def _chosen(self, name: str, arguments: list[Operand], dot: Any, piped: tuple[Any, ...]) -> Any:
        value: Any = None
        if not arguments and not piped:
            raise TemplateError(f"{name} wants arguments")
        for argument in arguments:
            value = self._value(argument, dot)
            if is_true(value) == (name == "or"):
                return value
        return piped[0] if piped else value

    def _called(self, name: str, arguments: list[Any]) -> Any:
        try:
            return self._functions[name](*arguments)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise TemplateError(f"{name}: {error}") from None

    def _value(self, operand: Operand, dot: Any) -> Any:
        match operand:
            case Literal(value=value):
                return value
            case Field(names=names):
                return _fields(dot, names)
            case Variable(name=name, names=names):
                for known, value in reversed(self._variables):
                    if known == name:
                        return _fields(value, names)
                raise TemplateError(f"variable {name} is not declared")
            case Call():
                return self._command((operand,), dot, ())
            case Nested(pipeline=pipeline, names=names):
                return _fields(self._pipeline(pipeline, dot), names)


def _fields(value: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if value is None:
            raise TemplateError(f"nil has no field .{name}")
        if not isinstance(value, Mapping):
            raise TemplateError(f"{shown(value)[:40]!r} has no field .{name}")
        value = value.get(name)
    return value


def _items(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    if value is None:
        return
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield key, value[key]
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        for number in range(value):
            yield number, number
    else:
        raise TemplateError(f"line {line}: range cannot go over {shown(value)[:40]!r}")
