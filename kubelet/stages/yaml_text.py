"""YAML as Kubernetes' tools read and write it: timestamps stay texts, keys are written in order. Pure."""

from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without dates: JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _OnceLoader(_Loader):
    """The loader of files that people write: a key that is given twice in one mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping. Raises: ConstructorError for a key that is given twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(str(key.value))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def load(text: str) -> Any:
    """Return the one document. Raises: ValueError saying where it is malformed."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(_error_text(error)) from None


def load_all(text: str) -> Iterator[Any]:
    """Yield the documents, empty ones as None. Raises: ValueError: where one is malformed or says a thing twice."""
    try:
        yield from yaml.load_all(text, Loader=_OnceLoader)
    except yaml.YAMLError as error:
        raise ValueError(_error_text(error)) from None


def dump(value: Any) -> str:
    """Return block-style YAML with sorted keys; a list is not indented below its key."""
    text: str = yaml.safe_dump(value, default_flow_style=False, sort_keys=True, allow_unicode=True, width=1 << 16)
    return text.removesuffix("...\n")


def _error_text(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark is not None else problem
