"""Named text formats, and their validation. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/format.go; kubernetes/kubernetes
staging/src/k8s.io/apimachinery/pkg/util/validation.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.cel import times, urls
from services.cel.types import object_of
from services.cel.values import EvaluationError, register, utf8

FORMAT: Final = object_of("kubernetes.NamedFormat")
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_NAME})?')"
)
Problems = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """A named format. `regex_size`: the cost of a check, as the length of a regular expression."""

    name: str
    problems: Problems
    regex_size: int


register(Format, FORMAT)


def _shape_rule(pattern: str, most: int, text: str) -> Problems:
    shape = re.compile(pattern)

    def problems(value: str) -> list[str]:
        found = [f"must be no more than {most} characters"] if len(utf8(value)) > most else []
        return found if shape.fullmatch(value) else [*found, text]

    return problems


def _prefix(problems: Problems) -> Problems:
    """Return the check of what a generated name begins with: a dash at the end stands for what follows."""
    return lambda value: problems(value[:-2] + "a" if len(value) > 1 and value.endswith("-") else value)


_label = _shape_rule(_LABEL, 63, _LABEL_TEXT)
_subdomain = _shape_rule(_SUBDOMAIN, 253, _SUBDOMAIN_TEXT)
_label_1035 = _shape_rule(_LABEL_1035, 63, _LABEL_1035_TEXT)


def _qualified_name_problems(value: str) -> list[str]:
    parts = value.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    name, problems = parts[-1], []
    if len(parts) == 2:
        problems = (
            [f"prefix part {each}" for each in _subdomain(parts[0])] if parts[0] else ["prefix part must be non-empty"]
        )
    if not name:
        problems.append("name part must be non-empty")
    elif len(utf8(name)) > 63:
        problems.append("name part must be no more than 63 characters")
    if not re.fullmatch(_NAME, name):
        problems.append(f"name part {_NAME_RULE}")
    return problems


def _uri(value: str) -> list[str]:
    reason = urls.problem(value)
    return [reason] if reason else []


def _byte(value: str) -> list[str]:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if value else ["invalid base64"]


def _moment(suffix: str, text: str) -> Problems:
    def problems(value: str) -> list[str]:
        try:
            times.timestamp(value + suffix)
        except EvaluationError:
            return [text]
        return []

    return problems


def _uuid(value: str) -> list[str]:
    shape = r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
    return [] if re.fullmatch(shape, value, re.IGNORECASE) else ["does not match the UUID format"]


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", _label, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": Format("DNS1035Label", _label_1035, 30),
    "qualifiedName": Format("QualifiedName", _qualified_name_problems, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(_label), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _prefix(_subdomain), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(_label_1035), 30),
    "labelValue": Format("LabelValue", _shape_rule(f"({_NAME})?", 63, _VALUE_TEXT), 40),
    "uri": Format("URI", _uri, 1104),
    "uuid": Format("uuid", _uuid, 72),
    "byte": Format("byte", _byte, 84),
    "date": Format("date", _moment("T00:00:00Z", "invalid date"), 72),
    "datetime": Format("datetime", _moment("", "invalid datetime"), 72),
}
