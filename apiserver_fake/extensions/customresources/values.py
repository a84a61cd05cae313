"""Validation of values against schemas: types, limits, patterns, formats, required fields, and
alternatives. Pure.

    values = Values(schema)
    values.accepts(document)                          # fast, by functions that are made once
    values.causes(document, old)                      # the errors, in upstream's words

A part that has not changed is not refused (KEP-4008): its errors are dropped if the old value of the same
field, or of the item with the same keys, is equal.

Source: kubernetes/kube-openapi pkg/validation/validate; kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/validation/{validation,ratcheting}.go,
staging/src/k8s.io/apiserver/pkg/cel/common/equality.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from apiserver_fake.extensions.customresources.causes import (
    NO_PATH,
    as_json,
    invalid,
    not_supported,
    number,
    quoted_text,
    too_long,
    too_many,
    wrong_type,
)
from apiserver_fake.extensions.customresources.formats import NUMBERS, format_of, is_known, out_of_range
from apiserver_fake.registry.validation.formats import Cause, required
from services.cel import regex
from services.cel.values import EvaluationError

Schema = Mapping[str, Any]
Accepts = Callable[[Any], bool]
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_SHORT: Final = 128
"""Length in characters up to which the result of matching a string against a pattern is cached."""
_NO_FORMAT: Final = {"integer": "int64", "number": "float64"}
"""Upstream's name for the format of a number decoded from JSON, by type."""


