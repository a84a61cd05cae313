"""The rules that many kinds share: names, labels, annotations, quantities, and the size of lists.

Functions return causes in upstream's words (apimachinery's `field.ErrorList`), so that people and
scripts recognise them. They rely on `schemas.conform` having checked the types.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

import msgspec

from services.api import label_syntax
from services.api.meta import Document, LabelSelector
from services.api.quantity import amount, canonical, milli
from services.api.selectors import from_label_selector

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RE, _NAME_PART_RE = re.compile(_SUBDOMAIN), re.compile(_NAME_PART)
_CONTROL_RE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_UNDERSCORED = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED_SUBDOMAIN = rf"{_UNDERSCORED}(\.{_UNDERSCORED})*"
_ENV_NAME_RE, _CONFIG_KEY = re.compile(r"[\x20-<>-~]+"), r"[-._a-zA-Z0-9]+"
_PORT_NAME_RE, _HEADER = re.compile("[-a-z0-9]+"), "[-A-Za-z0-9]+"
_LEADING_ZERO_RE = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
UNDERSCORED_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_UNDERSCORED_SUBDOMAIN}')"
)
LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    f"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
_QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_NAME_PART}')"
)
NAME_PART_TEXT = f"name part {_QUALIFIED_TEXT}"
ENV_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    f"or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)
HEADER_TEXT = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    f"validation is '{_HEADER}')"
)
IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NEGATIVE_TEXT = "must be greater than or equal to 0"
IMMUTABLE = "field is immutable"
ANNOTATIONS_MAX_BYTES = 256 * 1024
OWNERS_MAX, FINALIZERS_MAX, CONDITIONS_MAX = 16, 32, 64


class Cause(NamedTuple):
    """One validation error: field path, cause reason (`FieldValueInvalid`, …) and message."""

    path: str
    reason: str
    message: str


Causes = Iterable[Cause]
"""The errors in a value: rules yield one cause after the other."""


def required(path: str, detail: str = "") -> Cause:
    """Return the cause of a missing value."""
    return Cause(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(path: str, value: Any, detail: str) -> Cause:
    """Return the cause of an invalid value."""
    return Cause(path, "FieldValueInvalid", f"Invalid value: {value_text(value)}{': ' if detail else ''}{detail}")


def wrong(path: str, detail: str) -> Cause:
    """Return the cause of an invalid value, without showing the value."""
    return Cause(path, "FieldValueInvalid", f"Invalid value: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return the cause of a value outside a fixed set, whose members are listed in the order given."""
    values = ", ".join(f'"{each}"' for each in supported)
    return Cause(path, "FieldValueNotSupported", f"Unsupported value: {value_text(value)}: supported values: {values}")


def unknown(path: str, value: Any, detail: str = "") -> Cause:
    """Return the cause of a name that does not exist."""
    return Cause(path, "FieldValueNotFound", f"Not found: {value_text(value)}{': ' if detail else ''}{detail}")


def duplicate(path: str, value: Any) -> Cause:
    """Return the cause of a value that occurs twice."""
    return Cause(path, "FieldValueDuplicate", f"Duplicate value: {value_text(value)}")


def forbidden(path: str, detail: str) -> Cause:
    """Return the cause of a field that may not be set or changed."""
    return Cause(path, "FieldValueForbidden", f"Forbidden: {detail}")


def too_many(path: str, count: int, maximum: int) -> list[Cause]:
    """Return a cause when a list is longer than its limit (V7)."""
    if count <= maximum:
        return []
    return [Cause(path, "FieldValueTooMany", f"Too many: {count}: must have at most {maximum} items")]


def faults(form: Callable[[str, str], Iterable[Cause]], value: str) -> list[str]:
    """Return the errors of a format for a value, as messages without the value: for refusals that show another
    value.
    """
    shown = f"Invalid value: {value_text(value)}: "
    return [each.message.removeprefix(shown) for each in form("", value)]


def too_long(path: str, maximum: int) -> Cause:
    """Return the cause of a value of more bytes than its limit."""
    return Cause(path, "FieldValueTooLong", f"Too long: may not be more than {maximum} bytes")


SUBDOMAIN_MAX, SIGNER_MAX = 253, 571
_SHOWN_MAX = 16384
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def value_text(value: Any) -> str:
    """Return a value as refusals show it: strings as Go's `%q`, anything else as its JSON.

    Upstream shows values whole; here they are cut where a refusal would grow without end.
    """
    if isinstance(value, str):
        return f'"{"".join(map(_escape, value[:_SHOWN_MAX]))}"'
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


