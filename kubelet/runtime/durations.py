"""Durations as scripts of containers and nodes spell them: `200ms`, `5s`, `2m`, `1h` or seconds. Pure."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class ScriptError(ValueError):
    """A clause that cannot be read; the message names it."""


def is_duration(text: str) -> bool:
    """Whether `duration_s` understands it."""
    return _DURATION.fullmatch(text) is not None


def duration_s(text: str) -> float:
    """Return seconds of `5s`, `200ms`, `2m`, `1h` or a bare number. Raises: ScriptError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ScriptError(f"{text!r} is no duration; want for example 200ms, 5s or 2m")
    return float(match[1]) * _UNIT_S[match[2]]
