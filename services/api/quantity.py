"""Exact resource arithmetic on integers only (V5): `100m`, `1Gi`, `1.5`, `1e3`.

Values are kept in milli-units, as `kubectl` and the scheduler count CPU; `units` returns whole units, such as
bytes of memory. Rounding is up, as upstream's `Quantity.Value` and `MilliValue` round.
"""

import re
from functools import lru_cache

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)(\d{0,64})(?:\.(\d{0,64}))?(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,2}))?")
_LIMIT = 2**63


def nano(text: str) -> int:
    """Return the value in billionths, exactly (rounded up below a billionth).

    Raises: ValueError naming the text when it is malformed or beyond 63 bits.
    """
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"quantity {text!r}: want a number with a suffix such as 100m, 1Gi or 1e3")
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    digits = int((whole or "") + fraction or "0")
    if suffix in _BINARY:
        numerator, ten = digits * _BINARY[suffix], 9 - len(fraction)
    else:
        power = int(exponent) if exponent else _DECIMAL[suffix or ""]
        if abs(power) > 18:
            raise ValueError(f"quantity {text!r}: exponent {power} is beyond 18")
        numerator, ten = digits, 9 + power - len(fraction)
    value = numerator * int(10**ten) if ten >= 0 else -(-numerator // int(10**-ten))
    if value >= _LIMIT * 10**9:
        raise ValueError(f"quantity {text!r}: above 2^63")
    return -value if sign == "-" else value


@lru_cache(maxsize=8192)
def milli(text: str) -> int:
    """Return thousandths, rounded up: `milli("100m") == 100`, `milli("2") == 2000`.

    Raises: ValueError naming the text when it is malformed or beyond 63 bits.
    """
    return -(-nano(text) // 10**6)


@lru_cache(maxsize=8192)
def units(text: str) -> int:
    """Return whole units, rounded up: `units("1Ki") == 1024`, `units("100m") == 1`.

    Raises: ValueError naming the text when it is malformed or beyond 63 bits.
    """
    return -(-nano(text) // 10**9)


def amount(resource: str, text: str) -> int:
    """Return the integer that scheduler and kubelet use: milli for cpu, units for all else."""
    return milli(text) if resource == "cpu" else units(text)


def format_amount(resource: str, value: int) -> str:
    """Return the canonical quantity of a value of `amount`."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if value and value % _BINARY[suffix] == 0:
            return f"{value // _BINARY[suffix]}{suffix}"
    return str(value)


_POWERS = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """Return a quantity as upstream's `Quantity.String` writes it: `1000m` is `1`, `0.5` is `500m`, `1024Mi` is
    `1Gi`.

    An invalid quantity is returned unchanged.
    """
    match = _FORM.fullmatch(text)
    try:
        value = nano(text)
    except ValueError:
        return text
    assert match is not None
    suffix, exponent = match[4], match[5]
    sign, value = ("-", -value) if value < 0 else ("", value)
    if suffix in _BINARY and value >= 1024 * 10**9:
        whole = -(-value // 10**9)
        for name in reversed(_BINARY):
            if whole % _BINARY[name] == 0:
                return f"{sign}{whole // _BINARY[name]}{name}"
        return f"{sign}{whole}"
    if not value:
        return "0"
    power = -9
    while power < 18 and value % 1000 == 0:
        value, power = value // 1000, power + 3
    if exponent is not None:
        return f"{sign}{value}" if not power else f"{sign}{value}e{power}"
    return f"{sign}{value}{_POWERS[power]}"