def go_strings(texts: Iterable[str]) -> str:
    """Return strings as Go's `%#v` shows a slice of them: `[]string{"a", "b"}`."""
    return f"[]string{{{', '.join(map(value_text, texts))}}}"


def _escape(char: str) -> str:
    if found := _ESCAPES.get(char):
        return found
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 128 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _name(pattern: str, length_max: int, text: str, unit: str = "characters") -> Callable[[str, str], list[Cause]]:
    matches = re.compile(pattern).fullmatch

    def check(path: str, value: str) -> list[Cause]:
        is_match = matches(value)
        if is_match and len(value) <= length_max:
            return []
        causes = []
        if len(value.encode()) > length_max:
            causes.append(invalid(path, value, f"must be no more than {length_max} {unit}"))
        if not is_match:
            is_dotted = text is LABEL_TEXT and _SUBDOMAIN_RE.fullmatch(value)
            causes.append(invalid(path, value, "must not contain dots" if is_dotted else text))
        return causes

    return check


subdomain = _name(_SUBDOMAIN, SUBDOMAIN_MAX, SUBDOMAIN_TEXT)
"""Check a DNS-1123 subdomain."""
underscored_subdomain = _name(_UNDERSCORED_SUBDOMAIN, 253, UNDERSCORED_SUBDOMAIN_TEXT)
"""Check a DNS-1123 subdomain that may have underscores, as search domains do."""
label = _name(_LABEL, 63, LABEL_TEXT)
"""Check a DNS-1123 label."""
label_1035 = _name(_LABEL_1035, 63, LABEL_1035_TEXT)
"""Check a DNS-1035 label, the form of service names."""
label_value = _name(label_syntax.VALUE, label_syntax.VALUE_MAX, label_syntax.VALUE_TEXT, "bytes")
"""Check a label's value."""
header_name = _name(_HEADER, 2**31, HEADER_TEXT)
"""Check the name of an HTTP header."""
_config_key = _name(_CONFIG_KEY, 253, CONFIG_KEY_TEXT)


def prefix_of(form: Callable[[str, str], list[Cause]]) -> Callable[[str, str], list[Cause]]:
    """Return the format of a prefix to which more is appended: it may end with a dash.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/api/validation/generic.go`.
    """

    def check(path: str, value: str) -> list[Cause]:
        masked = f"{value[:-2]}a" if len(value) > 1 and value.endswith("-") else value
        return [invalid(path, value, text) for text in faults(form, masked)]

    return check


def config_key(path: str, value: str) -> list[Cause]:
    """Check a key of a ConfigMap or Secret, which must be a valid file name."""
    causes = _config_key(path, value)
    if value in (".", ".."):
        causes.append(invalid(path, value, f"must not be '{value}'"))
    elif value.startswith(".."):
        causes.append(invalid(path, value, "must not start with '..'"))
    return causes


def variable_name(path: str, value: str) -> list[Cause]:
    """Check the name of an environment variable (KEP-4369)."""
    return [] if _ENV_NAME_RE.fullmatch(value) else [invalid(path, value, ENV_NAME_TEXT)]


