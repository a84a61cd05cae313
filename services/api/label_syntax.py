"""Syntax rules of label values, with upstream's messages, for the API server and the scheduler.

Source: upstream `staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go`.
"""

import re
from typing import Final

VALUE_MAX: Final = 63
VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{VALUE}')"
)
_VALUE_RE: Final = re.compile(VALUE)


def value_problem(value: str) -> str:
    """Return the reason why a label's value is invalid; empty if it is valid."""
    found = [f"must be no more than {VALUE_MAX} bytes"] if len(value) > VALUE_MAX else []
    return "; ".join(found if _VALUE_RE.fullmatch(value) else [*found, VALUE_TEXT])
