"""Semantic versions in expressions. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/semverlib.go. Text is read as by
blang/semver, Parse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from services.cel.types import opaque
from services.cel.values import EvaluationError, register, whole

SEMVER: Final = opaque("kubernetes.Semver")
_LETTERS: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-")
_DIGITS: Final = frozenset("0123456789")


@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A version by semver 2.0.0; build metadata (after `+`) is ignored."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    def _order(self) -> tuple[tuple[int, int, int], bool, list[tuple[int, int, str]]]:
        # Without a pre-release comes after any with one; numbers come before words.
        parts = [(0, int(part), "") if _is_number(part) else (1, 0, part) for part in self.pre]
        return (self.major, self.minor, self.patch), not self.pre, parts

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1."""
        one, two = self._order(), other._order()
        return (one > two) - (one < two)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.compare(other) == 0

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.patch, self.pre))


register(Semver, SEMVER)


def _is_number(part: str) -> bool:
    return _DIGITS.issuperset(part)


def _number(text: str, what: str) -> int:
    if not text or not _is_number(text):
        raise EvaluationError(f'Invalid character(s) found in {what.lower()} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f'{what} number must not contain leading zeroes "{text}"')
    if whole(text) >= 2**64:
        raise EvaluationError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


@lru_cache(maxsize=8192)
def semver(text: str) -> Semver:
    """Return the version. Raises: EvaluationError."""
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "Major"), _number(parts[1], "Minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, pre = rest.partition("-")
    patch = _number(rest, "Patch")
    names = tuple(pre.split(".")) if dash else ()
    for name in names:
        if not name:
            raise EvaluationError("Prerelease is empty")
        if _is_number(name) and len(name) > 1 and name[0] == "0":
            raise EvaluationError(f'Numeric PreRelease version must not contain leading zeroes "{name}"')
        if _is_number(name) and whole(name) >= 2**64:
            raise EvaluationError(f'strconv.ParseUint: parsing "{name}": value out of range')
        if not _LETTERS.issuperset(name):
            raise EvaluationError(f'Invalid character(s) found in prerelease "{name}"')
    for name in build.split(".") if plus else ():
        if not name:
            raise EvaluationError("Build meta data is empty")
        if not _LETTERS.issuperset(name):
            raise EvaluationError(f'Invalid character(s) found in build meta data "{name}"')
    return Semver(major, minor, patch, names)


def normalize(text: str) -> str:
    """Return the version without `v` and leading zeros, with missing parts added. Raises: EvaluationError."""
    text = text.removeprefix("v")
    parts = text.split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            part = part.lstrip("0")
            parts[place] = part if part[:1].isdigit() else "0" + part
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