_WHOLE_MAX: Final = (1 << 53) - 1
"""Largest number with a fraction or an exponent in its text that still counts as an integer."""


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the types that values may have; empty for any type."""
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if kind else ()


def _format(schema: Schema) -> str:
    name = schema.get("format") or ""
    kinds = types_of(schema)
    return name if name and is_known(name, kinds[0] if len(kinds) == 1 else "") else ""


def _type_problem(schema: Schema, value: Any) -> tuple[str, str] | None:
    """Return `(type wanted, type found)` when the value has another type."""
    wanted, form = types_of(schema), _format(schema)
    if not wanted and not form:
        return None
    if value is None:
        return (",".join(wanted), "null") if wanted and not schema.get("nullable") else None
    actual_type = _TYPES[type(value)]
    is_whole = actual_type == "number" and "integer" in wanted and value.is_integer() and abs(value) <= _WHOLE_MAX
    fits = actual_type in wanted or is_whole or (actual_type == "integer" and "number" in wanted)
    is_text_or_list = actual_type in ("string", "array")
    if form and not is_text_or_list and not fits:
        return form, _NO_FORMAT.get(actual_type, "")
    if form and is_text_or_list and not {"number", "integer"} & set(wanted):
        return None  # a list passes, too
    return None if fits else (",".join(wanted), actual_type)


def _in_enum(value: Any, enum: list[Any]) -> bool:
    for option in enum:
        if type(option) is type(value) and option == value and option is not None:
            return True
        numbers = type(option) in (int, float) and type(value) in (int, float)
        if numbers and type(option)(value) == option:  # a fraction is cut off before it is compared
            return True
    return False


def _multiple(value: float, factor: float) -> tuple[bool, float]:
    """Return whether a number is a multiple, and the factor as it is used: of an integer, what is whole of it."""
    if isinstance(value, int):
        whole = int(factor)
        return whole > 0 and value % whole == 0, whole
    if factor <= 0:
        return False, factor
    quotient = value * (1 / factor) if factor < 1 else value / factor
    return abs(quotient - round(quotient)) < 1e-9, factor


def _limits(schema: Schema) -> Iterator[tuple[str, float, bool, str]]:
    for name, text in (("maximum", "less than"), ("minimum", "greater than")):
        limit = schema.get(name)
        if limit is not None:
            is_exclusive = bool(schema.get(f"exclusive{name.capitalize()}"))
            yield name, limit, is_exclusive, f"{text}{'' if is_exclusive else ' or equal to'}"


def _exceeds(value: float, name: str, limit: float, is_exclusive: bool) -> bool:
    """Whether a number is beyond a limit, of which integers see what is whole of it."""
    limit = int(limit) if isinstance(value, int) else limit
    if value == limit:
        return is_exclusive
    return value > limit if name == "maximum" else value < limit


# What is accepted, fast.


def accepting(schema: Schema) -> Accepts:
    """Return a function that says whether a value is valid by the schema."""
    by_type: dict[type, Accepts | None] = {kind: _accepting(schema, kind) for kind in _TYPES}
    by_type[type(None)] = _accepting_null(schema)
    if not any(by_type.values()):
        return _anything

    def accepts(value: Any) -> bool:
        check = by_type[type(value)]
        return check is None or check(value)

    return accepts


def _anything(_: Any) -> bool:
    return True


def _nothing(_: Any) -> bool:
    return False


def _accepting_null(schema: Schema) -> Accepts | None:
    return _nothing if _type_problem(schema, None) is not None or schema.get("enum") else None


_SAMPLES: Final = {str: "", bool: True, int: 0, list: [], dict: {}}


def _accepting(schema: Schema, kind: type) -> Accepts | None:
    """Return the check of values of one type of JSON; None: there is nothing to check."""
    checks: list[Accepts] = []
    if kind is float:
        if _type_problem(schema, 0.5) is not None:
            if _type_problem(schema, 1.0) is not None:
                return _nothing
            checks.append(float.is_integer)
    elif _type_problem(schema, _SAMPLES[kind]) is not None:
        return _nothing
    checks += _alternatives(schema)
    if kind is str:
        checks += _texts(schema)
    elif kind in (int, float):
        checks += _numbers(schema)
    elif kind is list:
        checks += _lists(schema)
    if enum := schema.get("enum"):
        checks.append(lambda value: _in_enum(value, enum))
    if kind is dict:
        checks += _objects(schema)
    if len(checks) <= 1:
        return checks[0] if checks else None
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _alternatives(schema: Schema) -> Iterator[Accepts]:
    if every := [accepting(each) for each in schema.get("allOf") or ()]:
        yield lambda value: all(each(value) for each in every)
    if some := [accepting(each) for each in schema.get("anyOf") or ()]:
        yield lambda value: any(each(value) for each in some)
    if one := [accepting(each) for each in schema.get("oneOf") or ()]:
        yield lambda value: sum(each(value) for each in one) == 1
    if schema.get("not") is not None:
        none = accepting(schema["not"])
        yield lambda value: not none(value)


def _texts(schema: Schema) -> Iterator[Accepts]:
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None:
        yield lambda value: len(value) <= most
    if least is not None:
        yield lambda value: len(value) >= least
    if pattern:
        try:
            search = regex.compile_pattern(pattern).search
        except EvaluationError:
            yield _nothing
        else:
            seen = lru_cache(maxsize=256)(lambda value: search(value) is not None)
            yield lambda value: seen(value) if len(value) <= _SHORT else search(value) is not None
    check = format_of(_format(schema)) if _format(schema) else None
    if check is not None:
        yield check


def _range_problem(schema: Schema, value: float, prefix: str, name: str) -> str | None:
    """Return what is wrong with a number that its type and format have no room for; a schema's own numbers count."""
    kinds = types_of(schema)
    if len(kinds) != 1:
        return None
    [kind], form = kinds, _format(schema)
    if kind not in NUMBERS or not out_of_range(value, kind, form):
        return None
    text = f"with format {form}" if form else "(default format)"
    return f"{prefix} value must be of type {kind} {text} in {name}"


_BOUNDS: Final = (("multipleOf", "MultipleOf"), ("maximum", "Maximum boundary"), ("minimum", "Minimum boundary"))


def _range_problems(schema: Schema, value: float, name: str) -> Iterator[str]:
    found = [(value, "Checked"), *((schema.get(each), prefix) for each, prefix in _BOUNDS)]
    for each, prefix in found:
        if each is not None and (why := _range_problem(schema, each, prefix, name)) is not None:
            yield why


