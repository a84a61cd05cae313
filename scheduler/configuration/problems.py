"""How a wrong field is worded: upstream's `field.Error`, as `path: Kind: value: detail`.

Source: upstream `staging/src/k8s.io/apimachinery/pkg/util/validation/field`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def invalid(path: str, value: Any, detail: str) -> str:
    """Say that the value is not allowed, and why."""
    return f"{path}: Invalid value: {_quoted(value)}: {detail}"


def required(path: str, detail: str = "") -> str:
    """Say that the value is missing."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def duplicate(path: str, value: Any) -> str:
    """Say that the value stands elsewhere, too."""
    return f"{path}: Duplicate value: {_quoted(value)}"


def unsupported(path: str, value: Any, supported: Iterable[str]) -> str:
    """Say that the value is none of those that are known."""
    values = ", ".join(f'"{each}"' for each in supported)
    return f"{path}: Unsupported value: {_quoted(value)}: supported values: {values}"


def forbidden(path: str, detail: str) -> str:
    """Say that the field may not be set here."""
    return f"{path}: Forbidden: {detail}"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
