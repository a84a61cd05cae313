"""YAML as Kubernetes' tools read and write it: timestamps stay strings, keys are sorted. Pure."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without dates, which JSON does not have."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _OnceLoader(_Loader):
    """The loader of files that people write: a repeated key in one mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping. Raises: ConstructorError for a key that is given twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(str(key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


TAG_MISTAKES: Final = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)
"""Exceptions, besides its own, that PyYAML's constructors raise when a value does not fit its tag: `!!bool x`."""


def load(text: str | bytes) -> Any:
    """Return the one document. Raises: ValueError saying where it is malformed."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(mistake_of(error))) from None
    except TAG_MISTAKES as error:
        raise ValueError(tag_mistake(error)) from None


def tag_mistake(error: Exception) -> str:
    """Return the message of one of TAG_MISTAKES, in one line."""
    said = str(error).splitlines()[0] if isinstance(error, ValueError) and str(error) else ""
    return f"a value is not what its tag says{': ' if said else ''}{said}"


def load_all(text: str) -> Iterator[Any]:
    """Yield the documents, empty ones as None. Raises: ValueError that gives the line of malformed text or a
    repeated key.
    """
    try:
        yield from yaml.load_all(text, Loader=_OnceLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(mistake_of(error))) from None
    except TAG_MISTAKES as error:
        raise ValueError(tag_mistake(error)) from None


class Mistake(NamedTuple):
    """Position and description of malformed text: line and column from 1 (0 if unknown), and the `problem`."""

    line: int
    column: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}" if self.line else self.problem


def mistake_of(error: yaml.YAMLError) -> Mistake:
    """Return position and problem of a parser's error; the problem is one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Mistake(mark.line + 1, mark.column + 1, problem) if mark is not None else Mistake(0, 0, problem)


class YamlError(ValueError):
    """Malformed YAML: the `line`, counted from 0, and the `problem`."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line + 1}: {problem}")
        self.line, self.problem = line, problem


Path = tuple[str, ...]


def load_located(text: str) -> Iterator[tuple[Any, dict[Path, int]]]:
    """Yield each document with the line numbers of its fields, from 0, by path.

    A path holds keys and list indexes as strings; the empty path is the document. Raises: YamlError for a malformed
    document or a repeated key.
    """
    loader = _OnceLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            lines: dict[Path, int] = {}
            _locate(node, (), lines, set())
            yield _construct(loader, node), lines
    except yaml.YAMLError as error:
        line, _, problem = mistake_of(error)
        if "\\t" in problem or " tab " in problem:
            problem = "a tab; YAML is indented with spaces"
        raise YamlError(max(line - 1, 0), problem) from None
    finally:
        loader.dispose()


def _construct(loader: Any, node: yaml.Node) -> Any:
    try:
        return loader.construct_document(node)
    except TAG_MISTAKES as error:
        raise YamlError(node.start_mark.line, tag_mistake(error)) from None


def _locate(node: yaml.Node, path: Path, lines: dict[Path, int], above: set[int]) -> None:
    if id(node) in above:
        raise YamlError(node.start_mark.line, "an alias stands within what it names")
    lines.setdefault(path, node.start_mark.line)
    above.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            lines[below] = key.start_mark.line
            _locate(value, below, lines, above)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _locate(value, (*path, str(number)), lines, above)
    above.discard(id(node))


def dump(value: Any) -> str:
    """Return block-style YAML with sorted keys; a list is not indented below its key."""
    text: str = yaml.safe_dump(value, default_flow_style=False, sort_keys=True, allow_unicode=True, width=1 << 16)
    return text.removesuffix("...\n")
