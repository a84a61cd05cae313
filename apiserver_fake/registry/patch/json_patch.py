"""JSON patch (RFC 6902): operations in order, all of them or none; the input document is not changed."""

from typing import Any

from apiserver_fake.registry.errors import type_name, unprocessable
from apiserver_fake.registry.validation.formats import value_text
from services.api.errors import BadRequest, Invalid, RequestEntityTooLarge

OPERATIONS_MAX = 10_000
GROWTH_MAX_BYTES = 3 * 2**20
DEPTH_MAX = 64
_UNDECODED = "error decoding patch: json: cannot unmarshal {} into Go value of type {}"
_SHIFTED_MAX = 50_000_000
"""Limit of the list elements that all inserts and removals of one JSON patch together may shift."""


def json_patch(document: Any, operations: Any) -> Any:
    """Return `document` after all operations; on an error, raise and change nothing.

    Raises: Invalid when a `test` fails, a path is missing or an operation is unknown; BadRequest if `operations` is
    no list of objects; RequestEntityTooLarge above 10,000 operations or 3 MiB of copied content. Source: guarantees
    L-PATCH.
    """
    if not isinstance(operations, list):
        raise BadRequest(_UNDECODED.format(_go_name(operations), "[]handlers.jsonPatchOp"))
    if len(operations) > OPERATIONS_MAX:
        text = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        raise RequestEntityTooLarge(text)
    work = _Workpiece(document)
    for operation in operations:
        work.apply(operation)
    return work.root


class _Workpiece:
    """A document being patched: containers are copied the first time they are changed, then changed in place."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._owned: dict[int, Any] = {}  # id to container; holding it keeps the id from being reused
        self._growth = 0
        self._shifted = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise BadRequest(_UNDECODED.format(_go_name(operation), "handlers.jsonPatchOp"))
        op, path = operation.get("op"), _tokens(operation.get("path"))
        match op:
            case "add":
                self._add(path, _member_of(operation, "value"))
            case "remove":
                self._remove(path)
            case "replace":
                self._replace(path, _member_of(operation, "value"))
            case "test":
                if not _equal(self._get(path), _member_of(operation, "value")):
                    raise unprocessable(f"testing value {_pointer(path)} failed")
            case "copy":
                value = self._get(_tokens(operation.get("from")))
                self._add(path, self._copy(value))
            case "move":
                source = _tokens(operation.get("from"))
                if path[: len(source)] == source and path != source:
                    raise unprocessable(f"cannot move {_pointer(source)} into itself at {_pointer(path)}")
                value = self._get(source)
                if path != source:
                    self._remove(source)
                    self._add(path, value)
            case _:
                raise unprocessable(f"Unexpected kind: {op}")

    def _get(self, path: list[str]) -> Any:
        value = self.root
        for depth, token in enumerate(path):
            value = _child(value, token, path, depth)
        return value

    def _parent(self, path: list[str]) -> Any:
        """Return the container that holds the last token, and make every container on the way our own."""
        self.root = value = self._own(self.root)
        for depth, token in enumerate(path[:-1]):
            child = self._own(_child(value, token, path, depth))
            if isinstance(value, dict):
                value[token] = child
            else:
                value[int(token)] = child
            value = child
        return value

    def _own(self, value: Any) -> Any:
        if isinstance(value, dict | list) and id(value) not in self._owned:
            value = value.copy()
            self._owned[id(value)] = value
        return value

    def _add(self, path: list[str], value: Any) -> None:
        _check_depth(path, value)
        if not path:
            self.root = value
            return
        parent, token = self._parent(path), path[-1]
        if isinstance(parent, dict):
            parent[token] = value
        elif isinstance(parent, list):
            index = len(parent) if token == "-" else _index(token, len(parent) + 1, path)
            self._shift(len(parent) - index)
            parent.insert(index, value)
        else:
            raise _missing(path)

    def _remove(self, path: list[str]) -> None:
        if not path:
            raise unprocessable("the whole document cannot be removed")
        parent, token = self._parent(path), path[-1]
        if isinstance(parent, dict):
            if token not in parent:
                raise _missing(path)
            del parent[token]
        elif isinstance(parent, list):
            index = _index(token, len(parent), path)
            self._shift(len(parent) - index)
            del parent[index]
        else:
            raise _missing(path)

    def _replace(self, path: list[str], value: Any) -> None:
        self._get(path)
        if path and isinstance(parent := self._parent(path), list):
            _check_depth(path, value)
            parent[int(path[-1])] = value
        else:
            self._add(path, value)

    def _copy(self, value: Any) -> Any:
        # A copy must be one: if both places shared a container, a later operation would change both.
        if isinstance(value, dict):
            self._grow(2 + sum(len(name) + 4 for name in value))
            return {name: self._copy(member) for name, member in value.items()}
        if isinstance(value, list):
            self._grow(2 + len(value))
            return [self._copy(member) for member in value]
        self._grow(len(value) + 2 if isinstance(value, str) else 8)
        return value

    def _grow(self, size: int) -> None:
        self._growth += size
        if self._growth > GROWTH_MAX_BYTES:
            raise RequestEntityTooLarge(f"the patch copies more than {GROWTH_MAX_BYTES} bytes")

    def _shift(self, count: int) -> None:
        self._shifted += count
        if self._shifted > _SHIFTED_MAX:
            raise RequestEntityTooLarge("the patch inserts into long lists too often")


def _tokens(pointer: Any) -> list[str]:
    """Return the unescaped tokens of a JSON pointer (RFC 6901)."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise unprocessable(f"{value_text(pointer)} is no JSON pointer")
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    if len(tokens) > DEPTH_MAX:
        raise unprocessable(f"{pointer[:80]}…: deeper than {DEPTH_MAX} levels")
    return tokens


def _go_name(value: Any) -> str:
    """Return what Go's decoder calls the value."""
    return type_name(value).removeprefix("an ").removeprefix("a ").replace("list", "array").replace("boolean", "bool")


def _pointer(tokens: list[str]) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def _member_of(operation: dict[str, Any], name: str) -> Any:
    if name not in operation:
        raise unprocessable(f"operation {value_text(operation.get('op'))} needs {value_text(name)}")
    return operation[name]


def _child(value: Any, token: str, path: list[str], depth: int) -> Any:
    if isinstance(value, dict) and token in value:
        return value[token]
    if isinstance(value, list):
        return value[_index(token, len(value), path[: depth + 1])]
    raise _missing(path[: depth + 1])


def _index(token: str, end: int, path: list[str]) -> int:
    # ASCII digits without a leading zero, as RFC 6901 wants; a short text, because int() of a long one is slow.
    if not token.isascii() or not token.isdigit() or len(token) > 9 or (len(token) > 1 and token[0] == "0"):
        raise _missing(path)
    index = int(token)
    if index >= end:
        raise _missing(path)
    return index


def _check_depth(path: list[str], value: Any) -> None:
    if len(path) + _depth(value) > DEPTH_MAX:
        raise unprocessable(f"{_pointer(path)}: deeper than {DEPTH_MAX} levels")


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def _equal(a: Any, b: Any) -> bool:
    """JSON's equality: Python's, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _missing(path: list[str]) -> Invalid:
    return unprocessable(f"{_pointer(path)} does not exist")
