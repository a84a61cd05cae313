"""Tables of field rules: one table validates, defaults and publishes the fields of a kind.

A `Struct` lists the `Field`s of an object in the order in which errors are reported; between them are functions
for rules across fields. A table is compiled once, when its module is imported. The same table gives defaults
(`complete`), refusals in upstream's words (`check`, `check_immutable`) and the constraints in the served OpenAPI
(`constraints`). Upstream calls this declarative validation (KEP-5073).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from apiserver_fake.registry.switches import NO_GATES, ApiServerSwitches
from apiserver_fake.registry.validation.formats import (
    IMMUTABLE,
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    quantity,
    required,
    too_many,
)
from services.api.meta import Document

VALID_MAX, VALID_BYTES_MAX = 256, 16 << 10
"""Limits of the cache of valid objects: number per type, and bytes per object."""
Form = Callable[[str, Any], Causes]
"""Function of `(path, value)` that yields the errors in the value: `formats.subdomain`, `formats.label_selector`, …"""


class Report:
    """The errors found so far in one object.

    `switches`: the feature gates that rules read. `seen`: the keys of the list whose items are being checked.
    `scope`: a value that a rule across fields passes to the rules of deeper fields. `pod`: the metadata of the
    checked pod, None for templates. `update`: the stored document and the new one, for an update.
    """

    __slots__ = ("causes", "pod", "scope", "seen", "switches", "update")

    def __init__(self, switches: ApiServerSwitches = NO_GATES, causes: list[Cause] | None = None) -> None:
        self.causes: list[Cause] = [] if causes is None else causes
        self.switches = switches
        self.seen: set[Any] = set()
        self.scope: Any = None
        self.pod: Document | None = None
        self.update: tuple[Document, Document] | None = None


Check = Callable[[Any, str, Report], Causes]
"""Function of `(value, path, report)` that yields the errors in a value. For rules across fields: the
object, and the path of its members so far (`spec.`, "" for a whole document).
"""


@dataclass(frozen=True)
class Field:
    """One member of an object.

    `default`: the value of an absent member, or a function of its object (None: no default). `is_blank_absent`: ""
    and 0 count as absent, too. `required`: refused when absent or "", with this detail if it is a text; 0, [] and
    {} count as absent, too, when they equal `missing`. `missing`: the value as which an absent member is checked,
    instead of not at all. `enum`, `minimum`, `maximum`: the allowed values (`text` replaces upstream's usual
    words). `form`: a format; empty values are not checked against it, unless they equal `missing`. `struct`,
    `items`, `most`: the content of an object or list; unless `is_checked` it only gets its defaults.
    `is_immutable`: it never changes; a text is the detail of a refusal as Forbidden. `rule`: a check of its own.
    """

    name: str = ""
    default: Any = None
    is_blank_absent: bool = False
    required: bool | str = False
    missing: Any = None
    enum: Sequence[str] = ()
    minimum: int | None = None
    maximum: int | None = None
    text: str = ""
    form: Form | None = None
    struct: Struct | None = None
    items: Struct | Field | None = None
    most: int = 0
    is_checked: bool = True
    is_immutable: bool | str = False
    rule: Check | None = None

    def compile_check(self) -> Check | None:
        """Return the check of a present value; None if there is nothing to check."""
        checks = [each for each in (_enum(self), _range(self), _form(self), self.rule, _inner(self)) if each]
        if len(checks) <= 1:
            return checks[0] if checks else None

        return lambda value, path, report: (cause for each in checks for cause in each(value, path, report))


def _enum(field: Field) -> Check | None:
    allowed, blank = tuple(field.enum), "" if field.is_blank_absent else None
    if not allowed:
        return None

    def check(value: Any, path: str, report: Report) -> Causes:
        return () if value in allowed or value == blank else (not_supported(path, value, allowed),)

    return check


def _limits(field: Field) -> tuple[int, float, str] | None:
    """Return the least and the greatest value of a field, and what is said of others."""
    low, high = field.minimum, field.maximum
    if low is None:
        return None
    text = f"must be greater than or equal to {low}" if high is None else f"must be between {low} and {high}, inclusive"
    return low, inf if high is None else high, field.text or text


def _range(field: Field) -> Check | None:
    if (limits := _limits(field)) is None:
        return None
    low, high, text = limits
    return lambda value, path, report: () if low <= value <= high else (invalid(path, value, text),)


def _form(field: Field) -> Check | None:
    form, is_always = field.form, field.missing is not None
    if form is None:
        return None
    return lambda value, path, report: form(path, value) if value or is_always else ()


def _inner(field: Field) -> Check | None:
    if not field.is_checked:
        return None
    if field.struct is not None:
        inner = field.struct.check

        return lambda value, path, report: inner(value, f"{path}.", report)
    most = field.most
    if field.items is None and not most:
        return None
    items = field.items
    item = items.compile_check() if isinstance(items, Field) else items.check if items is not None else None
    end = "" if isinstance(items, Field) else "."

    def of_list(values: Any, path: str, report: Report) -> Causes:
        if most and len(values) > most:
            yield from too_many(path, len(values), most)
            values = values[:most]
        if item is None:
            return
        outer, report.seen = report.seen, set()
        for index, entry in enumerate(values):
            yield from item(entry, f"{path}[{index}]{end}", report)
        report.seen = outer

    return of_list


class Struct:
    """The fields of an object, and rules across them, in the order in which errors are reported.

    A rule across fields is a function `(object, path of its members, report)`. `completion` sets values that depend
    on several fields; it gets the completed copy and may assign its members. Defaults come before the members that
    the client sent, unless `are_defaults_last` (hashes of templates and revisions are taken over the members in
    their order).
    """

    def __init__(
        self,
        *parts: Field | Check,
        completion: Callable[[Document], None] | None = None,
        are_defaults_last: bool = False,
    ) -> None:
        self.fields = tuple(part for part in parts if isinstance(part, Field))
        self.completion = completion
        self._are_defaults_last = are_defaults_last
        self._rules = tuple(_entry(part) for part in parts)
        self._rules = tuple(rule for rule in self._rules if any(each is not None for each in (rule[1], *rule[3:])))
        fields = self.fields
        plain = [f for f in fields if f.default is not None and f.struct is None]
        self._defaults = {f.name: f.default for f in plain}
        self._is_computing = any(callable(f.default) for f in plain)
        self._fresh = tuple((f.name, f.default) for f in plain if isinstance(f.default, dict | list))
        self._blank = tuple((f.name, f.default) for f in fields if f.is_blank_absent and f.default is not None)
        self._nested = tuple((f.name, f.default is not None, complete) for f in fields if (complete := _completion(f)))
        self._fixed: tuple[Field, ...] = tuple(f for f in fields if f.is_immutable or (f.struct and f.struct._fixed))
        self.is_completing = bool(self._defaults or self._nested or completion)

    def check(self, holder: Document, at: str, report: Report) -> tuple[()]:
        """Add the errors in an object to the report; `at` is the path of its members so far (`spec.`)."""
        get, causes = holder.get, report.causes
        for name, detail, missing, allowed, form, limits, rule in self._rules:
            if not name:
                for cause in rule(holder, at, report):
                    causes.append(cause)
                continue
            value = get(name)
            if detail is not None and not value and (value is None or value == "" or value == missing):
                causes.append(required(at + name, detail))
                continue
            if value is None:
                if missing is None:
                    continue
                value = missing
            if allowed is not None and value not in allowed:
                causes.append(not_supported(at + name, value, filter(None, allowed)))
            if form is not None and (value or missing is not None):
                causes += form(at + name, value)
            if limits is not None and not limits[0] <= value <= limits[1]:
                causes.append(invalid(at + name, value, limits[2]))
            if rule is not None:
                for cause in rule(value, at + name, report):
                    causes.append(cause)
        return ()

    def complete(self, holder: Document) -> Document:
        """Return a copy with the defaults."""
        if self._are_defaults_last:
            result = {**holder}
            self.complete_in_place(result)
            return result
        result = {**(self._defaults_of(holder) if self._is_computing else self._defaults), **holder}
        self._fill(result)
        return result

    def _defaults_of(self, holder: Document) -> Document:
        """Return the defaults of one object, those that are computed in their place."""
        found = {name: value(holder) if callable(value) else value for name, value in self._defaults.items()}
        return {name: value for name, value in found.items() if value is not None}

    def complete_in_place(self, holder: Document) -> None:
        """Set the defaults of an object by assigning its members; deeper values are copied."""
        for name, value in (self._defaults_of(holder) if self._is_computing else self._defaults).items():
            holder.setdefault(name, value)
        self._fill(holder)

    def _fill(self, result: Document) -> None:
        for name, empty in self._fresh:
            if result[name] is empty:
                result[name] = empty.copy()
        for name, default in self._blank:
            if not result[name]:
                result[name] = default(result) if callable(default) else default
        for name, is_made, complete in self._nested:
            if (value := result.get(name)) is not None or is_made:
                result[name] = complete(value or {})
        if self.completion is not None:
            self.completion(result)

    def check_immutable(self, old: Document, new: Document, at: str, report: Report) -> None:
        """Add an error to the report for each immutable field that changed."""
        for field in self._fixed:
            name = field.name
            before, after = old.get(name), new.get(name)
            if before is after:
                continue
            if field.is_immutable and before != after:
                text = field.is_immutable
                path = at + name
                cause = invalid(path, after, IMMUTABLE) if text is True else forbidden(path, str(text))
                report.causes.append(cause)
            elif field.struct is not None:
                field.struct.check_immutable(before or {}, after or {}, f"{at}{name}.", report)


class RememberedStruct(Struct):
    """A struct that skips the check of an object when an equal one was found valid at the same path.

    `identity`: returns everything that the rules read besides path and feature gates (the object, and values passed
    in the report); None for an object that is checked each time. Values that the rules pass to each other do not
    leave this object.
    """

    def __init__(
        self,
        identity: Callable[[Document, Report], bytes | None],
        *parts: Field | Check,
        completion: Callable[[Document], None],
    ) -> None:
        super().__init__(*parts, completion=completion)
        self._identity = identity
        self._valid: dict[tuple[str, bytes], ApiServerSwitches] = {}

    def check(self, holder: Document, at: str, report: Report) -> tuple[()]:
        """Add the errors in an object to the report, unless an equal object is known to be valid."""
        identity, before, scope = self._identity(holder, report), len(report.causes), report.scope
        if identity is not None and self._valid.get((at, identity)) is report.switches:
            return ()
        super().check(holder, at, report)
        report.scope = scope
        if identity is not None and len(report.causes) == before and len(identity) <= VALID_BYTES_MAX:
            if len(self._valid) >= VALID_MAX:
                del self._valid[next(iter(self._valid))]
            self._valid[at, identity] = report.switches
        return ()


def _entry(
    part: Field | Check,
) -> tuple[str, str | None, Any, tuple[str, ...] | None, Form | None, tuple[int, float, str] | None, Any]:
    """Return `(name, detail of a required value or None, absent value, enum, form, limits, check)`.

    `absent value`: what one is checked as. Only the check needs a call; most fields of a pod that are there have none.
    """
    if not isinstance(part, Field):
        return "", None, None, None, None, None, part
    detail = None if part.required is False else "" if part.required is True else part.required
    missing = {} if part.missing is None and part.struct is not None and part.default == {} else part.missing
    allowed = (*part.enum, "") if part.is_blank_absent else tuple(part.enum)
    rest = replace(part, enum=(), form=None, minimum=None).compile_check()
    return part.name, detail, missing, allowed if part.enum else None, part.form, _limits(part), rest


def _completion(field: Field) -> Callable[[Any], Any] | None:
    if field.struct is not None and (field.struct.is_completing or field.default is not None):
        return field.struct.complete
    if isinstance(field.items, Struct) and field.items.is_completing:
        complete = field.items.complete
        return lambda values: [complete(each) for each in values]
    return None


def unique(*names: str, is_empty_a_key: bool = True) -> Check:
    """Return a rule that no two items of a list have equal members of these names."""
    is_single = len(names) == 1

    def check(item: Document, at: str, report: Report) -> Causes:
        key = item.get(names[0]) or "" if is_single else ":".join(str(item.get(name) or "") for name in names)
        if not key and not is_empty_a_key:
            return
        if key in report.seen:
            yield duplicate(at + names[0] if is_single else at[:-1], key)
        report.seen.add(key)

    return check


def not_repeated(value: Any, path: str, report: Report) -> Causes:
    """Check that each value of a list occurs once."""
    if value in report.seen:
        yield duplicate(path, value)
    report.seen.add(value)


def amount_of(resource: str) -> Check:
    """Return a rule for a quantity of that resource."""
    return lambda value, path, report: quantity(path, resource, value)


def one_of(*members: str) -> Check:
    """Return a rule for a union: exactly one member is set."""
    names = ", ".join(f"`{name}`" for name in members)

    def check(union: Document, at: str, report: Report) -> Causes:
        found = [name for name in members if union.get(name) is not None]
        if not found:
            yield invalid(at[:-1], "", f"must specify one of: {names}")
        elif len(found) > 1:
            yield invalid(at[:-1], "{" + ", ".join(found) + "}", f"must specify exactly one of: {names}")

    return check


def quantities(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """Check quantities by resource name: they parse and are not negative."""
    for name, text in values.items():
        yield from quantity(f"{path}[{name}]", name, text)


def constraints(field: Field) -> Document:
    """Return the OpenAPI constraints of a field: default, enum, minimum, maximum, maxItems."""
    keywords: Document = {
        "default": None if callable(field.default) else field.default,
        "enum": sorted(field.enum) or None,
        "minimum": field.minimum,
        "maximum": field.maximum,
        "maxItems": field.most or None,
    }
    return {name: value for name, value in keywords.items() if value is not None}
