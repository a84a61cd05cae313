"""The rules that many kinds share: names, labels, annotations, quantities, and the size of lists.

Functions return causes in upstream's words (apimachinery's `field.ErrorList`), so that people and
scripts recognise them. They rely on `schemas.conform` having checked the types.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.api import label_syntax
from services.api.meta import Document, LabelSelector
from services.api.quantity import amount, milli
from services.api.selectors import from_label_selector

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RE, _NAME_PART_RE = re.compile(_SUBDOMAIN), re.compile(_NAME_PART)
_CONTROL_RE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    f"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_NAME_PART}')"
)
IMMUTABLE = "field is immutable"
ANNOTATIONS_MAX_BYTES = 256 * 1024
OWNERS_MAX, FINALIZERS_MAX, CONDITIONS_MAX = 16, 32, 64


class Cause(NamedTuple):
    """One broken rule: field path, cause reason (`FieldValueInvalid`, …) and message."""

    path: str
    reason: str
    message: str


Causes = Iterable[Cause]
"""What is wrong with a value: rules yield one cause after the other."""


def required(path: str, detail: str = "") -> Cause:
    """Return the cause of a missing value."""
    return Cause(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(path: str, value: Any, detail: str) -> Cause:
    """Return the cause of a wrong value."""
    return Cause(path, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return the cause of a value outside a fixed set."""
    values = ", ".join(f'"{each}"' for each in sorted(supported))
    return Cause(path, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {values}")


def duplicate(path: str, value: Any) -> Cause:
    """Return the cause of a value that occurs twice."""
    return Cause(path, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")


def forbidden(path: str, detail: str) -> Cause:
    """Return the cause of a field that may not be set or changed."""
    return Cause(path, "FieldValueForbidden", f"Forbidden: {detail}")


def too_many(path: str, count: int, maximum: int) -> list[Cause]:
    """Return a cause when a list is longer than its limit (V7)."""
    if count <= maximum:
        return []
    return [Cause(path, "FieldValueTooMany", f"Too many: {count}: must have at most {maximum} items")]


def too_long(path: str, maximum: int) -> Cause:
    """Return the cause of a value of more bytes than its limit."""
    return Cause(path, "FieldValueTooLong", f"Too long: may not be more than {maximum} bytes")


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value[:256], ensure_ascii=False)
    text = json.dumps(value)
    return text if len(text) <= 256 else text[:256] + "…"


def _name(pattern: str, length_max: int, text: str) -> Callable[[str, str], list[Cause]]:
    matches = re.compile(pattern).fullmatch

    def check(path: str, value: str) -> list[Cause]:
        if len(value) > length_max:
            return [invalid(path, value, f"must be no more than {length_max} bytes")]
        return [] if matches(value) else [invalid(path, value, text)]

    return check


subdomain = _name(_SUBDOMAIN, 253, SUBDOMAIN_TEXT)
"""Check a DNS-1123 subdomain."""
label = _name(_LABEL, 63, LABEL_TEXT)
"""Check a DNS-1123 label."""
label_1035 = _name(_LABEL_1035, 63, LABEL_1035_TEXT)
"""Check a DNS-1035 label, the form of service names."""
label_value = _name(label_syntax.VALUE, label_syntax.VALUE_MAX, label_syntax.VALUE_TEXT)
"""Check a label's value."""


def qualified_name(path: str, value: str) -> list[Cause]:
    """Check `[prefix/]name`, the form of label keys, annotation keys and resource names."""
    prefix, slash, name = value.rpartition("/")
    if slash and (not prefix or "/" in prefix or len(prefix) > 253 or not _SUBDOMAIN_RE.fullmatch(prefix)):
        return [invalid(path, value, f"prefix part {SUBDOMAIN_TEXT}")]
    if not name:
        return [invalid(path, value, "name part must be non-empty")]
    if len(name) > 63:
        return [invalid(path, value, "name part must be no more than 63 bytes")]
    return [] if _NAME_PART_RE.fullmatch(name) else [invalid(path, value, NAME_PART_TEXT)]


def labels(path: str, values: Mapping[str, str]) -> Causes:
    """Check a map of labels."""
    for key, value in values.items():
        yield from qualified_name(path, key)
        yield from label_value(path, value)


def plain_text(path: str, value: str) -> list[Cause]:
    """Check that a text shown to people has no control characters but tab and newline (V10)."""
    if _CONTROL_RE.search(value):
        return [invalid(path, _CONTROL_RE.sub("?", value), "must not contain control characters")]
    return []


def quantity(path: str, resource: str, text: str) -> list[Cause]:
    """Check that a quantity parses, is not negative, and is whole where fractions make no sense."""
    try:
        value = amount(resource, text)
        thousandths = milli(text)
    except ValueError:
        detail = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        return [invalid(path, text, detail)]
    if value < 0 or thousandths < 0:
        return [invalid(path, text, "must be greater than or equal to 0")]
    is_divisible = resource in ("cpu", "memory", "ephemeral-storage") or resource.startswith("hugepages-")
    if not is_divisible and thousandths % 1000:
        return [invalid(path, text, "must be an integer")]
    return []


def metadata(document: Document, name_rule: Any = subdomain, *, is_custom: bool = False) -> Causes:
    """Check what all objects have: name, labels, annotations, finalizers, owners (V4, V7). `name_rule`: the kind's.
    `is_custom`: of a defined kind, whose finalizers may be of any name.
    """
    meta = document["metadata"]
    if name := meta.get("name"):
        yield from name_rule("metadata.name", name)
    else:
        yield required("metadata.name", "name or generateName is required")
    if own := meta.get("labels"):
        yield from labels("metadata.labels", own)
    annotations = meta.get("annotations") or {}
    size = 0
    for key, value in annotations.items():
        yield from qualified_name("metadata.annotations", key.lower())
        size += len(key) + len(value)
    if size > ANNOTATIONS_MAX_BYTES:
        yield too_long("metadata.annotations", ANNOTATIONS_MAX_BYTES)
    yield from _owners(meta.get("ownerReferences") or [])
    finalizers = meta.get("finalizers") or []
    yield from too_many("metadata.finalizers", len(finalizers), FINALIZERS_MAX)
    for finalizer in finalizers[:FINALIZERS_MAX]:
        yield from qualified_name("metadata.finalizers", finalizer)
        if is_custom or qualified_name("", finalizer) or "/" in finalizer:
            continue
        if finalizer not in _STANDARD_FINALIZERS:
            yield invalid(
                "metadata.finalizers", finalizer, "name is neither a standard finalizer name nor is it fully qualified"
            )
    conditions = (document.get("status") or {}).get("conditions")
    if isinstance(conditions, list):
        yield from too_many("status.conditions", len(conditions), CONDITIONS_MAX)


_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))