def port_name(path: str, value: str) -> Causes:
    """Check a port's name, an IANA service name."""
    if len(value) > 15:
        yield invalid(path, value, "must be no more than 15 characters")
    if not _PORT_NAME_RE.fullmatch(value):
        yield invalid(path, value, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        yield invalid(path, value, "must contain at least one letter (a-z)")
    if "--" in value:
        yield invalid(path, value, "must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        yield invalid(path, value, "must not begin or end with a hyphen")


def port(path: str, value: int | str) -> Causes:
    """Check a port: 1 to 65535, or a port name."""
    if isinstance(value, str):
        yield from port_name(path, value)
    elif not 1 <= value <= 65535:
        yield invalid(path, value, "must be between 1 and 65535, inclusive")


def address(path: str, value: str) -> list[Cause]:
    """Check an IP address that need not be in its canonical form (KEP-4858, gate StrictIPCIDRValidation)."""
    try:
        ip = ip_address(value)
    except ValueError:
        try:
            ip_address(_LEADING_ZERO_RE.sub("", value))
        except ValueError:
            return [invalid(path, value, IP_TEXT)]
        return [invalid(path, value, "must not have leading 0s")]
    if "%" in value:
        return [invalid(path, value, IP_TEXT)]
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return [invalid(path, value, "must not be an IPv4-mapped IPv6 address")]
    return []


def qualified_name(path: str, value: str) -> list[Cause]:
    """Check `[prefix/]name`, the form of label keys, annotation keys and resource names."""
    prefix, slash, name = value.rpartition("/")
    if not slash and len(name) <= 63 and _NAME_PART_RE.fullmatch(name):
        return []
    if "/" in prefix:
        text = f"a valid label key {_QUALIFIED_TEXT}"
        return [
            invalid(path, value, f"{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")
        ]
    details = []
    if slash:
        if not prefix:
            details.append("prefix part must be non-empty")
        if len(prefix) > 253:
            details.append("prefix part must be no more than 253 bytes")
        if prefix and not _SUBDOMAIN_RE.fullmatch(prefix):
            details.append(f"prefix part {SUBDOMAIN_TEXT}")
    if not name:
        details.append("name part must be non-empty")
    if len(name.encode()) > 63:
        details.append("name part must be no more than 63 bytes")
    if not _NAME_PART_RE.fullmatch(name):
        details.append(NAME_PART_TEXT)
    return [invalid(path, value, detail) for detail in details]


def labels(path: str, values: Mapping[str, str]) -> Causes:
    """Check a map of labels."""
    for key, value in values.items():
        yield from qualified_name(path, key)
        yield from label_value(path, value)


def annotations(path: str, values: Mapping[str, str]) -> Causes:
    """Check a map of annotations: its keys, in lower case, and its total size."""
    size = 0
    for key, value in values.items():
        lower = key.lower()
        if qualified_name(path, lower):
            yield from [invalid(path, key, text) for text in faults(qualified_name, lower)]
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_MAX_BYTES:
        yield too_long(path, ANNOTATIONS_MAX_BYTES)


def plain_text(path: str, value: str) -> list[Cause]:
    """Check that a text shown to people has no control characters but tab and newline (V10)."""
    if _CONTROL_RE.search(value):
        return [invalid(path, _CONTROL_RE.sub("?", value), "must not contain control characters")]
    return []


_COUNTED = frozenset(
    (
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    )
)
"""Standard resources that come in whole pieces, as extended resources do."""


def quantity(path: str, resource: str, text: str) -> list[Cause]:
    """Check that a quantity parses, is not negative, and is whole where fractions make no sense.

    Source: upstream `pkg/apis/core/validation/validation.go` (v1.36), `ValidateResourceQuantityValue`.
    """
    try:
        value = amount(resource, text)
        thousandths = milli(text)
    except ValueError:
        return [invalid(path, text, QUANTITY_TEXT)]
    causes = []
    if value < 0 or thousandths < 0:
        causes.append(invalid(path, canonical(text), NEGATIVE_TEXT))
    if thousandths % 1000 and (resource in _COUNTED or ("/" in resource and "kubernetes.io/" not in resource)):
        causes.append(invalid(path, canonical(text), "must be an integer"))
    return causes


def metadata(document: Document, name_rule: Any = subdomain, *, is_custom: bool = False) -> Causes:
    """Check the metadata of all objects: name, labels, annotations, finalizers, owners (V4, V7).

    `name_rule`: the rule for names of the kind. `is_custom`: the kind is defined by a CustomResourceDefinition, so
    its finalizers may have any name.
    """
    meta = document["metadata"]
    # A prefix that is right without its dash needs no more than the rule itself.
    if (prefix := meta.get("generateName")) and [*name_rule("", prefix.removesuffix("-"))]:
        yield from prefix_of(name_rule)("metadata.generateName", prefix)
    if name := meta.get("name"):
        yield from name_rule("metadata.name", name)
    else:
        yield required("metadata.name", "name or generateName is required")
    if own := meta.get("labels"):
        yield from labels("metadata.labels", own)
    if notes := meta.get("annotations"):
        yield from annotations("metadata.annotations", notes)
    if owners := meta.get("ownerReferences"):
        yield from _owners(owners)
    if finalizers := meta.get("finalizers"):
        yield from _finalizers(finalizers, is_custom=is_custom)
    # Kinds without a status have no rule that says what shape it would have.
    status = document.get("status")
    if isinstance(status, dict) and isinstance(conditions := status.get("conditions"), list):
        yield from too_many("status.conditions", len(conditions), CONDITIONS_MAX)


_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))


def finalizer(path: str, name: str) -> Causes:
    """Check the name of a finalizer: a qualified name, or one of Kubernetes' own."""
    yield from qualified_name(path, name)
    yield from _known_finalizer(path, name)


def new_finalizers(old: Document, new: Document) -> Causes:
    """Refuse finalizers added to an object that is being deleted (S19)."""
    before = old["metadata"].get("finalizers") or []
    added = [f for f in new["metadata"].get("finalizers") or [] if f not in before]
    if added and old["metadata"].get("deletionTimestamp"):
        text = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield forbidden("metadata.finalizers", f"{text} {go_strings(sorted(set(added)))}")