def _numbers(schema: Schema) -> Iterator[Accepts]:
    limits = list(_limits(schema))
    if any(True for _ in _range_problems(schema, 0, "")):
        yield _nothing
    if set(types_of(schema)) & NUMBERS.keys():
        yield lambda value: _range_problem(schema, value, "", "") is None
    if limits:
        yield lambda value: not any(_exceeds(value, name, limit, is_open) for name, limit, is_open, _ in limits)
    factor = schema.get("multipleOf")
    if factor is not None:
        yield lambda value: _multiple(value, factor)[0]


def _lists(schema: Schema) -> Iterator[Accepts]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None:
        yield lambda value: len(value) <= most
    if least is not None:
        yield lambda value: len(value) >= least
    if isinstance(schema.get("items"), Mapping):
        item = accepting(schema["items"])
        if item is not _anything:
            yield lambda value: all(map(item, value))


def _objects(schema: Schema) -> Iterator[Accepts]:
    most, least, needed = schema.get("maxProperties"), schema.get("minProperties"), schema.get("required") or ()
    if most is not None:
        yield lambda value: len(value) <= most
    if least is not None:
        yield lambda value: len(value) >= least
    if needed:
        names = frozenset(needed)
        yield lambda value: value.keys() >= names
    named = {name: accepting(each) for name, each in (schema.get("properties") or {}).items()}
    checked = {name: each for name, each in named.items() if each is not _anything}
    others = schema.get("additionalProperties")
    if others is False:
        yield lambda value: value.keys() <= named.keys()
    rest = accepting(others) if isinstance(others, Mapping) else _anything
    if rest is not _anything:
        yield lambda value: all(named.get(name, rest)(each) for name, each in value.items())
    elif checked:
        find = checked.get

        def members(value: dict[str, Any]) -> bool:
            for name, each in value.items():
                check = find(name)
                if check is not None and not check(each):
                    return False
            return True

        yield members


# What is not, in words.


@dataclass
class _Result:
    """The errors by text: upstream's field name (`.spec.a`), and the cause without its field.

    `matches` counts checks as upstream does; the errors of the alternative with the most matches are shown.
    """

    matches: int = 0
    wrong: dict[str, tuple[str, Cause]] = field(default_factory=dict)

    def merge(self, other: _Result) -> None:
        self.matches += other.matches
        for text, each in other.wrong.items():
            self.wrong.setdefault(text, each)

    def add(self, text: str, name: str, cause: Cause) -> None:
        self.wrong.setdefault(text, (name, cause))

    def add_about_all(self, text: str) -> None:
        self.wrong.setdefault(text, ("", invalid("", "", text)))


class Pair:
    """A value, and the previous value of the same part of the object."""

    __slots__ = ("_by_key", "_equal", "new", "old", "schema")

    def __init__(self, new: Any, old: Any, schema: Schema) -> None:
        self.new, self.old, self.schema = new, old, schema
        self._equal: bool | None = None
        self._by_key: dict[str, Any] | None = None

    def key(self, name: str) -> Pair | None:
        """Return the pair of a field; None if the field was absent or the schema does not declare it."""
        new, old = self.new, self.old
        if not isinstance(new, dict) or not isinstance(old, dict) or name not in new or name not in old:
            return None
        inner = (self.schema.get("properties") or {}).get(name, self.schema.get("additionalProperties"))
        return Pair(new[name], old[name], inner) if isinstance(inner, Mapping) else None

    def index(self, place: int) -> Pair | None:
        """Return the pair of an item in a list with keys; None for any other list or a new item."""
        items = self.schema.get("items")
        if not self._has_keys() or not isinstance(items, Mapping):
            return None
        if self._by_key is None:
            self._by_key = {}
            for entry in self.old:
                self._by_key.setdefault(self._key(entry), entry)
        before = self._by_key.get(self._key(self.new[place]))
        return None if before is None else Pair(self.new[place], before, items)

    def _has_keys(self) -> bool:
        is_map = self.schema.get("x-kubernetes-list-type") == "map"
        return is_map and isinstance(self.new, list) and isinstance(self.old, list)

    def _key(self, item: Any) -> str:
        keys = self.schema.get("x-kubernetes-list-map-keys") or ()
        return as_json([item.get(each) for each in keys] if isinstance(item, dict) else [])

    def is_equal(self) -> bool:
        """Whether the value is unchanged; items with keys may change their order."""
        if self._equal is None:
            self._equal = self._compare()
        return self._equal

    def _compare(self) -> bool:
        new, old = self.new, self.old
        if isinstance(new, list) and isinstance(old, list) and len(new) == len(old) and self._has_keys():
            return all((pair := self.index(place)) is not None and pair.is_equal() for place in range(len(new)))
        if isinstance(new, dict) and isinstance(old, dict):
            return len(new) == len(old) and all(
                (pair := self.key(name)) is not None and pair.is_equal() for name in new
            )
        return type(new) is type(old) and bool(new == old)


