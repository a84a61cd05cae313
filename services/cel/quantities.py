"""Quantities in expressions, exact. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go (ParseQuantity, AsInt64).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from services.cel.types import opaque
from services.cel.values import DIGITS_MAX, INT_MAX, INT_MIN, EvaluationError, register, whole

QUANTITY: Final = opaque("kubernetes.Quantity")
_FORM: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")
_WRONG: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DIGITS: Final = 18
_TINY: Final = -9


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact quantity. `nanos`: billionths, the smallest written quantity; sums may be finer in Kubernetes.

    `whole`: it was written or computed as a number of units that upstream takes for an integer (AsInt64).
    """

    nanos: int
    whole: bool = field(default=True, compare=False)

    def plus(self, other: Quantity) -> Quantity:
        """Return the sum."""
        return Quantity(self.nanos + other.nanos, self.whole and other.whole)

    def minus(self, other: Quantity) -> Quantity:
        """Return the difference."""
        return Quantity(self.nanos - other.nanos, self.whole and other.whole)

    def is_integer(self) -> bool:
        """Return whether upstream takes it for an integer of 64 bits."""
        return self.whole and self.nanos % 10**9 == 0 and INT_MIN <= self.nanos // 10**9 <= INT_MAX

    def as_integer(self) -> int:
        """Return the units. Raises: EvaluationError."""
        if not self.is_integer():
            raise EvaluationError("cannot convert value to integer")
        return self.nanos // 10**9

    def as_float(self) -> float:
        """Return the nearest double; an infinity if it is out of range."""
        try:
            return self.nanos / 10**9
        except OverflowError:
            return math.inf if self.nanos > 0 else -math.inf

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)


register(Quantity, QUANTITY)


@lru_cache(maxsize=8192)
def quantity(text: str) -> Quantity:
    """Parse the quantity; values below a billionth are rounded away from zero. Raises: EvaluationError."""
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise EvaluationError(_WRONG)
    sign, number, denominator, suffix = match[1], match[2], match[3] or "", match[4]
    number = number.lstrip("0") or "0"
    if len(number + denominator) > DIGITS_MAX:
        raise EvaluationError(_WRONG)
    digits = int(number + denominator)
    if suffix in _BINARY:
        power = _BINARY[suffix]
        numerator, ten = digits << power, 9 - len(denominator)
        precise = not denominator and 15 - len(number) - int(power * 3 / 10) - 1 >= 0
        scale = 0
    else:
        exponent = _EXPONENT.fullmatch(suffix)
        if exponent is None and suffix not in _DECIMAL:
            raise EvaluationError("unable to parse quantity's suffix")
        power = (
            whole(exponent[1].lstrip("+-")) * (-1 if exponent[1].startswith("-") else 1)
            if exponent
            else _DECIMAL[suffix]
        )
        if abs(power) > 400:
            raise EvaluationError(_WRONG)
        scale = power - len(denominator)
        numerator, ten = digits, 9 + scale
        precise = _DIGITS - len(number) - len(denominator) >= 0 and scale >= _TINY
    nanos = numerator * 10**ten if ten >= 0 else -(-numerator // 10**-ten)
    if suffix in _BINARY:
        nanos = min(nanos, INT_MAX * 10**9)
    return Quantity(-nanos if sign == "-" else nanos, precise and scale >= 0)