def _known_finalizer(path: str, name: str) -> Causes:
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        yield invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")


def _finalizers(names: list[str], *, is_custom: bool) -> Causes:
    path = "metadata.finalizers"
    yield from too_many(path, len(names), FINALIZERS_MAX)
    names = names[:FINALIZERS_MAX]
    for name in names:
        yield from qualified_name(path, name)
    if "orphan" in names and "foregroundDeletion" in names:
        yield invalid(path, names, "finalizer orphan and foregroundDeletion cannot be both set")
    for index, name in enumerate(names if not is_custom else ()):
        yield from _known_finalizer(f"{path}[{index}]", name)


def _owners(owners: list[Document]) -> Causes:
    """Check references to owners, whose paths have no index upstream either."""
    path = "metadata.ownerReferences"
    yield from too_many(path, len(owners), OWNERS_MAX)
    controller = ""
    for owner in owners[:OWNERS_MAX]:
        version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        if not version.rpartition("/")[2] or version.count("/") > 1:
            yield invalid(f"{path}.apiVersion", version, "version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield invalid(f"{path}.{field}", owner.get(field) or "", "must not be empty")
        if (version, kind) == ("v1", "Event"):
            yield invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller") is True:
            name = f"{kind}/{owner.get('name') or ''}"
            if controller:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                yield invalid(path, owners, f"{text}{controller} and {name}")
            controller = controller or name


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
        for place, value in enumerate(values):
            causes += label_value(f"{here}.values[{place}]", value)
    return causes


_PERCENT_RE = re.compile(r"[0-9]{1,9}%")


def count_or_percentage(path: str, value: int | str) -> list[Cause]:
    """Check a non-negative number, or a text such as `25%`."""
    if isinstance(value, int):
        return not_negative(path, value)
    if _PERCENT_RE.fullmatch(value):
        return []
    text = (
        "a valid percent string must be a numeric string followed by an ending '%' "
        "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
    )
    return [invalid(path, value, text)]


def not_above_all(path: str, value: int | str) -> list[Cause]:
    """Check that a percentage is at most 100%."""
    if isinstance(value, str) and _PERCENT_RE.fullmatch(value) and number_of(value) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def at_most_all(path: str, value: int | str) -> list[Cause]:
    """Check a non-negative number, or a percentage up to 100%."""
    return count_or_percentage(path, value) + not_above_all(path, value)


def number_of(value: int | str) -> int:
    """Return the number in a count or percentage; 0 if the text is neither, as upstream reads it."""
    if isinstance(value, int):
        return value
    text = value[:-1] if _PERCENT_RE.fullmatch(value) else value
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else 0


def selects(selector: Document, values: Mapping[str, str]) -> bool:
    """Whether a LabelSelector document matches these labels; an empty selector matches everything."""
    return from_label_selector(msgspec.convert(selector, LabelSelector)).matches(values)


def immutable(path: str, old: Any, new: Any) -> list[Cause]:
    """Check that a field did not change."""
    return [] if old == new else [invalid(path, new, IMMUTABLE)]


def not_decremented(path: str, old: int | None, new: int | None) -> list[Cause]:
    """Check that a counter did not decrease."""
    return [invalid(path, new or 0, "cannot be decremented")] if (new or 0) < (old or 0) else []


def not_negative(path: str, value: int | None) -> list[Cause]:
    """Check that an optional count is not negative."""
    if value is not None and value < 0:
        return [invalid(path, value, NEGATIVE_TEXT)]
    return []


def signer_name(path: str, name: str) -> Causes:
    """Check the name of a signer: a domain of two labels or more, a slash, and a path of subdomains.

    Source: upstream `pkg/apis/core/validation/names.go`, `ValidateSignerName`.
    """
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, text)
        return
    if len(domain) > SUBDOMAIN_MAX:
        yield too_long(path, SUBDOMAIN_MAX)
    yield from _first_wrong_label(path, domain, label)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _first_wrong_label(path, rest, subdomain)
    if len(name) > SIGNER_MAX:
        yield too_long(path, SIGNER_MAX)


def _first_wrong_label(path: str, name: str, form: Callable[[str, str], Iterable[Cause]]) -> Causes:
    for part in name.split("."):
        if wrong := faults(form, part):
            return [invalid(path, name, f"validating label {value_text(part)}: {why}") for why in wrong]
    return []


def path_segment(path: str, value: str) -> Causes:
    """Check a text that must be one segment of a URL's path."""
    if value in (".", ".."):
        yield invalid(path, value, f"may not be '{value}'")
        return
    for char in "/%":
        if char in value:
            yield invalid(path, value, f"may not contain '{char}'")