class Values:
    """The values that a schema accepts."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.accepts = accepting(schema)

    def causes(self, value: Any, old: Pair | None = None, *, path: str = "") -> list[Cause]:
        """Return the errors in a value. `path`: path of the value; `old`: the same part before, None if it is new."""
        if self.accepts(value):
            return []
        found = _report_part(self.schema, value, "", old)
        return [_cause_at_path(name, cause, path) for name, cause in found.wrong.values()]


def _cause_at_path(name: str, cause: Cause, path: str) -> Cause:
    inside = name.removeprefix(".") if name != "." else ""
    return Cause(f"{path}.{inside}" if path and inside else path or inside or NO_PATH, cause.reason, cause.message)


def _report_part(schema: Schema, value: Any, name: str, was: Pair | None) -> _Result:
    """Return what is wrong with an object, a field or an item; nothing, if it is as it was."""
    found = _report(schema, value, name, was)
    return _Result(found.matches) if found.wrong and was is not None and was.is_equal() else found


def _report(schema: Schema, value: Any, name: str, was: Pair | None) -> _Result:
    result = _Result()
    problem = _type_problem(schema, value)
    has_type = bool(types_of(schema) or _format(schema))
    if problem is not None:
        wanted, actual_type = problem
        text = f"{name} in body must be of type {wanted}: {quoted_text(actual_type)}"
        result.add(text, name, wrong_type("", actual_type, text))
    if value is None:
        result.matches += problem is None
        _report_enum(schema, value, name, result)
    else:
        if has_type:
            result.matches += 1 + (problem is None)
        result.merge(_report_alternatives(schema, value, name, was))
        result.matches += 1
        if isinstance(value, str):
            _report_text(schema, value, name, result)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _report_number(schema, value, name, result)
        elif isinstance(value, list):
            _report_list(schema, value, name, was, result)
        _report_enum(schema, value, name, result)
        result.matches += 1
        if isinstance(value, dict):
            _report_object(schema, value, name, was, result)
            result.matches += 1
        result.matches += 1
    return result


def _report_alternatives(schema: Schema, value: Any, name: str, was: Pair | None) -> _Result:
    result = _Result(1)
    if some := schema.get("anyOf"):
        best: _Result | None = None
        for alternative in some:
            report = _report(alternative, value, name, was)
            if not report.wrong:
                best = report
                break
            if best is None or report.matches > best.matches:
                best = report
        assert best is not None
        if best.wrong:
            result.add_about_all(f"{quoted_text(name)} must validate at least one schema (anyOf)")
        result.merge(best)
    if one := schema.get("oneOf"):
        _report_one_of([_report(each, value, name, was) for each in one], name, result)
    if every := schema.get("allOf"):
        results = [_report(each, value, name, was) for each in every]
        for report in results:
            result.merge(report)
        valid = sum(not found.wrong for found in results)
        if valid != len(results):
            none = "" if valid else ". None validated"
            result.add_about_all(f"{quoted_text(name)} must validate all the schemas (allOf){none}")
    if schema.get("not") is not None and not _report(schema["not"], value, name, was).wrong:
        result.add_about_all(f"{quoted_text(name)} must not validate the schema (not)")
    return result


def _report_one_of(results: list[_Result], name: str, result: _Result) -> None:
    valid = [found for found in results if not found.wrong]
    if len(valid) == 1:
        result.merge(valid[0])
        return
    why = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add_about_all(f"{quoted_text(name)} must validate one and only one schema (oneOf). {why}")
    if not valid:
        result.merge(max(results, key=lambda found: found.matches))


def _report_text(schema: Schema, value: str, name: str, result: _Result) -> None:
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        result.add(f"{name} in body should be at most {most} chars long", name, too_long("", most))
    elif least is not None and len(value) < least:
        text = f"{name} in body should be at least {least} chars long"
        result.add(text, name, invalid("", value, text))
    elif pattern and (why := _mismatch(pattern, value)) is not None:
        text = f"{name} in body should match '{pattern}{why}'"
        result.add(text, name, invalid("", value, text))
    result.matches += 1
    form = _format(schema)
    check = format_of(form) if form else None
    if check is not None:
        if not check(value):
            text = f"{name} in body must be of type {form}: {quoted_text(value)}"
            result.add(text, name, wrong_type("", value, text))
        result.matches += 1


def _mismatch(pattern: str, value: str) -> str | None:
    """Return what an error adds to a pattern that does not match; None: it matches."""
    try:
        return None if regex.matches(value, pattern) else ""
    except EvaluationError as error:
        return f", but pattern is invalid: {error}"


def _report_number(schema: Schema, value: float, name: str, result: _Result) -> None:
    for why in _range_problems(schema, value, name):
        result.add_about_all(why)
    factor = schema.get("multipleOf")
    if factor is not None:
        fits, used = _multiple(value, factor)
        if not fits:
            text = f"{name} in body should be a multiple of {number(used)}"
            if used <= 0:
                text = f"factor MultipleOf declared for {name} must be positive: {number(used)}"
            result.add(text, name, invalid("", used if used <= 0 else value, text))
    for kind, limit, is_exclusive, words in _limits(schema):
        if _exceeds(value, kind, limit, is_exclusive):
            used = int(limit) if isinstance(value, int) else limit
            text = f"{name} in body should be {words} {number(used)}"
            result.add(text, name, invalid("", value, text))
    result.matches += 2


def _report_list(schema: Schema, value: list[Any], name: str, was: Pair | None, result: _Result) -> None:
    items = schema.get("items")
    if isinstance(items, Mapping):
        for place, entry in enumerate(value):
            inner = None if was is None else was.index(place)
            result.merge(_report_part(items, entry, f"{name}[{place}]", inner))
    count, least, most = len(value), schema.get("minItems"), schema.get("maxItems")
    if least is not None and count < least:
        text = f"{name} in body should have at least {least} items"
        result.add(text, name, invalid("", count, text))
    if most is not None and count > most:
        result.add(f"{name} in body should have at most {most} items", name, too_many("", count, most))
    result.matches += 2


def _report_enum(schema: Schema, value: Any, name: str, result: _Result) -> None:
    enum = schema.get("enum")
    if enum and not _in_enum(value, enum):
        text = f"{name} in body should be one of {enum}"
        allowed = (each if isinstance(each, str) else as_json(each) for each in enum)
        result.add(text, name, not_supported("", value, allowed))


def _report_object(schema: Schema, value: dict[str, Any], name: str, was: Pair | None, result: _Result) -> None:
    count, least, most = len(value), schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and count < least:
        text = f"{name} in body should have at least {least} properties"
        result.add(text, name, invalid("", count, text))
    if most is not None and count > most:
        result.add(f"{name} in body should have at most {most} properties", name, too_many("", count, most))
    named, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, member in value.items():
        if key in named:
            continue
        if others is False:
            text = f"{name}.{key} in body is a forbidden property"
            result.add(text, name, invalid("", key, text))
        elif isinstance(others, Mapping):
            inner = None if was is None else was.key(key)
            result.merge(_report_part(others, member, f"{name}.{key}", inner))
    for key, member in named.items():
        if key in value:
            is_type_meta = not name and key in ("apiVersion", "kind")
            inner = None if was is None or is_type_meta else was.key(key)
            result.merge(_report_part(member, value[key], f"{name}.{key}" if name else key, inner))
    for key in schema.get("required") or ():
        if key not in value:
            result.add(f"{name}.{key} in body is required", f"{name}.{key}", required(""))
