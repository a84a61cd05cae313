"""Templates of objects: Go's html/template with upstream's functions, filled in for an index and read as
YAML.

As in html/template, text output of an action is escaped, and a missing value yields nothing. A file
without actions is parsed once. Sources: kubernetes/kubernetes `test/integration/scheduler_perf/`:
`operations.go`, function `getTemplateFuncs`, and `create.go`, where older releases have `div` and `mod`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from lab.benchmarks.scheduler_perf.located_yaml import FileError, load
from services.api.meta import Document
from services.kwok.stages.template_functions import FUNCTIONS, Function, value_text
from services.kwok.stages.templates import Dialect, Template, TemplateError

_GOS_OWN: Final = ("eq", "ne", "lt", "le", "gt", "ge", "not", "index", "len", "print", "println", "printf")
_ESCAPES: Final = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "&": "&amp;", "'": "&#39;", "+": "&#43;", "<": "&lt;", ">": "&gt;"}
)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"cannot cast {value_text(value)} to float64")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"cannot cast {value} to float64") from None


def _sum(*numbers: Any) -> float:
    return math.fsum(_number(each) for each in numbers)


def _difference(first: Any, second: Any) -> float:
    return _number(first) - _number(second)


def _product(*numbers: Any) -> float:
    return math.prod((_number(each) for each in numbers), start=1.0)


def _quotient(first: Any, second: Any) -> float:
    if _number(second) == 0:
        raise ValueError("division by zero")
    return _number(first) / _number(second)


def _rest(first: Any, second: Any) -> int:
    by = int(_number(second))
    if by == 0:
        raise ValueError("division by zero")
    return int(math.fmod(int(_number(first)), by))


def _whole_quotient(first: Any, second: Any) -> int:
    return int(_quotient(first, second))


FUNCTIONS_OF_PERF: Final[Mapping[str, Function]] = {
    **{name: FUNCTIONS[name] for name in _GOS_OWN},
    "AddFloat": _sum,
    "AddInt": lambda *numbers: int(_sum(*numbers)),
    "SubtractFloat": _difference,
    "SubtractInt": lambda first, second: int(_difference(first, second)),
    "MultiplyFloat": _product,
    "MultiplyInt": lambda *numbers: int(_product(*numbers)),
    "DivideFloat": _quotient,
    "DivideInt": _whole_quotient,
    "Mod": _rest,
    "div": _whole_quotient,
    "mod": _rest,
}


def _escaped_text(value: Any) -> str:
    return "" if value is None else value_text(value).translate(_ESCAPES)


HTML: Final = Dialect(FUNCTIONS_OF_PERF, frozenset(FUNCTIONS_OF_PERF) | {"and", "or"}, _escaped_text)


class ObjectTemplate:
    """The template of one file, read once."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises: FileError."""
        self.path = path
        try:
            self.text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise FileError(path, "not UTF-8") from None
        except OSError as error:
            raise FileError(path, error.strerror or str(error)) from None
        self._fixed: Document | None = None
        self._template: Template | None = None
        if "{{" in self.text:
            try:
                self._template = Template(self.text, dialect=HTML)
            except TemplateError as error:
                raise FileError(path, str(error)) from None

    @property
    def is_fixed(self) -> bool:
        """Whether it yields the same object for every index."""
        return self._template is None

    def fill(self, values: Mapping[str, Any]) -> Document:
        """Return a new object, which the caller may change. Raises: FileError when it cannot be filled in, or yields
        no object.
        """
        if self._template is None:
            if self._fixed is None:
                self._fixed = self._object(self.text)
            return copy.deepcopy(self._fixed)
        try:
            text = self._template.fill(values)
        except TemplateError as error:
            raise FileError(self.path, str(error)) from None
        return self._object(text)

    def _object(self, text: str) -> Document:
        root = load(self.path, text)
        if not isinstance(root.value, dict):
            raise FileError(self.path, "want one object, such as a Pod", root.line, root.column)
        document: Document = root.plain
        metadata = document.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise FileError(self.path, "metadata: want a mapping", *root.keys.get("metadata", (1, 1)))
        return document


@cache
def template_at(path: str) -> ObjectTemplate:
    """Return the template of a file. Raises: FileError."""
    return ObjectTemplate(path)
