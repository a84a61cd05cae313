"""Every field of a view and every column of a kind is a field of its schema: what a schema does not have cannot be stored.

A field that upstream has is in apiserver_fake/registry/schema/schemas.json, one of a proposal in additions.json beside it.
"""

import json
import types
import typing
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from apiserver_fake.registry.schema.schemas import Shape, schemas, shape_of
from services.api.meta import Column, View
from services.api.resources import resources
from tests.interop.schema_file import laid_out

FOLDER = Path(__file__).parents[2] / "apiserver_fake" / "registry" / "schema"
KINDS = [each for each in resources().values() if shape_of(each.api_version, each.kind).fields is not None]


def uses_of_fields(view: type, shape: Shape, path: str = "", seen: frozenset[type] = frozenset()):
    """Yield for each field of a view, and of views within it: the view, its path, and whether the schema has it."""
    if shape.fields is None or view in seen:
        return
    hints = typing.get_type_hints(view)
    for field in msgspec.structs.fields(view):
        place = f"{path}{field.encode_name}"
        below = shape.fields.get(field.encode_name)
        yield view, field.encode_name, place, below is not None
        for inner in _views(hints[field.name]) if below is not None else ():
            yield from uses_of_fields(inner, below.items or below.values or below, f"{place}.", seen | {view})


def missing_fields(views: Iterable[tuple[type, Shape]]) -> list[str]:
    """Return the paths of fields that no schema has where their view is used.

    A view of several types (conditions) has fields of all of them, so one use with the field is enough.
    """
    known: set[tuple[type, str]] = set()
    without: dict[tuple[type, str], str] = {}
    for view, shape in views:
        for owner, name, place, is_known in uses_of_fields(view, shape):
            if is_known:
                known.add((owner, name))
            else:
                without.setdefault((owner, name), f"{view.__name__}: {place}")
    return sorted(place for use, place in without.items() if use not in known)


def _views(annotation: typing.Any) -> typing.Iterator[type]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias) and issubclass(annotation, View):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _views(inner)


def missing_column(column: Column, shape: Shape) -> str:
    """Return the part of a column's path that the schema does not have; "" for none, or for one that is computed."""
    at = shape
    for name in column.source.split(".") if isinstance(column.source, str) else ():
        if at.fields is None:
            break
        if name not in at.fields:
            return f"{column.name}: {column.source}"
        at = at.fields[name]
    return ""


def test_every_field_of_a_view_is_in_a_schema():
    found = missing_fields((each.view, shape_of(each.api_version, each.kind)) for each in KINDS)

    assert [] == found, "add it to schema/schemas.json, or to additions.json"


@pytest.mark.parametrize("resource", KINDS, ids=lambda each: each.name)
def test_every_column_of_a_kind_is_in_its_schema(resource):
    shape = shape_of(resource.api_version, resource.kind)

    assert [] == [text for column in resource.columns if (text := missing_column(column, shape))]


class _Newer(View, frozen=True):
    value: int = 0
    tier: int = 0


def test_a_field_and_a_column_that_are_in_no_schema_are_named():
    shape = shape_of("scheduling.k8s.io/v1", "PriorityClass")

    assert missing_fields([(_Newer, shape)]) == ["_Newer: tier"]
    assert missing_column(Column("Tier", "tier", "integer"), shape) == "Tier: tier"
    assert missing_column(Column("Value", "value", "integer"), shape) == ""


@pytest.mark.parametrize("name", ["schemas.json", "additions.json"])
def test_a_property_is_a_line(name):
    text = (FOLDER / name).read_text()

    assert laid_out(json.loads(text)) == text


def test_additions_add_and_replace_nothing():
    upstream = json.loads((FOLDER / "schemas.json").read_text())
    additions = json.loads((FOLDER / "additions.json").read_text())

    for name, added in additions.items():
        if name in upstream:
            assert added.keys() == {"properties"}, name
            assert not added["properties"].keys() & upstream[name]["properties"].keys(), name
            assert added["properties"].keys() < schemas()[name]["properties"].keys()