def _owners(owners: list[Document]) -> list[Cause]:
    causes = too_many("metadata.ownerReferences", len(owners), OWNERS_MAX)
    controllers = 0
    for index, owner in enumerate(owners[:OWNERS_MAX]):
        here = f"metadata.ownerReferences[{index}]"
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field) and field == "apiVersion":
                causes.append(invalid(f"{here}.apiVersion", "", "version must not be empty"))
            elif not owner.get(field):
                causes.append(required(f"{here}.{field}", "must not be empty"))
        controllers += owner.get("controller") is True
    if controllers > 1:
        text = "Only one reference can have Controller set to true"
        causes.append(invalid("metadata.ownerReferences", controllers, text))
    return causes


def label_selector(path: str, selector: Document) -> list[Cause]:
    """Check a LabelSelector (apimachinery `ValidateLabelSelector`)."""
    causes = [*labels(f"{path}.matchLabels", selector.get("matchLabels") or {})]
    expressions = selector.get("matchExpressions") or []
    causes += too_many(f"{path}.matchExpressions", len(expressions), 64)
    for index, term in enumerate(expressions[:64]):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = term.get("operator", ""), term.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                causes.append(required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(forbidden(f"{here}.values", text))
        else:
            causes.append(invalid(f"{here}.operator", operator, "not a valid selector operator"))
        causes += qualified_name(f"{here}.key", term.get("key", ""))
        for value in values:
            causes += label_value(f"{here}.values", value)
    return causes


_PERCENT_RE = re.compile(r"[0-9]{1,9}%")


def count_or_percentage(path: str, value: int | str) -> list[Cause]:
    """Check a number not below 0 or a text such as `25%`."""
    if isinstance(value, int):
        return not_negative(path, value)
    if _PERCENT_RE.fullmatch(value):
        return []
    text = (
        "a valid percent string must be a numeric string followed by an ending '%' "
        "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
    )
    return [invalid(path, value, text)]


def at_most_all(path: str, value: int | str) -> list[Cause]:
    """Check a number not below 0 or a percentage up to 100%."""
    wrong = count_or_percentage(path, value)
    if not wrong and isinstance(value, str) and number_of(value) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return wrong


def number_of(value: int | str) -> int:
    """Return the number in a valid count or percentage."""
    return value if isinstance(value, int) else int(value[:-1])


def selects(selector: Document, values: Mapping[str, str]) -> bool:
    """Whether a LabelSelector document matches these labels; an empty one matches everything."""
    return from_label_selector(msgspec.convert(selector, LabelSelector)).matches(values)


def immutable(path: str, old: Any, new: Any) -> list[Cause]:
    """Check that a field did not change."""
    return [] if old == new else [invalid(path, new, IMMUTABLE)]


def not_decremented(path: str, old: int | None, new: int | None) -> list[Cause]:
    """Check a counter that only grows."""
    return [invalid(path, new or 0, "cannot be decremented")] if (new or 0) < (old or 0) else []


def not_negative(path: str, value: int | None) -> list[Cause]:
    """Check an optional count."""
    if value is not None and value < 0:
        return [invalid(path, value, "must be greater than or equal to 0")]
    return []
