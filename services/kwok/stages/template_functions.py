"""Functions for templates: Go's own, those of KWOK, and the part of Sprig that Stages use. Pure.

Each takes JSON values and returns one, or raises ValueError. `and` and `or` are not here, because a template
evaluates only as many of their arguments as it needs. True values are the same as in Python: not false, zero,
nil or empty. `Context` has the functions that depend on the object and the node.
Source: kubernetes-sigs/kwok, `pkg/utils/gotpl/funcs.go`; Go's text/template.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import msgspec

from services.api.documents import yaml_text

Function = Callable[..., Any]
COUNT_MAX = 10_000

NODE_CONDITIONS: tuple[tuple[str, str, str, str], ...] = (
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
)
"""Result of `NodeConditions`: type, status, reason, message of a healthy node (KWOK)."""


class Context(msgspec.Struct, frozen=True):
    """Inputs of a template besides its object. `now`, `start_time`: RFC 3339; `pod_ip`: that of the current pod."""

    now: str
    start_time: str = ""
    version: str = ""
    node_name: str = ""
    node_ip: str = ""
    node_port: int = 0
    pod_ip: str = ""

    def functions(self) -> dict[str, Function]:
        """Return the functions whose results depend on this context."""
        return {
            "Now": lambda: self.now,
            "StartTime": lambda: self.start_time,
            "Version": lambda: self.version,
            "NodeName": lambda: self.node_name,
            "NodeIP": lambda: self.node_ip,
            "NodeIPWith": lambda _name: self.node_ip,
            "NodeIPsWith": lambda _name: [self.node_ip],
            "NodePort": lambda: self.node_port,
            "PodIP": lambda: self.pod_ip,
            "PodIPWith": self._pod_ip,
            "PodIPsWith": lambda *pod: [self._pod_ip(*pod)],
            "NodeConditions": lambda: [
                {"type": kind, "status": status, "reason": reason, "message": message}
                for kind, status, reason, message in NODE_CONDITIONS
            ],
        }

    def _pod_ip(self, _node: Any, host_network: Any, *_pod: Any) -> str:
        return self.node_ip if host_network else self.pod_ip


def value_text(value: Any) -> str:
    """Return a value as Go's %v prints it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{k}:{value_text(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, Sequence):
        return "[" + " ".join(value_text(each) for each in value) + "]"
    return str(value)


