"""Regular expressions of CEL: RE2, in linear time for every pattern. Only this module uses the package.

Source: google/re2 syntax. Messages are those of Go's regexp.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from services.cel.values import EvaluationError, well_formed

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_SPOKEN: Final = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "unexpected )"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
    ("trailing \\", "trailing backslash at end of expression"),
)


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern. Raises: EvaluationError."""
    try:
        return re2.compile(well_formed(pattern), _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        raise EvaluationError(f"error parsing regexp: {_go_reason(reason, pattern)}") from None


def _go_reason(reason: str, pattern: str) -> str:
    """Return RE2's reason in the words of Go's regexp."""
    for ours, theirs in _SPOKEN:
        if reason.startswith(ours):
            argument = reason[len(ours) :].removeprefix(": ")
            return f"{theirs}: `{argument if argument or ours.startswith('trailing') else pattern}`"
    return f"{reason}: `{pattern}`"


def matches(text: str, pattern: str) -> bool:
    """Return whether the pattern is found anywhere in the text. Raises: EvaluationError."""
    return compile_pattern(pattern).search(well_formed(text)) is not None


def find(text: str, pattern: str) -> str:
    """Return the first match; empty if there is none. Raises: EvaluationError."""
    found = compile_pattern(pattern).search(well_formed(text))
    return "" if found is None else str(found[0])


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches from left to right, at most `limit` unless it is negative. Raises: EvaluationError."""
    texts: list[str] = []
    end = -1
    for match in compile_pattern(pattern).finditer(well_formed(text)):
        if limit >= 0 and len(texts) >= limit:
            break
        if match.start() == match.end() == end:
            continue  # Go has no empty match right behind another
        texts.append(str(match[0]))
        end = match.end()
    return texts
