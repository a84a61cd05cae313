"""Extensions of CEL other than text: optional values, sets, bindings, comprehensions with two variables.

Source: google/cel-go cel/library.go (OptionalTypes), ext/sets.go, ext/bindings.go, ext/comprehensions.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from services.cel import macros, types, values
from services.cel.declarations import Library, of, on
from services.cel.types import BOOL, DYN, INT, list_of, map_of, optional_of
from services.cel.values import NONE, EvaluationError, Optional, equal, key_of, value_text

_A: Final = types.parameter("A")
_B: Final = types.parameter("B")
_LIST, _MAP, _OPTIONAL = list_of(_A), map_of(_A, _B), optional_of(_A)


def _value(optional: Optional) -> Any:
    if optional.present:
        return optional.value
    raise EvaluationError("optional.none() dereference")


def _of_non_zero(value: Any) -> Optional:
    if isinstance(value, values.Duration):
        return Optional(value) if value.nanos else NONE
    return Optional(value) if value or isinstance(value, values.Timestamp) else NONE


def _present_values(items: Any) -> list[Any]:
    for each in items:
        if type(each) is not Optional:
            raise EvaluationError(f"value {value_text(each)} is not optional")
    return [each.value for each in items if each.present]


def _first(items: Any) -> Optional:
    return Optional(items[0]) if items else NONE


def _last(items: Any) -> Optional:
    return Optional(items[-1]) if items else NONE


OPTIONALS: Final = Library(
    functions={
        "optional.of": (of("optional_of", (_A,), _OPTIONAL, Optional),),
        "optional.ofNonZeroValue": (of("optional_ofNonZeroValue", (_A,), _OPTIONAL, _of_non_zero),),
        "optional.none": (of("optional_none", (), _OPTIONAL, lambda: NONE),),
        "optional.unwrap": (of("optional_unwrap", (list_of(_OPTIONAL),), _LIST, _present_values),),
        "unwrapOpt": (on("optional_unwrapOpt", (list_of(_OPTIONAL),), _LIST, _present_values),),
        "first": (on("list_first", (_LIST,), _OPTIONAL, _first),),
        "last": (on("list_last", (_LIST,), _OPTIONAL, _last),),
        "value": (on("optional_value", (_OPTIONAL,), _A, _value),),
        "hasValue": (on("optional_hasValue", (_OPTIONAL,), BOOL, lambda each: each.present),),
        "or": (on("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, lambda a, b: a if a.present else b),),
        "orValue": (on("optional_orValue_value", (_OPTIONAL, _A), _A, lambda a, b: a.value if a.present else b),),
        "_[?_]": (
            of("list_optindex_optional_int", (_LIST, INT), _OPTIONAL, values.optional_index),
            of("optional_list_optindex_optional_int", (optional_of(_LIST), INT), _OPTIONAL, values.optional_index),
            of("map_optindex_optional_value", (_MAP, _A), optional_of(_B), values.optional_index),
            of("optional_map_optindex_optional_value", (optional_of(_MAP), _A), optional_of(_B), values.optional_index),
        ),
        "_[_]": (
            of("optional_list_index_int", (optional_of(_LIST), INT), _OPTIONAL, values.optional_index),
            of("optional_map_index_value", (optional_of(_MAP), _A), optional_of(_B), values.optional_index),
        ),
    },
    macros=macros.OPTIONALS,
    types={"optional_type": optional_of(DYN)},
)


def _contains(items: Any, wanted: Any) -> bool:
    return all(any(equal(each, other) for other in items) for each in wanted)


def _intersects(items: Any, others: Any) -> bool:
    return any(any(equal(each, other) for other in others) for each in items)


SETS: Final = Library(
    {
        "sets.contains": (of("list_sets_contains_list", (_LIST, _LIST), BOOL, _contains),),
        "sets.equivalent": (
            of("list_sets_equivalent_list", (_LIST, _LIST), BOOL, lambda a, b: _contains(a, b) and _contains(b, a)),
        ),
        "sets.intersects": (of("list_sets_intersects_list", (_LIST, _LIST), BOOL, _intersects),),
    }
)
BINDINGS: Final = Library({}, macros=macros.BINDINGS)


def _insert(holder: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Put an entry into a comprehension's map, to which nothing else refers yet: only macros call this."""
    return _inserted_all(holder, {key_of(key): value})


def _inserted_all(holder: dict[Any, Any], entries: Mapping[Any, Any]) -> dict[Any, Any]:
    for key, value in entries.items():
        if key in holder:
            raise EvaluationError(f"insert failed: key {value_text(values.value_of(key))} already exists")
        holder[key] = value
    return holder


TWO_VARIABLES: Final = Library(
    {
        "cel.@mapInsert": (
            of("@mapInsert_map_key_value", (_MAP, _A, _B), _MAP, _insert),
            of("@mapInsert_map_map", (_MAP, _MAP), _MAP, _inserted_all),
        )
    },
    macros=macros.TWO_VARIABLES,
)
