"""The columns of custom resources: `additionalPrinterColumns`, by JSONPath.

Source: upstream
`staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from apiserver_fake.extensions.customresources import jsonpath
from services.api.meta import AGE, NAME, Cell, Column, Document
from services.api.times import duration, parse_time


def columns_of(definitions: Iterable[Document]) -> tuple[Column, ...]:
    """Return the columns of a version's table: the name, then the defined columns, or the age if none are defined."""
    defined = tuple(_column(each) for each in definitions)
    return (NAME, *(defined or (AGE_AS_DATE,)))


def _column(definition: Document) -> Column:
    path, kind = str(definition["jsonPath"]), str(definition["type"])
    return Column(
        str(definition["name"]),
        _cell(path, kind),
        kind,
        priority=int(definition.get("priority") or 0),
        format=str(definition.get("format") or ""),
        description=str(
            definition.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
        ),
    )


AGE_AS_DATE = Column("Age", AGE.source, "date", default=AGE.default, is_age=True)


def _cell(path: str, kind: str) -> Cell:
    def cell(document: Document, now_wall_s: float) -> Any:
        try:
            found = jsonpath.find(path, document)
        except jsonpath.JSONPathError:  # upstream leaves the cell empty, too
            return None
        return _cell_value(found[0], kind, now_wall_s) if found else None

    return cell


def _cell_value(value: Any, kind: str, now_wall_s: float) -> Any:
    match kind:
        case "string":
            return _text(value)
        case "integer" if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            try:
                return duration(now_wall_s - parse_time(value))
            except ValueError:
                return "<invalid>"
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return msgspec.json.encode(value).decode()