def float_text(value: float) -> str:
    """Return a float with the fewest digits that identify it, from 1e+06 on with an exponent, as Go does."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    exact = Decimal(repr(value)).normalize()
    if value == 0 or -4 <= exact.adjusted() < 6:
        return f"{exact:f}"
    sign, digits, _ = exact.as_tuple()
    head, rest, exponent = digits[0], "".join(map(str, digits[1:])), exact.adjusted()
    return f"{'-' * sign}{head}{'.' + rest if rest else ''}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


TEXT_MAX = 1 << 20
"""Maximum number of characters that a function may return."""
TEXT_UNIT = 64
"""Number of characters that weigh as much as one number."""


def weight(value: Any) -> int:
    """Return the size of a value: its numbers, texts and entries; the count stops at the limit of a whole rendering."""
    total, waiting = 0, [value]
    while waiting and total < 1_000_000:
        part = waiting.pop()
        total += 1
        if isinstance(part, str):
            total += len(part) // TEXT_UNIT
        elif isinstance(part, Mapping):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
    return total


def _check_size(length: int) -> None:
    """Raise: ValueError for a text that would be longer than may be."""
    if length > TEXT_MAX:
        raise ValueError(f"{length} characters: want at most {TEXT_MAX}")


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _yaml(value: Any, indent: int = 0) -> str:
    """KWOK's: block YAML; with `indent`, begun on a new line and moved in by two blanks each."""
    text = yaml_text.dump(value)
    _check_size(len(text) + 2 * max(indent, 0) * (1 + text.count("\n")))
    return ("\n" + text).replace("\n", "\n" + "  " * indent) if indent > 0 else text


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif value is None:
            raise ValueError("index of untyped nil")
        elif isinstance(value, list | str) and isinstance(key, int):
            if not 0 <= key < len(value):
                raise ValueError(f"index out of range: {key}")
            value = value[key]
        else:
            raise ValueError(f"cannot index {type(value).__name__} by {key!r}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _eq(first: Any, *others: Any) -> bool:
    if not others:
        raise ValueError("missing argument for comparison")
    for other in others:
        if first is None or other is None:
            if first is other:
                return True
        elif _kind(first) != _kind(other):
            raise ValueError("incompatible types for comparison")
        elif first == other:
            return True
    return False


def _less(first: Any, second: Any) -> bool:
    if first is None or second is None or _kind(first) != _kind(second):
        raise ValueError("incompatible types for comparison")
    if not isinstance(first, str | int | float) or isinstance(first, bool):
        raise ValueError("invalid type for comparison")
    return bool(first < second)


def _len(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value.encode()) if isinstance(value, str) else len(value)
    raise ValueError(f"len of {'nil' if value is None else _kind(value)}")


def _int(value: Any) -> int:
    """Sprig's cast: what is no number is 0."""
    try:
        found = int(value, 0) if isinstance(value, str) else int(value or 0)
    except (ValueError, TypeError, OverflowError):
        return 0
    return 0 if isinstance(value, str) and _int64(found) != found else _int64(found)


def _int64(number: int) -> int:
    """Return the number as Go has it in 64 bits, where sums and products begin again."""
    return (number + 2**63) % 2**64 - 2**63


def _float(value: Any) -> float:
    """Sprig's cast: what is no number is 0."""
    try:
        return float(value or 0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _whole(function: Callable[[float], int], value: Any) -> float:
    """Return a double rounded to a whole number; one that is none stays as it is."""
    found = _float(value)
    return float(function(found)) if math.isfinite(found) else found


def _float_quotient(first: Any, *others: Any) -> float:
    found = _float(first)
    for each in others:
        if (by := _float(each)) == 0:
            raise ValueError("division by zero")
        found /= by
    return found


def _round(value: Any, places: Any, at: Any = 0.5) -> float:
    """Sprig's: half is rounded up, or from `at` on."""
    scale = 10.0 ** _int(places)
    whole, rest = divmod(_float(value) * scale, 1)
    return float((whole + (rest >= _float(at))) / scale)


def _quotient(first: Any, second: Any) -> int:
    a, b = _int(first), _int(second)
    if b == 0:
        raise ValueError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_VERB = re.compile(r"%([-+ 0]*)(\*|\d*)(?:\.(\d+))?(.?)", re.DOTALL)


def _format(text: str, *values: Any) -> str:
    """Go's Sprintf with the verbs %s %v %d %q %f %x %t %%, flags, widths and precisions."""
    given = list(values)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if verb not in ("s", "v", "d", "q", "f", "x", "t"):
            raise ValueError(f"printf: the verb {match[0]!r} is not supported")
        if width == "*":
            width = str(_int(_next(given)))
        value = _next(given)
        if int(width or 0) > COUNT_MAX or int(precision or 0) > COUNT_MAX:
            raise ValueError(f"printf: {match[0]!r}: want at most {COUNT_MAX} signs")
        output = _verb(verb, value, precision)
        sign = "+" if "+" in flags else " " if " " in flags else ""
        if sign and verb in ("d", "f") and not output.startswith("-"):
            output = sign + output
        if "-" in flags:
            return output.ljust(int(width or 0))
        return output.zfill(int(width or 0)) if "0" in flags else output.rjust(int(width or 0))

    return _VERB.sub(one, text)


def _next(given: list[Any]) -> Any:
    if not given:
        raise ValueError("printf: too few arguments")
    return given.pop(0)


def _verb(verb: str, value: Any, precision: str | None) -> str:
    match verb:
        case "q":
            return _json(value_text(value))
        case "f":
            return f"{_float(value):.{precision or 6}f}"
        case "x":
            return f"{value:x}" if isinstance(value, int) else value_text(value).encode().hex()
    text = value_text(value)
    return text[: int(precision)] if precision is not None and verb in ("s", "v") else text


def _print(*values: Any) -> str:
    made = ""
    for i, value in enumerate(values):
        made += " " if i and not isinstance(value, str) and not isinstance(values[i - 1], str) else ""
        made += value_text(value)
    return made


def _indent(spaces: int, text: str) -> str:
    _check_size(len(text) + max(spaces, 0) * (1 + text.count("\n")))
    return " " * spaces + text.replace("\n", "\n" + " " * spaces)


def _replace(old: str, new: str, text: str) -> str:
    _check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _join(sign: str, values: Sequence[Any]) -> str:
    texts = [value_text(each) for each in values]
    _check_size(sum(map(len, texts)) + len(sign) * len(texts))
    return sign.join(texts)


def _until(count: Any) -> list[int]:
    """Sprig's: the numbers below, at most so many that a template can be filled."""
    number = _int(count)
    if abs(number) > COUNT_MAX:
        raise ValueError(f"{number}: want at most {COUNT_MAX}")
    return list(range(number)) if number >= 0 else list(range(0, number, -1))


FUNCTIONS: dict[str, Function] = {
    # Go's own
    "eq": _eq,
    "ne": lambda a, b: not _eq(a, b),
    "lt": _less,
    "le": lambda a, b: not _less(b, a),
    "gt": lambda a, b: _less(b, a),
    "ge": lambda a, b: not _less(a, b),
    "not": lambda a: not a,
    "index": _index,
    "len": _len,
    "print": _print,
    "println": lambda *v: " ".join(value_text(each) for each in v) + "\n",
    "printf": _format,
    # KWOK's
    "Quote": lambda v: _json(v) if isinstance(v, str) else _json(_json(v)),  # of no text: its JSON as a text
    "YAML": _yaml,
    # Sprig's
    "add": lambda *v: _int64(sum(_int(each) for each in v)),
    "add1": lambda v: _int64(_int(v) + 1),
    "addf": lambda *v: sum(_float(each) for each in v),
    "atoi": _int,
    "ceil": lambda v: _whole(math.ceil, v),
    "coalesce": lambda *v: next((each for each in v if each), None),
    "contains": lambda part, text: part in text,
    "default": lambda otherwise, given=None: given if given else otherwise,
    "dict": lambda *v: {value_text(k): value for k, value in zip_longest(v[::2], v[1::2], fillvalue="")},
    "div": _quotient,
    "divf": _float_quotient,
    "empty": lambda v: not v,
    "float64": _float,
    "floor": lambda v: _whole(math.floor, v),
    "first": lambda v: v[0] if v else None,
    "get": lambda v, key: v.get(key, ""),
    "hasKey": lambda v, key: key in v,
    "hasPrefix": lambda part, text: text.startswith(part),
    "hasSuffix": lambda part, text: text.endswith(part),
    "indent": _indent,
    "int": _int,
    "int64": _int,
    "join": _join,
    "keys": lambda v: sorted(v),
    "last": lambda v: v[-1] if v else None,
    "list": lambda *v: list(v),
    "lower": lambda text: text.lower(),
    "max": lambda *v: max(_int(each) for each in v),
    "min": lambda *v: min(_int(each) for each in v),
    "mod": lambda a, b: _int(a) - _quotient(a, b) * _int(b),
    "mul": lambda first, *v: _int64(math.prod(_int(each) for each in (first, *v))),
    "mulf": lambda first, *v: math.prod(_float(each) for each in (first, *v)),
    "nindent": lambda spaces, text: "\n" + _indent(spaces, text),
    "quote": lambda *v: " ".join(_json(value_text(each)) for each in v if each is not None),
    "replace": _replace,
    "round": _round,
    "sub": lambda a, b: _int64(_int(a) - _int(b)),
    "subf": lambda first, *v: _float(first) - sum(_float(each) for each in v),
    "ternary": lambda yes, no, which: yes if which else no,
    "toJson": _json,
    "toString": value_text,
    "trim": lambda text: text.strip(),
    "trimPrefix": lambda part, text: text.removeprefix(part),
    "trimSuffix": lambda part, text: text.removesuffix(part),
    "until": _until,
    "upper": lambda text: text.upper(),
}
NAMES = frozenset(FUNCTIONS) | frozenset(Context("").functions()) | {"and", "or"}
"""Names of all functions that a template may call."""
