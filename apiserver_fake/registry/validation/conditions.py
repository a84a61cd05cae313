"""The field table of `metav1.Condition`, for kinds whose conditions are validated.

The texts are apimachinery's (`pkg/apis/meta/v1/validation`).
"""

import re

from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import Causes, invalid, qualified_name, too_long

REASON_MAX, MESSAGE_MAX = 1024, 32 * 1024
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_RE = re.compile(_REASON)
REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def _reason(value: str, path: str, report: Report) -> Causes:
    if not _REASON_RE.fullmatch(value):
        yield invalid(path, value, REASON_TEXT)
    if len(value) > REASON_MAX:
        yield too_long(path, REASON_MAX)


def _message(value: str, path: str, report: Report) -> Causes:
    if len(value) > MESSAGE_MAX:
        yield too_long(path, MESSAGE_MAX)


CONDITION = Struct(
    Field("type", missing="", form=qualified_name),
    unique("type"),
    Field("status", missing="", enum=("False", "True", "Unknown")),
    Field("observedGeneration", minimum=0, text="must be greater than or equal to zero"),
    Field("lastTransitionTime", required="must be set"),
    Field("reason", required="must be set", rule=_reason),
    Field("message", rule=_message),
)
